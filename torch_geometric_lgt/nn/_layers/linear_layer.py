# N nodes (N_s source, N_t target), E pairs, H heads.
import torch
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.kernel import node_pair
from torch_geometric_lgt.functional.attention.linear import (
    LinearForm,
    linear_attend,
    linear_kind,
    linear_read,
    linear_state,
)
from torch_geometric_lgt.functional.attention.scores import attention_scores
from torch_geometric_lgt.functional.attention.state import build_state
from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn._layers.attention_layer import AttentionLayer
from torch_geometric_lgt.nn._layers.linear_parts import is_plain, linear_part
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class LinearLayer(AttentionLayer):
    r"""Computes attention whose weights are inner products of normalised queries and keys. With
    :obj:`self_term` each query adds the value of its node."""

    self_term = False

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int,
        norm: str,
        value_projection: bool,
        bias: bool,
    ) -> None:
        super().__init__(in_channels, out_channels, heads, True, value_projection, bias)
        self.norm, self.kind = norm, linear_kind(norm, self.self_term)

    def _check_targets(self, x: Tensor) -> None:
        super()._check_targets(x)
        if self.self_term:
            self._check_sources(x)

    def _kernel_input(self, x: Tensor, lin: torch.nn.Module) -> KernelInput:
        x, weight, bias = linear_part(lin, x)
        return KernelInput(x=x, heads=self.heads, kind=self.kind, weight=weight, bias=bias)

    def _form(self, x_src: Tensor, x_dst: Tensor, value: Tensor | None = None) -> LinearForm:
        queries = self._kernel_input(x_dst, self.lin_query)
        keys = self._kernel_input(x_src, self.lin_key)
        values = self._values(x_src) if value is None else ValueInput(x=value)
        if not self.self_term:
            return LinearForm(queries, keys, values, None, self.norm)
        self_values = values if x_src is x_dst else self._values(x_dst)
        return LinearForm(queries, keys, values, self_values, self.norm)

    def _query_form(self, x: Tensor) -> LinearForm:
        r"""Describes the queries of :obj:`x` that read a state, with the values of their nodes if
        the layer adds these; no key is evaluated."""
        queries = self._kernel_input(x, self.lin_query)
        values = (
            self._values(x)
            if self.self_term
            else ValueInput(x=queries.x, weight=queries.weight, bias=queries.bias)
        )
        return LinearForm(queries, queries, values, values if self.self_term else None, self.norm)

    def attention_state(
        self, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> AttentionState:
        r"""Builds the state of the nodes :obj:`x`, which can be merged, reduced over processes,
        saved, and read by :meth:`forward`. Frobenius norms use the nodes as keys and as queries.

        Args:
            x (torch.Tensor): The node features ``[N, F]``.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs in all parts of the data. (default:
                :obj:`None`)
        """
        self._check_sources(x)
        nodes = segments(batch, x.size(0), batch_size, x.device)
        if self.norm == 'row':
            keys = self._kernel_input(x, self.lin_key)
            return build_state(keys, self._values(x), nodes)
        self._check_targets(x)
        return linear_state(self._form(x, x), nodes, nodes)

    def _attend(
        self,
        x: Tensor | PairTensor,
        batch: Batch,
        batch_size: int | None,
        state: AttentionState | None,
        value: Tensor | None = None,
    ) -> Tensor:
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        self._check_targets(x_dst)
        if state is not None:
            targets = self._targets(state, x_src, x_dst, batch, batch_size)
            return linear_read(self._query_form(x_dst), state, targets)
        self._check_sources(x_src)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), batch_size, x_dst.device)
        reuses_value = self.norm == 'row' or not is_plain(self.lin_value)
        form = self._form(x_src, x_dst, value if reuses_value else None)
        return linear_attend(form, sources, targets)

    def attention_scores(
        self, x: Tensor | PairTensor, edge_index: Adj, batch: Batch = None
    ) -> Tensor:
        r"""Returns the weight ``[E, H]`` that target :obj:`edge_index[1]` puts on source
        :obj:`edge_index[0]`, 0 across graphs. A self loop includes the term that a layer adds for
        the node itself."""
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        self._check_targets(x_dst)
        self._check_sources(x_src)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), None, x_dst.device)
        pairs = weighted_edges(edge_index, x_src.size(0), x_dst.size(0))[0]
        form = self._form(x_src, x_dst)
        state = linear_state(form, sources, targets)
        queries = form.with_values()[0]
        return attention_scores(
            queries, form.keys, state, pairs, sources, targets, form.state_factor(state)
        )
