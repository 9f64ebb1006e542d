# N nodes (N_s source, N_t target), B graphs, H heads, C channels per head, D channels of a value, M
# features.
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from torch_geometric_lgt.functional.attention.gram import gram_read, gram_state
from torch_geometric_lgt.functional.attention.kernel import attend, check_alike, node_pair
from torch_geometric_lgt.functional.attention.state import (
    AttentionState,
    build_state,
    check_readable,
    read_state,
    sums_of_squares,
)
from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput, value_input
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import Segments

NORMS = ('row', 'frobenius')


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
    batch_size: int | None = None,
    *,
    norm: str = 'row',
    own: Tensor | None = None,
) -> Tensor:
    r"""Attention with the inner products of normalised queries and keys as weights, in
    :math:`O(N)`.

    Without :obj:`own` it is the simple kernel of DIFFormer,

    .. math::
        \mathbf{h}_i = \frac{\sum_j (1 + \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j) \,
            \mathbf{v}_j}
        {\sum_j (1 + \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j)},

    with the values :math:`\mathbf{v}_i` of the queries themselves that of SGFormer,

    .. math::
        \mathbf{h}_i = \frac{\mathbf{v}_i + \frac{1}{N} \sum_j \tilde{\mathbf{q}}_i^{\top}
            \tilde{\mathbf{k}}_j \, \mathbf{v}_j}
        {1 + \frac{1}{N} \sum_j \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j},

    over the :math:`N` nodes of the graph. A row whose denominator is 0 up to rounding errors gives
    0: with norms of rows this happens where every key of the graph is the opposite of the query,
    with Frobenius norms in graphs of one node.

    Args:
        q (torch.Tensor): Queries ``[N_t, H, C]``.
        k (torch.Tensor): Keys ``[N_s, H, C]``.
        v (torch.Tensor): ValueInput ``[N_s, H, D]``.
        batch (torch.Tensor, optional): Graph ids, a pair (sources, targets) where they differ.
            (default: :obj:`None`, one graph)
        batch_size (int, optional): Number of graphs. (default: :obj:`None`)
        norm (str, optional): What each query and key is divided by: its own length (:obj:`"row"`)
            or that of all queries (keys) of its graph and head together (:obj:`"frobenius"`).
            (default: :obj:`"row"`)
        own (torch.Tensor, optional): ValueInput of the queries ``[N_t, H, D]``. (default:
            :obj:`None`)

    Returns:
        ``[N_t, H, D]``

    Raises:
        ValueError: If a shape, dtype, device, :obj:`norm` or :obj:`batch` does not fit.
    """
    if own is not None and own.shape != (*q.shape[:2], v.size(-1)):
        raise ValueError(
            f"'own' must have shape {(*q.shape[:2], v.size(-1))} beside the queries and values "
            f'(got {tuple(own.shape)})'
        )
    kind = linear_kind(norm, own is not None)
    queries, keys = (KernelInput(x=x.flatten(1), heads=q.size(1), kind=kind) for x in (q, k))
    check_alike(q, k, v)
    sources, targets = node_pair(batch, k.size(0), q.size(0), batch_size, q.device)
    form = LinearForm(
        queries,
        keys,
        value_input(v, k),
        None if own is None else ValueInput(x=own.flatten(1)),
        norm,
    )
    return linear_attend(form, sources, targets).unflatten(1, (q.size(1), -1))


