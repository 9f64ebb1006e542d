# N nodes, E edges, D channels.
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear, ModuleList
from torch_geometric.nn import GCN, GCNConv, MessagePassing
from torch_geometric.nn.inits import reset
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edge_sums import hide_csr_warning
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import (
    degree_pair,
    neighbor_sum,
    root,
    scaled_weight,
    symmetric_weight,
    weight_of_degrees,
)
from torch_geometric_lgt.functional.numerics import complete_device, without_autocast
from torch_geometric_lgt.nn._layers.neighbor_sum import explained_edges
from torch_geometric_lgt.nn.models._batch_norm import ProcessBatchNorm, Processes
from torch_geometric_lgt.nn.models._graph_context import Degree
from torch_geometric_lgt.nn.models._streaming.stream import Part
from torch_geometric_lgt.typing import Adj


class GCNEdges(NamedTuple):
    r"""Stores the edges of a graph and the weights of GCN's normalisation.

    Attributes:
        edges (SortedEdges): The edges, including self loops.
        weight (torch.Tensor): The normalised weight of each edge ``[E, 1]``, 0 for self loops.
        loop_weight (torch.Tensor): The weight ``[N, 1]`` of each node in its own sum.
    """

    edges: SortedEdges
    weight: Tensor
    loop_weight: Tensor

    def listed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        r"""Returns the graph in the format of PyG's layers: edges ``[2, E']`` with exactly one self
        loop for each node, appended at the end, and normalised weights ``[E']`` in :obj:`dtype`."""
        is_edge = self.edges.edge_index[0] != self.edges.edge_index[1]
        loops = torch.arange(self.loop_weight.size(0), device=is_edge.device).expand(2, -1)
        edges = torch.cat([self.edges.edge_index[:, is_edge], loops], 1)
        weight = torch.cat([self.weight[is_edge], self.loop_weight])
        return edges, weight.squeeze(1).to(dtype)


class SparseGCNConv(GCNConv):
    r"""Computes :class:`torch_geometric.nn.GCNConv`. Edges of the type :class:`GCNEdges` are
    multiplied as a sparse matrix, without a tensor of the size ``[E, D]``. The edge mask of an
    explanation multiplies them in their order; a node's own row stays."""

    # PyG replaces that of GCNConv, for all subclasses, by one that masks no edges in explanations
    propagate = MessagePassing.propagate

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        if isinstance(edge_index, Tensor) and edge_index.layout == torch.sparse_csr:
            h = self.lin(x)
            with without_autocast(x.device.type):
                product = edge_index @ h.to(edge_index.device, edge_index.dtype)
                out = product.to(h.device, h.dtype)
            return out if self.bias is None else out + self.bias
        if not isinstance(edge_index, GCNEdges):
            return super().forward(x, edge_index, edge_weight)
        weight = edge_index.weight
        weight = scaled_weight(weight, explained_edges(self, weight.size(0)))
        h = self.lin(x)
        out = neighbor_sum(h, edge_index.edges, weight, x.size(0))
        out = out + edge_index.loop_weight.to(h.dtype) * h
        return out if self.bias is None else out + self.bias


def is_sparse_gcn(conv: torch.nn.Module | None) -> bool:
    r"""Tells whether :obj:`conv` is a :class:`SparseGCNConv` or a module around one, such as the
    wrapper of a checkpoint, which passes the edges on."""
    return conv is not None and any(isinstance(part, SparseGCNConv) for part in conv.modules())


