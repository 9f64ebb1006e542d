# N nodes.
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_edge_index,
    check_features,
)
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._evaluation import evaluation
from torch_geometric_lgt.nn.models._graph_context import Edges
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream


class StreamedModel(Module):
    r"""Computes the scores of all nodes of a graph that need not fit into memory: the base class of
    models with :meth:`inference`. A subclass defines :meth:`stream_scores`."""

    lin_in: Module
    lin_out: Module
    in_channels: int
    hidden_channels: int
    out_channels: int
    num_layers: int

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters, and draws the random projections of feature maps anew
        if there are any."""
        for module in self.children():
            reset(module)

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""Computes the scores of all nodes of a graph that need not fit into memory. They equal
        the scores of :meth:`forward` in evaluation. Batches are moved to the device of the
        parameters; PyG's models have an argument :obj:`device` for it.

        Each layer builds its state in one pass over batches, and reads the state in a second pass
        with all neighbours. A state is the sums over the keys of all nodes. If :obj:`folder` is
        given and the graph and its features are memory-mapped, memory holds the parameters, the
        states and one batch with its neighbours.

        Args:
            loader (torch_geometric.loader.NeighborLoader): A loader of one graph with
                ``num_neighbors=[-1]``. Its data, batch size and workers are used, its
                :obj:`input_nodes` are not.
            folder (str or Path, optional): A folder for the outputs of all layers. In the end it
                has the file of the scores only, which the returned tensor memory-maps. An
                interrupted run with the same model and data, under the same autocast, resumes
                there. After more training give another folder, or delete this one: scores are not
                overwritten. Do so as well after a change of what is not compared, which are lists,
                dictionaries and tensors outside the state dict, and functions that modules of your
                own read from other files. (default: :obj:`None`, in memory)
            progress_bar (bool, optional): If :obj:`True`, shows progress. (default: :obj:`False`)

        Returns:
            The scores ``[N, F_out]``, on the CPU. If another layer has taken the place of
            :attr:`lin_out`, they have as many columns as its output.

        Raises:
            TypeError: If :obj:`folder` is no path.
            ValueError: If the loader does not take all neighbours of one hop, changes batches by a
                transform, or was made before the edges of its data changed. If the data are a batch
                of several graphs and the model has attention between all nodes. If the folder
                belongs to another model or graph. Also if a layer cannot be evaluated in parts.
        """
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            width, dtype = self.score_of_zeros().size(1), reference(self).dtype
            return stream.result(width, dtype, lambda: self.stream_scores(stream))

    def check_inputs(self, x: Tensor, edge_index: Edges) -> None:
        r"""Checks the features, and shape and device of the edges, before edges are compared with
        the number of nodes."""
        check_features(x, self.lin_in, self.in_channels)
        check_edge_index(edge_index)
        check_devices(x.device, edge_index=edge_index)

    def stream_scores(self, stream: Stream) -> Callable[[Part], Tensor]:
        r"""Computes all layers for the graph of :obj:`stream`, and returns a function that computes
        the scores ``[n, F_out]`` of the nodes of a part."""
        raise NotImplementedError

    def score_of_zeros(self) -> Tensor:
        r"""Computes the scores ``[1, F_out]`` of a node whose hidden features are 0. They tell the
        number of columns of the scores."""
        raise NotImplementedError

    def __repr__(self) -> str:
        sizes = (
            f'{self.in_channels}, {self.hidden_channels}, {self.out_channels}, '
            f'num_layers={self.num_layers}'
        )
        return f'{self.__class__.__name__}({sizes})'
