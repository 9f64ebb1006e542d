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
from torch_geometric_lgt.nn._attention_layer import AttentionLayer
from torch_geometric_lgt.nn._parts import is_plain, linear_part
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class LinearLayer(AttentionLayer):
    r"""An attention layer whose weights are inner products of normalised queries and keys; with
    :obj:`self_term` each query adds its own value."""

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

    def _side(self, lin: torch.nn.Module, x: Tensor) -> KernelInput:
        x, weight, bias = linear_part(lin, x)
        return KernelInput(x=x, heads=self.heads, kind=self.kind, weight=weight, bias=bias)

    def _form(self, x_src: Tensor, x_dst: Tensor, value: Tensor | None = None) -> LinearForm:
        queries, keys = self._side(self.lin_query, x_dst), self._side(self.lin_key, x_src)
        values = self._values(x_src) if value is None else ValueInput(x=value)
        own = None if not self.self_term else values if x_src is x_dst else self._values(x_dst)
        return LinearForm(queries, keys, values, own, self.norm)

    def _reading(self, x: Tensor) -> LinearForm:
        r"""The queries of :obj:`x`, with values of their own if the layer has some, to read a
        state: no key is evaluated."""
        queries = self._side(self.lin_query, x)
        values = (
            self._values(x)
            if self.self_term
            else ValueInput(x=queries.x, weight=queries.weight, bias=queries.bias)
        )
        return LinearForm(queries, queries, values, values if self.self_term else None, self.norm)

    def attention_state(
        self, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> AttentionState:
        r"""The state of the nodes :obj:`x`, as keys and for Frobenius norms as queries, to be
        merged, reduced over processes, saved, or read by :meth:`forward`. Parts of one data set
        need the same :obj:`batch_size`, the number of graphs in all parts."""
        self._check_sources(x)
        nodes = segments(batch, x.size(0), batch_size, x.device)
        if self.norm == 'row':
            keys = self._side(self.lin_key, x)
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
            return linear_read(
                self._reading(x_dst), state, self._targets(state, x_src, x_dst, batch, batch_size)
            )
        self._check_sources(x_src)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), batch_size, x_dst.device)
        return linear_attend(
            self._form(
                x_src, x_dst, value if self.norm == 'row' or not is_plain(self.lin_value) else None
            ),
            sources,
            targets,
        )

    def attention_scores(
        self, x: Tensor | PairTensor, edge_index: Adj, batch: Batch = None
    ) -> Tensor:
        r"""The weight ``[E, H]`` that target :obj:`edge_index[1]` puts on source
        :obj:`edge_index[0]`, with :obj:`self_term` that of a node on itself included where both are
        the same; 0 across graphs."""
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        self._check_targets(x_dst)
        self._check_sources(x_src)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), None, x_dst.device)
        pairs, form = (
            weighted_edges(edge_index, x_src.size(0), x_dst.size(0))[0],
            self._form(x_src, x_dst),
        )
        state = linear_state(form, sources, targets)
        queries = form.with_values()[0]
        return attention_scores(
            queries, form.keys, state, pairs, sources, targets, form.state_factor(state)
        )
