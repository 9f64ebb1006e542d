# N nodes (N_s source, N_t target), B graphs, H heads, C channels per head, D channels of a value, M features.
import torch
from torch import Tensor

from torch_geometric_lgt.functional._sides import Side, Values, compute_dtype, plain_side, plain_values
from torch_geometric_lgt.functional.attention_state import AttentionState, build_state, check_fit, read_state, sums_of_squares
from torch_geometric_lgt.functional.feature_maps import BIASED_KINDS
from torch_geometric_lgt.functional.kernel_attention import attend, kept, node_pair
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
    r"""Attention with the inner products of normalised queries and keys as weights, in :math:`O(N)`.

    Without :obj:`own` it is the simple kernel of DIFFormer,

    .. math::
        \mathbf{h}_i = \frac{\sum_j (1 + \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j) \, \mathbf{v}_j}
        {\sum_j (1 + \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j)},

    with the values :math:`\mathbf{v}_i` of the queries themselves that of SGFormer,

    .. math::
        \mathbf{h}_i = \frac{\mathbf{v}_i + \frac{1}{N} \sum_j \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j \, \mathbf{v}_j}
        {1 + \frac{1}{N} \sum_j \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j},

    over the :math:`N` nodes of the graph. A row whose denominator is 0 gives 0: with norms of rows this happens where every key of the
    graph is the opposite of the query.

    Args:
        q (torch.Tensor): Queries ``[N_t, H, C]``.
        k (torch.Tensor): Keys ``[N_s, H, C]``.
        v (torch.Tensor): Values ``[N_s, H, D]``.
        batch (torch.Tensor, optional): Graph ids, a pair (sources, targets) where they differ. (default: :obj:`None`, one graph)
        batch_size (int, optional): Number of graphs. (default: :obj:`None`)
        norm (str, optional): What each query and key is divided by: its own length (:obj:`"row"`) or that of all queries (keys) of its
            graph and head together (:obj:`"frobenius"`). (default: :obj:`"row"`)
        own (torch.Tensor, optional): Values of the queries ``[N_t, H, D]``. (default: :obj:`None`)

    Returns:
        ``[N_t, H, D]``

    Raises:
        ValueError: If a shape, :obj:`norm` or :obj:`batch` does not fit.
    """
    if own is not None and own.shape != (*q.shape[:2], v.size(-1)):
        raise ValueError(f"'own' must have shape {(*q.shape[:2], v.size(-1))} beside the queries and values (got {tuple(own.shape)})")
    kind = linear_kind(norm, own is not None)
    queries, keys = (plain_side(x, None, kind, None, 1.0, 1.0) for x in (q, k))
    sources, targets = node_pair(batch, k.size(0), q.size(0), batch_size, q.device)
    queries = queries if own is None else queries._replace(own=own.flatten(1))
    return linear_attend(queries, keys, plain_values(v, k), sources, targets, norm).unflatten(1, (q.size(1), -1))


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


def linear_attend(queries: Side, keys: Side, values: Values, sources: Segments, targets: Segments, norm: str) -> Tensor:
    r"""``[N_t, H * D]``, of sides with the map :meth:`linear_kind`."""
    if norm == 'row':
        return attend(queries, keys, values, sources, targets, _factor(queries, sources.sizes))
    if kept(keys, values, sources):
        return linear_read(linear_state(queries, keys, values, sources, targets, norm), queries, targets, norm)
    squares = sums_of_squares(keys, sources), sums_of_squares(queries, targets)
    return attend(queries, keys, values, sources, targets, _factor(queries, sources.sizes, *squares))


def linear_state(queries: Side, keys: Side, values: Values, sources: Segments, targets: Segments, norm: str) -> AttentionState:
    r"""The state of the keys, with the sum over the queries that the Frobenius norm needs."""
    state = build_state(keys, values, sources)
    if norm == 'frobenius':
        state.query_squares = sums_of_squares(queries, targets)
    return state


def linear_read(state: AttentionState, queries: Side, targets: Segments, norm: str) -> Tensor:
    r"""``[N_t, H * D]``: a state from :meth:`linear_state`, read by some of the queries."""
    check_fit(queries, targets, (*state.sums.shape[:3], state.rank, state.samples))
    factor = linear_factor(state, queries, norm)
    return read_state(state if factor is None else state.scaled(factor), queries, targets)


def linear_factor(state: AttentionState, queries: Side, norm: str) -> Tensor | None:
    r"""What the features of a state are multiplied by, ``[B, H, M]``."""
    return _factor(queries, state.count, *((state.squares, state.query_squares) if norm == 'frobenius' else ()))


def _factor(queries: Side, count: Tensor, *squares: Tensor) -> Tensor | None:
    r"""The inverse lengths, for queries with values of their own over the number of keys; the constant feature keeps its weight."""
    if not squares and queries.own is None:
        return None
    factor = queries.x.new_ones((count.size(0), queries.heads), dtype=compute_dtype(queries.x.dtype))
    for part in squares:
        factor = factor * torch.where(part == 0, torch.zeros_like(part), torch.where(part == 0, torch.ones_like(part), part).rsqrt())
    if queries.own is not None:
        factor = factor / count.clamp(min=1)[:, None]
    factor = factor[..., None].expand(-1, -1, queries.channels)
    return torch.cat([torch.ones_like(factor[..., :1]), factor], -1) if queries.kind in BIASED_KINDS else factor.contiguous()
