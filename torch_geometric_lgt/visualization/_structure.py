# N nodes, E edges, S sampled rows, L learned edges.
from typing import NamedTuple, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Data

from torch_geometric_lgt._graph_checks import has_several_graphs
from torch_geometric_lgt.functional.neighbors.edges import edge_list


class Structure(NamedTuple):
    r"""Stores the attention of a layer on a labelled graph, on the CPU.

    :obj:`y` ``[N]`` has the labels, :obj:`edges` ``[2, E]`` the edges and :obj:`positions`
    ``[N, 2]`` the places of the nodes in a panel. :obj:`weight` ``[S, N]`` has the attention of the
    sampled nodes :obj:`rows` ``[S]`` to all nodes. :obj:`learned` ``[2, L]`` are its strongest
    edges, and :obj:`multiples` ``[L]`` their weights in multiples of the uniform weight.
    """

    y: Tensor
    edges: Tensor
    positions: np.ndarray
    rows: Tensor
    weight: Tensor
    learned: Tensor
    multiples: Tensor

    def adjacency(self) -> csr_array:
        r"""Builds the adjacency matrix ``[N, N]`` of the edges."""
        return _adjacency(self.edges, self.y.numel())

    def numbers(self) -> dict[str, float]:
        r"""Computes the numbers that :meth:`plot_latent_structure` returns."""
        adjacency = self.adjacency()
        with_learned = adjacency + _adjacency(self.learned, self.y.numel())
        rows, has_label = self.rows.numpy(), self.y >= 0
        neighbors = adjacency[rows] + adjacency.T.tocsr()[rows]
        is_edge = torch.from_numpy(neighbors.toarray() > 0)
        labelled_rows = self.rows[has_label[self.rows]]
        same_class = self.y[labelled_rows][:, None] == self.y[has_label][None]
        weight = self.weight[has_label[self.rows]][:, has_label]
        return {
            'edge mass': float((self.weight * is_edge).sum() / self.weight.sum()),
            'same class': float((weight * same_class).sum() / weight.sum()),
            'same class by chance': float(same_class.double().mean()),
            'components': float(connected_components(adjacency, directed=False)[0]),
            'components with learned edges': float(
                connected_components(with_learned, directed=False)[0]
            ),
        }


def labelled_graph(data: Data, needs_x: bool) -> tuple[Tensor, Tensor]:
    r"""Returns the edges ``[2, E]`` and the labels ``[N]`` of a graph.

    Raises:
        TypeError: If :obj:`data` is no graph of one type.
        ValueError: If :obj:`edge_index`, :obj:`y` or, if needed, :obj:`x` is no tensor. If a label
            is neither a class nor -1, or no node has a label. If an edge names a node that does not
            exist.
    """
    if not isinstance(data, Data):
        raise TypeError(
            "'data' must be a torch_geometric.data.Data with x, edge_index and y (got "
            f'{type(data).__name__})'
        )
    for name in ('x', 'edge_index', 'y') if needs_x else ('edge_index', 'y'):
        if not isinstance(getattr(data, name), Tensor):
            raise ValueError(
                f"'data' must have {name!r} as a tensor (got {type(getattr(data, name)).__name__})"
            )
    edges, y = (cast(Tensor, part) for part in (data.edge_index, data.y))
    num_nodes = data.x.size(0) if isinstance(data.x, Tensor) else y.numel()
    if (
        y.numel() != num_nodes
        or num_nodes < 2
        or y.is_floating_point()
        or int(y.min()) < -1
        or int(y.max()) < 0
    ):
        got = f'{tuple(y.shape)} {str(y.dtype).removeprefix("torch.")} for {num_nodes} nodes'
        lowest = f', the least {y.min()}' if y.numel() > 0 else ''
        raise ValueError(
            "'data' must have a class from 0 on in 'y' for each of at least two nodes, or -1 "
            f'where there is none (got {got}{lowest})'
        )
    return edge_list(edges, num_nodes, num_nodes), y.reshape(-1)


def check_one_graph(data: Data) -> None:
    r"""Raises a ValueError if :obj:`data` is a batch of several graphs."""
    if has_several_graphs(data):
        raise ValueError(
            "'data' must be one graph (got a batch of several in 'batch'); pass "
            'batch=data.batch to the model, too, or draw a graph of to_data_list()'
        )


def projection(hidden: Tensor) -> np.ndarray:
    r"""Projects the rows of :obj:`hidden` ``[N, F]`` on their two main directions, ``[N, 2]``. The
    second column is 0 if there is one direction."""
    hidden = hidden - hidden.mean(0)
    positions = hidden @ torch.linalg.svd(hidden, full_matrices=False)[2][:2].t()
    return pad(positions, (0, 2 - positions.size(1))).numpy()


def _adjacency(edges: Tensor, num_nodes: int) -> csr_array:
    return csr_array((np.ones(edges.size(1)), tuple(edges.numpy())), shape=(num_nodes, num_nodes))
