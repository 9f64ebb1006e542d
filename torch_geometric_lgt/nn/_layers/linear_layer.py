# N nodes (N_s source, N_t target), E pairs, H heads.
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.kernel import node_pair
from torch_geometric_lgt.functional.attention.linear import (
    LinearForm,
    LinearQueries,
    linear_attend,
    linear_kind,
    linear_read,
    linear_state,
)
from torch_geometric_lgt.functional.attention.scores import attention_scores
from torch_geometric_lgt.functional.attention.state import build_state
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn._layers.attention_layer import AttentionLayer, position_pair
from torch_geometric_lgt.nn._layers.input_checks import feature_pair
from torch_geometric_lgt.nn._layers.linear_parts import is_exact_linear, linear_part
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class LinearLayer(AttentionLayer):
    r"""Computes attention with inner products of normalised queries and keys as weights: the base
    class of two layers.

    The class attribute :obj:`self_term` tells whether the output of a node also contains the node's
    own value with weight 1. The inner products are then divided by the number of keys. The argument
    :obj:`norm` is :obj:`"row"` (length of each vector) or :obj:`"frobenius"` (norm of all queries
    or keys of a graph and head). Further keyword arguments are those of
    :class:`AttentionLayer`."""

    self_term = False

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        *,
        norm: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, **kwargs)
        self.norm = norm

    def __setattr__(self, name: str, value: Any) -> None:
        r"""Sets an attribute, and with :attr:`norm` the feature map of queries and keys."""
        if name == 'norm':
            self.kind = linear_kind(value, self.self_term)
        super().__setattr__(name, value)

    def _check_targets(self, x: Tensor) -> None:
        super()._check_targets(x)
        if self.self_term:
            self._check_sources(x)

    def _kernel_input(self, x: Tensor, lin: torch.nn.Module) -> KernelInput:
        part = linear_part(lin, x)
        return KernelInput(
            x=part.x, heads=self.heads, kind=self.kind, weight=part.weight, bias=part.bias
        )

    def _form(
        self,
        x_src: Tensor,
        x_dst: Tensor,
        value: Tensor | None = None,
        position: Tensor | PairTensor | None = None,
    ) -> LinearForm:
        p_src, p_dst = position_pair(position)
        queries = self._kernel_input(self._key_input(x_dst, p_dst), self.lin_query)
        keys = self._kernel_input(self._key_input(x_src, p_src), self.lin_key)
        values = self._value_input(x_src) if value is None else LinearInput(x=value)
        self_values = None
        if self.self_term:
            self_values = values if x_src is x_dst else self._value_input(x_dst)
        return LinearForm(LinearQueries(queries, self_values, self.norm), keys, values)

    def _queries(self, x: Tensor, position: Tensor | PairTensor | None) -> LinearQueries:
        r"""Describes the queries of :obj:`x` ``[N_t, F]``, or of their positions, that read a state
        (sums over all keys of each graph). With :obj:`self_term` they add the values of the same
        nodes."""
        p_dst = position_pair(position)[1]
        queries = self._kernel_input(self._key_input(x, p_dst), self.lin_query)
        self_values = self._value_input(x) if self.self_term else None
        return LinearQueries(queries, self_values, self.norm)

    def attention_state(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        position: Tensor | None = None,
    ) -> AttentionState:
        r"""Builds the state of each graph: the sums over the keys of all its nodes, whose features
        are :obj:`x`.

        States of parts of the data can be merged, summed over processes and saved, and
        :meth:`forward` takes a state in place of keys. With ``norm='frobenius'`` the state also has
        the squared norms of all keys and queries of :obj:`x`.

        Args:
            x (torch.Tensor): The node features ``[N, F]``.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs in all parts of the data. (default:
                :obj:`None`, one more than the largest graph id)
            position (torch.Tensor, optional): The positions ``[N, position_channels]``. (default:
                :obj:`None`)

        Returns:
            AttentionState: Sums ``[B, H, M, D + 1]`` for :math:`B` graphs, :math:`M` features of a
            key and :math:`D` channels of a value.

        Raises:
            ValueError: If the layer has ``norm='frobenius'`` and two sizes of sources and targets,
                of which :obj:`x` cannot have both. If a shape, dtype or device does not fit.
        """
        self._check_sources(x)
        nodes = segments(batch, x.size(0), batch_size, x.device)
        if self.norm == 'row':
            keys = self._kernel_input(self._key_input(x, position), self.lin_key)
            return build_state(keys, self._value_input(x), nodes)
        if self.source_channels != self.target_channels and self.position_channels == 0:
            raise ValueError(
                "'norm' must be 'row' for an attention state of a layer with sources and targets "
                f"of two sizes, {self.in_channels}: with 'frobenius' the state has the norms of "
                'the queries of the same nodes'
            )
        self._check_targets(x)
        return linear_state(self._form(x, x, position=position), nodes, nodes)

    def _attend(
        self,
        x: Tensor | PairTensor,
        batch: Batch,
        batch_size: int | None,
        state: AttentionState | None,
        *,
        value: Tensor | None = None,
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        x_src, x_dst = feature_pair(x)
        self._check_targets(x_dst)
        if state is not None:
            targets = self._targets(state, x_src, x_dst, batch, batch_size)
            return linear_read(self._queries(x_dst, position), state, targets)
        self._check_sources(x_src)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), batch_size, x_dst.device)
        reuses_value = self.norm == 'row' or not is_exact_linear(self.lin_value)
        form = self._form(x_src, x_dst, value if reuses_value else None, position)
        return linear_attend(form, sources, targets)

    def attention_scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj,
        batch: Batch = None,
        *,
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the attention weight ``[P, H]`` of each pair of nodes: the share of source
        ``edge_index[0]`` in the output of target ``edge_index[1]``.

        The pairs :obj:`edge_index` ``[2, P]`` need not be edges. The weight of a pair in different
        graphs is 0. If the layer adds each node's own value, a self loop includes the weight of
        this term. The other arguments are those of :meth:`forward`."""
        x_src, x_dst = feature_pair(x)
        self._check_targets(x_dst)
        self._check_sources(x_src)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), None, x_dst.device)
        pairs = weighted_edges(edge_index, x_src.size(0), x_dst.size(0))[0]
        form = self._form(x_src, x_dst, position=position)
        state = linear_state(form, sources, targets)
        queries = form.with_values()[0]
        return attention_scores(
            queries, form.keys, state, pairs, sources, targets, form.queries.state_factor(state)
        )
