# N nodes, D hidden channels, H heads, K samples, L layers.
import os
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from torch_geometric_lgt._arguments import check_ids
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn.models._streaming.key_state import frozen_double, key_state
from torch_geometric_lgt.nn.models._streaming.memory_file import read_memory, write_memory
from torch_geometric_lgt.nn.models._streaming.stream import Stream


class AttentionMemory:
    r"""Stores for each layer of a model the state (sums over the keys) of all nodes, so that a
    batch attends to the whole graph:

    .. math::
        \mathbf{S} = \mathbf{S}_{\mathrm{all}}
        - \sum_{j \in \mathcal{K}} \phi(\mathbf{k}_j^{\mathrm{old}})
            (\mathbf{v}_j^{\mathrm{old}})^{\top}
        + \sum_{j \in \mathcal{K}} \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}

    where :math:`\mathcal{K}` are the seed nodes of a batch, its first :obj:`num_keys` rows. The
    method :meth:`without` returns the first two terms for these nodes; the model adds the third.

    Pass :obj:`num_keys`: only the seed nodes are keys, and only their rows of the output are valid.
    The sampled neighbours after them serve message passing; as keys they would count twice. A
    :class:`~torch_geometric_lgt.loader.NeighborLoader` has ``batch.batch_size`` seed nodes in a
    batch. A :class:`~torch_geometric_lgt.loader.LinkNeighborLoader` has
    ``batch.num_sampled_nodes[0]``, the ends of the pairs.

    The earlier keys :math:`\mathbf{k}_j^{\mathrm{old}}`, computed from the stored inputs, are
    constants. The present keys :math:`\mathbf{k}_j` have gradients. Until a parameter changes,
    :math:`\mathbf{S}` is the state of the whole graph. Afterwards the keys outside the batch belong
    to the old parameters: build the memory again every few steps, and after each
    :meth:`FeatureMap.redraw_projection`, for keys of other random features are refused. Building it
    takes one pass over the graph for each layer.

    For scores of edges (``level='edge'``) sample one hop more than the model has layers of message
    passing. Then the scores of the edges into seed nodes are valid,
    ``out[batch.edge_index[1] < num_keys]``, and no others.

    The method :obj:`attention_memory` of a model builds the memory, and :meth:`load` reads one; do
    not call the constructor. The memory stores the inputs of the layers, in files if the method
    gets a folder. The keys have no dropout, as in evaluation. If the model is in training mode, the
    noise of NodeFormer is drawn once for each node, when the memory is built; NodeFormer refuses a
    memory of the other mode. For a network of your own, :doc:`/generated/gallery/plot_large_graph`
    shows how to sum up the keys yourself.

    Attributes:
        states (list): The :class:`~torch_geometric_lgt.functional.AttentionState` of all nodes in
            each layer, in double precision: on the device of the model, or on the CPU if that
            device has no double precision.
        inputs (list): The input ``[N, F]`` of each layer, on the CPU.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.utils import to_undirected
        >>> from torch_geometric_lgt.loader import NeighborLoader
        >>> from torch_geometric_lgt.nn import DIFFormer
        >>> from torch_geometric_lgt.transforms import NodeDegree
        >>> ring = to_undirected(torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]))
        >>> data = NodeDegree()(Data(x=torch.randn(5, 8), edge_index=ring))
        >>> model = DIFFormer(8, 16, 3, num_layers=1)
        >>> memory = model.attention_memory(NeighborLoader(data, [-1], batch_size=2))
        >>> whole = model(data.x, data.edge_index)
        >>> for batch in NeighborLoader(data, [-1], batch_size=2):
        ...     nodes = batch.n_id[: batch.batch_size]  # the seed nodes
        ...     states = memory.without(nodes)
        ...     arguments = {'degree': batch.degree, 'states': states, 'num_keys': nodes.numel()}
        ...     out = model(batch.x, batch.edge_index, **arguments)[: nodes.numel()]
        ...     print(batch.n_id.tolist(), torch.allclose(out, whole[nodes], atol=1e-5))
        [0, 1, 4, 2] True
        [2, 3, 1, 4] True
        [4, 0, 3] True
    """

    def __init__(
        self,
        convs: ModuleList,
        inputs: list[Tensor],
        noise: list[Tensor | None],
        states: list[AttentionState],
    ) -> None:
        self.convs: Any = convs
        self.inputs, self._noise = inputs, noise
        self.states = self._marked(states)

    @classmethod
    def from_stream(
        cls, convs: ModuleList, inputs: list[Tensor], stream: Stream
    ) -> 'AttentionMemory':
        r"""Builds the states of the layers :obj:`convs` from their inputs ``[N, D]``, part by part.
        The method :obj:`attention_memory` of a model calls it."""
        memory = cls(frozen_double(convs), inputs, [None] * len(inputs), [])
        stream.workspace.keep_locked(memory)
        for index in range(len(inputs)):
            memory._noise[index] = memory._draw_noise(index, stream)
        states = [memory._stream_state(index, stream) for index in range(len(inputs))]
        memory.states = memory._marked(states)
        return memory

    def _marked(self, states: list[AttentionState]) -> list[AttentionState]:
        r"""Notes in each state whether its keys have noise, and their random vectors."""
        for state, noise, conv in zip(states, self._noise, self.convs, strict=False):
            state.has_noise = noise is not None
            state.projection = getattr(conv, 'random_projection', None)
        return states

    def without(self, nodes: Tensor) -> list[AttentionState]:
        r"""Returns for each layer the state of all nodes except :obj:`nodes`: a list for the
        argument :obj:`states` of the model, whose argument :obj:`num_keys` must be the number of
        :obj:`nodes`.

        Args:
            nodes (torch.Tensor): The distinct ids ``[n]`` of the nodes to leave out, the seed nodes
                of a batch. These are ids in the whole graph, ``batch.n_id[: batch.batch_size]``,
                not positions in the batch: the latter raise no error and leave out other nodes. If
                the graph is a part of another and has an :obj:`n_id` of its own, delete that
                attribute first: batches keep it in place of the ids in the part.

        Raises:
            ValueError: If :obj:`nodes` contains no ids, a mask for example, or an id does not exist
                or occurs twice.
        """
        is_tensor = isinstance(nodes, Tensor)
        if not is_tensor or nodes.dim() != 1 or nodes.dtype not in (torch.long, torch.int32):
            form = f'{nodes.dtype}, {tuple(nodes.shape)}' if is_tensor else type(nodes).__name__
            raise ValueError(
                f"'nodes' must be a tensor [n] of ids in int64 (got {form}); those of a mask are "
                'mask.nonzero().view(-1)'
            )
        check_ids('nodes', nodes, self.inputs[0].size(0))
        if nodes.unique().numel() != nodes.numel():
            raise ValueError(
                "'nodes' must be distinct, they leave the state once (got some twice); draw the "
                'seed nodes of a batch without replacement'
            )
        nodes = nodes.cpu()  # where the inputs of the layers are
        rest = [state.without(self._state(index, nodes)) for index, state in enumerate(self.states)]
        for state in rest:
            state.num_left_out = nodes.numel()
        return self._marked(rest)

    def save(self, path: str | os.PathLike[str]) -> None:
        r"""Writes the memory to a safetensors file with a version and a checksum, atomically.

        The file contains the inputs, states and noise of all layers, and the parameters with which
        they were computed. It does not contain the graph or the other parameters of the model.

        Args:
            path (str or Path): The file. An existing file is replaced.

        Raises:
            OSError: If the file cannot be written. No half-written file remains.

        Example:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> from torch_geometric_lgt.loader import NeighborLoader
            >>> from torch_geometric_lgt.nn import AttentionMemory, SGFormer
            >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
            >>> data, model = Data(x=torch.randn(4, 8), edge_index=edge_index), SGFormer(8, 16, 3)
            >>> memory = model.attention_memory(NeighborLoader(data, [-1], batch_size=2))
            >>> memory.save('memory.safetensors')
            >>> AttentionMemory.load('memory.safetensors', model)
            AttentionMemory(nodes=4, layers=1)
        """
        write_memory(path, self.convs, self.inputs, self._noise, self.states)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Module) -> 'AttentionMemory':
        r"""Reads a memory from a file that :meth:`save` wrote, without unpickling anything.

        The memory keeps the parameters with which it was built. The present parameters of
        :obj:`model` need not be the same and do not change. The inputs of the layers are
        memory-mapped from the file. Another memory may be saved in its place, except on Windows,
        where no file is replaced that a memory maps.

        Args:
            path (str or Path): The file.
            model (torch.nn.Module): A model with the same layers and settings as that of the
                memory. The states are placed on its device, as those of a new memory.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file is damaged, of another kind or of another version. If
                :obj:`model` has other layers, settings or sizes than the memory.

        Example:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> from torch_geometric_lgt.loader import NeighborLoader
            >>> from torch_geometric_lgt.nn import AttentionMemory, SGFormer
            >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
            >>> data, model = Data(x=torch.randn(4, 8), edge_index=edge_index), SGFormer(8, 16, 3)
            >>> memory = model.attention_memory(NeighborLoader(data, [-1], batch_size=2))
            >>> memory.save('memory.safetensors')
            >>> loaded = AttentionMemory.load('memory.safetensors', SGFormer(8, 16, 3))
            >>> torch.equal(loaded.states[0].sums, memory.states[0].sums)
            True
        """
        if not hasattr(model, 'attention_memory'):
            raise ValueError(
                "'model' must be a model with the method 'attention_memory' (got "
                f'{type(model).__name__}); pass the model of the memory'
            )
        attentions: Any = model.attentions
        convs = frozen_double(ModuleList(conv for conv in attentions if conv is not None))
        return cls(convs, *read_memory(path, convs))

    def _draw_noise(self, index: int, stream: Stream) -> Tensor | None:
        r"""Draws NodeFormer's noise ``[N, H * K]`` (log-weights of the keys) of layer :obj:`index`
        for all nodes, part by part. Returns :obj:`None` in evaluation and for a layer without
        samples."""
        conv, x = self.convs[index], self.inputs[index]
        samples = getattr(conv, 'num_gumbel_samples', 0)
        if samples == 0 or not conv.training:
            return None
        return stream.fill(
            f'noise-{index}',
            samples * conv.heads,
            x.dtype,
            lambda part: conv.key_noise(x[part.nodes]),
        )

    def _stream_state(self, index: int, stream: Stream) -> AttentionState:
        return stream.state(f'memory-{index}', lambda part: self._state(index, part.nodes))

    def _state(self, index: int, nodes: slice | Tensor) -> AttentionState:
        return key_state(self.convs[index], self.inputs[index], self._noise[index], nodes)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}(nodes={self.inputs[0].size(0)}, layers={len(self.states)})'
        )
