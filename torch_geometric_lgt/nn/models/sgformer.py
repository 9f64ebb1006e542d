# N nodes, D hidden channels, H heads.
import warnings
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch_geometric.nn import GCN, GCNConv

from torch_geometric_lgt.functional.neighbors.edges import SortedEdges, weighted_edges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import symmetric_weight
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.nn._attention_layer import check_devices
from torch_geometric_lgt.nn._parts import reference
from torch_geometric_lgt.nn.conv import SGFormerConv
from torch_geometric_lgt.nn.models._around import Around, Degree, Edges, States
from torch_geometric_lgt.nn.models._backbone import Backbone
from torch_geometric_lgt.nn.models._local_gcn import LocalGCN, local_edges, without_loops
from torch_geometric_lgt.nn.models._local_norm import Processes, check_statistics
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._streaming import Part, Stream


class SGFormer(Backbone):
    r"""The model of `"SGFormer: Simplifying and Empowering Transformers for Large-Graph
    Representations" <https://arxiv.org/abs/2306.10759>`_: one layer of simple global attention
    beside a graph neural network,

    .. math::
        \mathbf{Z} = \beta \, \mathrm{SGFormerConv}(\mathbf{Z}^{(0)}) + (1 - \beta) \,
            \mathbf{Z}^{(0)}, \qquad
        \mathbf{Y} = f \left( (1 - \alpha) \, \mathbf{Z} + \alpha \, \mathrm{GNN}(\mathbf{Z}^{(0)},
            \mathbf{A}) \right).

    Differs from :class:`torch_geometric.nn.models.SGFormer`, which has row norms in the attention,
    fixed shares of the residual, its own network over the edges and logarithms of probabilities as
    output, and whose outputs depend on what else is in the batch. As in the authors' code,
    :math:`\mathbf{Z}` is normalised.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes that of the first input.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of attention layers. (default: :obj:`1`)
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        norm (str, optional): :obj:`"frobenius"` or :obj:`"row"`, see
            :class:`~torch_geometric_lgt.nn.SGFormerConv`. (default: :obj:`"frobenius"`)
        alpha (float, optional): :math:`\alpha`, the share of the local branch. (default:
            :obj:`0.5`)
        beta (float, optional): :math:`\beta`, the share of the attention. (default: :obj:`0.5`)
        aggregate (str, optional): :obj:`"add"`, as above, or :obj:`"cat"`, both branches side by
            side without :math:`\alpha`. (default: :obj:`"add"`)
        gnn (torch.nn.Module, optional): The local branch, from features and edges to ``[N,
            hidden_channels]``. (default: :obj:`None`, a :class:`torch_geometric.nn.GCN` with batch
            normalisation unless ``layer_norm=False``, whose sums over neighbours are products with
            a sparse matrix; a GCN made with ``normalize=False``, as that is, gets the weights of
            the edges, from the degrees in the whole graph for a batch that has them; a network of
            one's own gets weights of edges as its third argument)
        gnn_num_layers (int, optional): Number of layers of the default local branch. (default:
            :obj:`2`)
        gnn_dropout (float, optional): Its dropout probability. (default: :obj:`None`, that of the
            model)
        gnn_residual (bool, optional): If :obj:`True`, layers of the default local branch add their
            input, and its last one is normalised and activated as the others are, as in the
            authors' code for large graphs. (default: :obj:`False`)
        gnn_input (str, optional): What the local branch reads: :obj:`"hidden"`,
            :math:`\mathbf{Z}^{(0)}`, or :obj:`"input"`, the input itself, as in the authors' code.
            (default: :obj:`"hidden"`)
        layer_norm (bool, optional): If :obj:`False`, nothing is normalised, nor in the default
            local branch. (default: :obj:`True`)
        activate_layers (bool, optional): If :obj:`True`, attention layers end in the activation.
            (default: :obj:`False`)
        act (str, optional): The activation. (default: :obj:`"relu"`)
        dropout (float, optional): Dropout probability. (default: :obj:`0.0`)
        value_projection (bool, optional): If :obj:`False`, the values are the input of a layer.
            (default: :obj:`True`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or CSR; edges; batch vector
          *(optional)*; weights of the edges :math:`(E)` *(optional)*
        - **output:** scores :math:`(N, F_{out})`

    Raises:
        ValueError: If a size or share is out of range, or an argument of the layer is.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 1,
        heads: int = 1,
        norm: str = 'frobenius',
        alpha: float = 0.5,
        beta: float = 0.5,
        aggregate: str = 'add',
        gnn: torch.nn.Module | None = None,
        gnn_num_layers: int = 2,
        gnn_dropout: float | None = None,
        gnn_residual: bool = False,
        gnn_input: str = 'hidden',
        layer_norm: bool = True,
        activate_layers: bool = False,
        act: str = 'relu',
        dropout: float = 0.0,
        value_projection: bool = True,
    ) -> None:
        for name, share in (('alpha', alpha), ('beta', beta)):
            if not 0 <= share <= 1:
                raise ValueError(f"'{name}' must be from 0 to 1 (got {share})")
        if aggregate not in ('add', 'cat'):
            raise ValueError(f"'aggregate' must be 'add' or 'cat' (got {aggregate!r})")
        if gnn_input not in ('hidden', 'input'):
            raise ValueError(f"'gnn_input' must be 'hidden' or 'input' (got {gnn_input!r})")
        read_channels = hidden_channels * (2 if aggregate == 'cat' else 1)
        sizes = in_channels, hidden_channels, out_channels, num_layers

        def make_conv() -> SGFormerConv:
            return SGFormerConv(
                hidden_channels, hidden_channels, heads, norm, value_projection=value_projection
            )

        super().__init__(
            *sizes, make_conv, act, dropout, layer_norm, activate_layers, read_channels
        )
        self.alpha, self.aggregate, self.gnn_input, self.shares = (
            alpha,
            aggregate,
            gnn_input,
            (beta, 1 - beta),
        )
        width = in_channels if gnn_input == 'input' else hidden_channels
        if gnn is None:
            rate = dropout if gnn_dropout is None else gnn_dropout
            gnn = LocalGCN(
                width,
                hidden_channels,
                gnn_num_layers,
                hidden_channels,
                rate,
                layer_norm,
                gnn_residual,
            )
        self.gnn: Any = gnn
        self.weighted = isinstance(gnn, GCN) and not any(
            cast(Any, conv).normalize for conv in gnn.convs
        )

    @with_advice()
    def forward(
        self,
        x: Tensor,
        edge_index: Edges,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        degree: Degree = None,
        states: States = None,
        num_keys: int | None = None,
        process_group: ProcessGroup | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Runs the model. The weights of the edges are :obj:`edge_weight` ``[E]`` or the values of
        a sparse matrix. The other arguments after the star serve a part of a graph, see
        :meth:`DIFFormer.forward`; the default network over the edges uses :obj:`degree`. It
        normalises by sums of weights as :class:`torch_geometric.nn.GCNConv` does. In training with
        :obj:`process_group` its batch normalisation takes means and variances over the first
        :obj:`num_keys` nodes of all processes.

        Raises:
            ValueError: If an argument does not fit, there are weights and the network over the
                edges takes none, or with :obj:`process_group`, if :obj:`gnn` normalises over the
                nodes of one process.
        """
        check_devices(reference(self.lin_in).device, edge_index=edge_index)
        if process_group is not None:
            check_statistics(self.gnn)
        layers = self.layers(
            x, Around(None, batch, batch_size, degree, states, num_keys, process_group)
        )
        source = x if self.gnn_input == 'input' else layers[0]
        edges, shared = (
            self._local_edges(edge_index, x.size(0), degree, source.dtype, edge_weight),
            {},
        )
        if process_group is not None and isinstance(self.gnn, LocalGCN):
            shared = {'processes': Processes(process_group, num_keys)}
        return self.readout(layers, self.gnn(source, *edges, **shared))

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        local = cast(Tensor, local)
        z = (
            torch.cat([layers[-1], local], 1)
            if self.aggregate == 'cat'
            else (1 - self.alpha) * layers[-1] + self.alpha * local
        )
        return self.lin_out(z)

    def local_branch(self, stream: Stream, first: Tensor) -> Tensor:
        if not hasattr(self.gnn, 'inference_per_layer') or self.gnn.jk_mode is not None:
            raise ValueError(
                "'gnn' must be one of PyG's networks without jumping knowledge to be evaluated in "
                f'parts (got {self.gnn})'
            )
        if stream.edge_weight is not None and not self.weighted:
            raise ValueError(
                "'gnn' must be the default one or a GCN with normalize=False for edge weights in "
                f'parts (got {self.gnn})'
            )
        if _counts_degrees(self.gnn):
            raise ValueError(
                "'gnn' must be a GCN with normalize=False to be evaluated in parts: its layers "
                'would count the degrees of a part (got '
                f'{self.gnn}); the weights of GCN are then found for the whole graph'
            )
        degree = stream.degrees('local-degrees', self._counted) if self.weighted else None
        x = None if self.gnn_input == 'input' else first
        for layer in range(self.gnn.num_layers):
            x = self._local_layer(stream, layer, x, degree)
        return cast(Tensor, x)

    def _local_layer(
        self, stream: Stream, layer: int, x: Tensor | None, degree: Tensor | None
    ) -> Tensor:
        weight = reference(self.lin_in)

        def rows(part: Part) -> Tensor:
            edges = part.edge_index
            there = (stream.node_values('x', part.n_id) if x is None else x[part.n_id]).to(
                weight.device, weight.dtype
            )
            if degree is not None:
                edges, value = self._with_loops(part, weight.dtype)
                into = degree[part.n_id, 1], degree[part.nodes, 1]
                value = symmetric_weight(edges, there.size(0), part.size, weight.dtype, into, value)
                edges = _matrix(edges, value.squeeze(1), (part.size, there.size(0)))
            return self.gnn.inference_per_layer(layer, there, edges.to(weight.device), part.size)

        last = layer == self.gnn.num_layers - 1
        return stream.fill(
            f'local-{layer + 1}',
            self.gnn.out_channels if last else self.gnn.hidden_channels,
            weight.dtype,
            rows,
            True,
        )

    def _with_loops(self, part: Part, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        r"""The edges into a part, with one self loop for each of its nodes behind the others, and
        their weights."""
        value, loop = without_loops(part.edge_index, part.edge_weight, part.size, dtype)
        return torch.cat([part.edge_index, torch.arange(part.size).expand(2, -1)], 1), torch.cat(
            [value, loop]
        )

    def _counted(self, part: Part) -> tuple[Tensor, Tensor]:
        return self._with_loops(part, torch.double)

    def _local_edges(
        self,
        edge_index: Edges,
        num_nodes: int,
        degree: Degree,
        dtype: torch.dtype,
        edge_weight: Tensor | None = None,
    ) -> tuple[Any, ...]:
        r"""The edges of the local branch, with their weights if it has none of its own: found once
        for all of its layers."""
        if self.weighted:
            own = degree[1] if isinstance(degree, tuple) else degree
            edges = local_edges(edge_index, num_nodes, compute_dtype(dtype), own, edge_weight)
            return (edges,) if isinstance(self.gnn, LocalGCN) else edges.listed(dtype)
        edges, weight = weighted_edges(edge_index, num_nodes, num_nodes, edge_weight)
        if weight is not None and not getattr(self.gnn, 'supports_edge_weight', True):
            raise ValueError(
                f"'gnn' must take weights of edges where there are some (got {self.gnn}, which "
                'drops them); use a GCN'
            )
        is_list = isinstance(edge_index, SortedEdges) or (
            isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
        )
        as_list = is_list or edge_weight is not None
        # PyG normalises a sparse torch.Tensor with self loops as another graph
        if as_list or (
            isinstance(edge_index, Tensor) and (weight is not None or _counts_degrees(self.gnn))
        ):
            return (edges,) if weight is None else (edges, weight.to(dtype))
        return (edge_index,)  # a sparse matrix: PyG's layers are faster with it than with a list


def _counts_degrees(gnn: torch.nn.Module) -> bool:
    return any(isinstance(module, GCNConv) and module.normalize for module in gnn.modules())


def _matrix(edges: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    r"""The sparse matrix with targets as rows and sources as columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
        return torch.sparse_coo_tensor(
            edges.flip(0), value, shape, check_invariants=False
        ).to_sparse_csr()