class SparseGCN(GCN):
    r"""Computes :class:`torch_geometric.nn.GCN` with layers of the type :class:`SparseGCNConv`.

    With :obj:`residual` each layer that keeps the width adds its input. With the residual
    :obj:`"initial"` each layer adds the input of the first layer. With :obj:`use_init` each layer
    is a linear map of the sum over the neighbours beside the input of the first layer. With any of
    these, the last layer is normalised and activated too. With :obj:`normalize` layers have batch
    normalisation, over all :obj:`processes` if :meth:`forward` gets some."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        dropout: float,
        normalize: bool,
        residual: bool | str,
        use_init: bool,
    ) -> None:
        norm = ProcessBatchNorm(hidden_channels) if normalize else None
        super().__init__(in_channels, hidden_channels, num_layers, out_channels, dropout, norm=norm)
        self.residual = residual
        self.activates_last = bool(residual) or use_init
        if self.activates_last:
            self.norms[-1] = torch.nn.Identity() if norm is None else norm
        self.lin_inits = (
            ModuleList(Linear(in_channels, hidden_channels, False) for _ in range(num_layers))
            if use_init
            else None
        )

    @property
    def reads_init(self) -> bool:
        r"""Tells whether all layers read the input of the first layer."""
        return self.residual == 'initial' or self.lin_inits is not None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        reset(self.lin_inits)

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        *args: Any,
        processes: Processes | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if not self.activates_last and processes is None:
            return super().forward(x, edge_index, *args, **kwargs)
        x_0 = x
        for layer in range(self.num_layers):
            x = self._layer(layer, x, x_0, (edge_index, *args), x.size(0), processes)
        return x

    def inference_per_layer(
        self,
        layer: int,
        x: Tensor,
        edge_index: Any,
        batch_size: int,
        x_0: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the output of one layer for the first :obj:`batch_size` nodes of :obj:`x`;
        :obj:`x_0` are their rows of the first layer's input, for a network that reads them."""
        if not self.activates_last:
            return super().inference_per_layer(layer, x, edge_index, batch_size)
        with torch.no_grad():
            return self._layer(layer, x, x_0, (edge_index,), batch_size)

    def _layer(
        self,
        layer: int,
        x: Tensor,
        x_0: Any,
        edges: tuple[Any, ...],
        size: int,
        processes: Processes | None = None,
    ) -> Tensor:
        out = self.convs[layer](x, *edges)[:size]
        norm = self.norms[layer]
        if self.lin_inits is not None:
            out = out + self.lin_inits[layer](x_0)
        if layer == self.num_layers - 1 and not self.activates_last:
            return out
        out = norm(out, processes) if isinstance(norm, ProcessBatchNorm) else norm(out)
        out = self.dropout(self.act(out))
        if self.residual == 'initial':
            return out + x_0
        if not self.residual or x.size(1) != out.size(1):
            return out
        return out + (x if x.layout == torch.strided else x.to_dense())[:size]

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> SparseGCNConv:
        return SparseGCNConv(in_channels, out_channels, normalize=False, **kwargs)


def gcn_edges(
    edge_index: Adj,
    num_nodes: int,
    dtype: torch.dtype,
    degree: Degree,
    edge_weight: Tensor | None = None,
) -> GCNEdges:
    r"""Computes GCN's weights :math:`w_{ji} / \sqrt{(d_j + l_j) (d_i + l_i)}` of all edges.

    Here :math:`l_i` is the weight of node :math:`i`'s self loop (1 if it has none), and :math:`d_i`
    is the in-degree without self loops.

    Args:
        edge_index (torch.Tensor or SparseTensor): The edges.
        num_nodes (int): :math:`N`.
        dtype (torch.dtype): The dtype of the weights.
        degree (torch.Tensor or tuple, optional): The degrees :math:`d` ``[N]``, or a pair with them
            as the second; :obj:`None` sums the weights in :obj:`edge_index`.
        edge_weight (torch.Tensor, optional): The weights :math:`w` ``[E]``. (default: :obj:`None`,
            the values of a sparse matrix, else 1)

    Raises:
        ValueError: If :obj:`degree` has another form or shape.
    """
    edges = sorted_edges(edge_index, num_nodes, num_nodes, edge_weight=edge_weight)
    weight, loop = without_loops(edges.edge_index, edges.weight, num_nodes, dtype)
    if degree is None:
        total = loop + scatter(weight, edges.edge_index[1], 0, num_nodes, 'sum')
        weight = weight_of_degrees(edges.edge_index, (total, total), dtype, weight)
    else:
        in_degree = degree_pair(degree)[1]
        if in_degree.shape != (num_nodes,):
            raise ValueError(
                f"'degree' must have shape [{num_nodes}], one for each node (got "
                f'{list(in_degree.shape)})'
            )
        total = loop + in_degree.to(dtype)
        weight = symmetric_weight(edges.edge_index, num_nodes, num_nodes, dtype, total, weight)
    return GCNEdges(edges, weight, (loop / root(total) / root(total))[:, None])