class LinearForm(NamedTuple):
    r"""Queries, keys, values, the values that each query adds with weight 1, and the norm."""

    queries: KernelInput
    keys: KernelInput
    values: ValueInput
    own: ValueInput | None
    norm: str

    def affine(self, nodes: Segments) -> bool:
        r"""Tells whether keys and values are linear parts of one input whose products are cheaper
        and need no more room than the input. These products are in double precision, which must be
        wider than that of the input. An exported program, for any number of nodes, evaluates keys
        and values."""
        keys, width = self.keys, self.keys.x.size(1)
        if (
            keys.weight is None
            or self.values.weight is None
            or self.values.x is not keys.x
            or torch.compiler.is_exporting()
        ):
            return False
        if (
            keys.x.dtype == torch.double or keys.x.device.type == 'mps'
        ):  # which has no double precision
            return False
        columns = max(
            width + 1, keys.heads * max(keys.channels(), self.values.channels(keys.heads))
        )
        return (
            nodes.sizes.size(0) * width * columns <= keys.x.numel()
            and width <= 3 * keys.heads * keys.channels()
        )

    def with_values(self) -> tuple[KernelInput, ValueInput]:
        r"""The queries with values of their own, evaluated, and the values, evaluated too where
        they are the same."""
        if self.own is None:
            return self.queries, self.values
        own = (
            self.own.x
            if self.own.weight is None
            else linear(self.own.x, self.own.weight, self.own.bias)
        )
        shared = self.own is self.values and self.queries.x is self.keys.x
        return replace(self.queries, self_value=own), ValueInput(x=own) if shared else self.values

    def squares(self, sources: Segments, targets: Segments) -> tuple[Tensor, Tensor]:
        return sums_of_squares(self.keys, sources), sums_of_squares(self.queries, targets)

    def state_factor(self, state: AttentionState) -> Tensor | None:
        return self.factor(
            state.count, *((state.squares, state.query_squares) if self.norm == 'frobenius' else ())
        )

    def factor(self, count: Tensor, *squares: Tensor) -> Tensor | None:
        r"""What the features are multiplied by, ``[B, H, M]``: the inverse lengths, for queries
        with values of their own over the number of keys; the constant feature keeps its weight."""
        if not squares and self.own is None:
            return None
        factor = self.queries.x.new_ones(
            (count.size(0), self.queries.heads), dtype=compute_dtype(self.queries.x.dtype)
        )
        for part in squares:
            factor = factor * part.masked_fill(part == 0, torch.inf).rsqrt()
        if self.own is not None:
            factor = factor / count.clamp(min=1)[:, None]
        factor = factor[..., None].expand(-1, -1, self.queries.channels())
        return (
            torch.cat([torch.ones_like(factor[..., :1]), factor], -1)
            if self.own is None
            else factor.contiguous()
        )


def linear_kind(norm: str, own: bool) -> str:
    r"""The feature map of the keys and queries.

    Raises:
        ValueError: If :obj:`norm` is unknown.
    """
    if norm not in NORMS:
        raise ValueError(f"'norm' must be one of {NORMS} (got {norm!r})")
    if own:
        return 'unit' if norm == 'row' else 'values'
    return 'biased_unit' if norm == 'row' else 'biased'


def linear_attend(form: LinearForm, sources: Segments, targets: Segments) -> Tensor:
    r"""``[N_t, H * D]``."""
    if form.norm == 'frobenius' and form.affine(sources):
        return _read(
            form, gram_state(form.queries, form.keys, form.values, sources, targets), targets
        )
    queries, values = form.with_values()
    squares = form.squares(sources, targets) if form.norm == 'frobenius' else ()
    return attend(
        queries, form.keys, values, sources, targets, form.factor(sources.sizes, *squares)
    )


def linear_state(form: LinearForm, sources: Segments, targets: Segments) -> AttentionState:
    r"""The state of the keys, with the sum over the queries that the Frobenius norm needs."""
    if form.norm == 'row':
        return build_state(form.keys, form.values, sources)
    if form.affine(sources):
        return gram_state(form.queries, form.keys, form.values, sources, targets).to(
            compute_dtype(form.keys.x.dtype)
        )
    state = build_state(form.keys, form.values, sources)
    state.query_squares = sums_of_squares(form.queries, targets)
    return state


def linear_read(form: LinearForm, state: AttentionState, targets: Segments) -> Tensor:
    r"""``[N_t, H * D]``: a state from :meth:`linear_state`, read by some of the queries."""
    check_readable(state, form.queries, targets)
    return _read(form, state, targets)


def _read(form: LinearForm, state: AttentionState, targets: Segments) -> Tensor:
    factor = form.state_factor(state)
    state = state if factor is None else state.scaled(factor)
    if form.norm == 'frobenius' and form.affine(targets):
        return gram_read(state, form.queries, form.own, targets)
    return read_state(state.to(compute_dtype(form.queries.x.dtype)), form.with_values()[0], targets)