def without_loops(
    edge_index: Tensor, weight: Tensor | None, num_targets: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    r"""Separates self loops from the other edges: returns the weights ``[E]`` of the edges
    (default: 1) with 0 for self loops, and the weight ``[N_t]`` of each target's self loop.

    As in PyG's :meth:`gcn_norm`, the latter is the mean weight of the target's self loops in
    :obj:`edge_index`, or 1 without any."""
    source, target = edge_index
    loops = source == target
    if weight is None:
        return (~loops).to(dtype), torch.ones(num_targets, dtype=dtype, device=loops.device)
    weight = weight.to(dtype)
    count = scatter(loops.to(dtype), target, 0, num_targets, 'sum')
    loop = scatter(weight.masked_fill(~loops, 0), target, 0, num_targets, 'sum') / count.clamp(
        min=1
    )
    return weight.masked_fill(loops, 0), torch.where(count > 0, loop, 1)


def counts_degrees(gnn: torch.nn.Module) -> bool:
    r"""Tells whether the network :obj:`gnn` has a GCN layer that counts the degrees of its input
    graph itself. For a part of a graph these degrees would be wrong."""
    return any(isinstance(module, GCNConv) and module.normalize for module in gnn.modules())


def _edges_with_loops(part: Part, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Returns the edges into the nodes of :obj:`part` followed by one self loop for each node,
    ``[2, E + n]``, and their weights ``[E + n]`` in :obj:`dtype`. Earlier self loops have the
    weight 0."""
    weight, loop_weight = without_loops(part.edge_index, part.edge_weight, part.size, dtype)
    loops = torch.arange(part.size, device=weight.device).expand(2, -1)
    return torch.cat([part.edge_index, loops], 1), torch.cat([weight, loop_weight])


def gcn_degree_edges(part: Part) -> tuple[Tensor, Tensor]:
    r"""Returns the edges into the nodes of :obj:`part` that count for GCN's degrees: all edges, and
    one self loop for each node. Returns ``[2, E + n]`` and weights ``[E + n]`` in double
    precision."""
    return _edges_with_loops(part, torch.double)


def gcn_matrix(part: Part, degree: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    r"""Returns GCN's normalised weights of the edges into :obj:`part`, with self loops, as a sparse
    CSR matrix ``[n, n + S]`` of :obj:`dtype`: targets are rows, and the sources ``part.n_id`` are
    columns. The matrix is on :obj:`device`, or on the CPU if that has no products of CSR matrices.
    A CPU has no products of sparse matrices in half precision.

    The tensor :obj:`degree` ``[N, 2]`` has the out- and in-degrees of all nodes, with self
    loops."""
    num_src = part.n_id.numel()
    edges, weight = _edges_with_loops(part, dtype)
    in_degree = degree[part.n_id, 1], degree[part.nodes, 1]
    weight = symmetric_weight(edges, num_src, part.size, dtype, in_degree, weight).squeeze(1)
    shape = part.size, num_src
    hide_csr_warning()
    matrix = torch.sparse_coo_tensor(
        edges.flip(0), weight, shape, device=weight.device, check_invariants=False
    )
    return matrix.to_sparse_csr().to(complete_device(device))
