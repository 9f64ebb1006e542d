# N nodes, E pairs, H heads, C channels per head, D channels of a value, M features, R rank of the mask.
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_lgt.functional import _ops
from torch_geometric_lgt.functional._loops import Queries, scaled
from torch_geometric_lgt.functional._sides import Affine, Side, Values, plain_side, plain_values, rows, split
from torch_geometric_lgt.functional.attention_state import AttentionState, check_fit
from torch_geometric_lgt.functional.feature_maps import log_features
from torch_geometric_lgt.functional.segment import Segments, node_to_graph, segments


def kernel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    feature_map: str = 'softmax',
    projection: Tensor | None = None,
    batch: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
    batch_size: int | None = None,
    *,
    scale: float = 1.0,
    power: float = 3.0,
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    key_noise: Tensor | None = None,
) -> Tensor:
    r"""Kernelised attention of every node to all nodes of its graph, in :math:`O(N)` (Eq. 6 of MGFormer; with a separable mask, Eq. 12):

    .. math::
        \mathbf{h}_i = \frac{\sum_r a_r(i) \, \phi(\mathbf{q}_i)^{\top} \sum_j b_r(j) \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}}
        {\sum_r a_r(i) \, \phi(\mathbf{q}_i)^{\top} \sum_j b_r(j) \phi(\mathbf{k}_j)}

    Differs from the paper: nothing is added to :math:`\phi` or to the denominator; a row whose denominator is 0 gives 0.

    With log-weights :math:`g_{jk}` of the keys it is the mean of :math:`K` such attentions, each with :math:`b(j) = \exp(g_{jk})`: for
    Gumbel noise divided by a temperature the kernelised Gumbel-softmax of `NodeFormer <https://arxiv.org/abs/2306.08385>`_.

    Args:
        q (torch.Tensor): Queries ``[N_t, H, C]``.
        k (torch.Tensor): Keys ``[N_s, H, C]``.
        v (torch.Tensor): Values ``[N_s, H, D]``.
        feature_map (str, optional): The kind of :math:`\phi`: :obj:`"softmax"`, :obj:`"fourier"`, :obj:`"elu"`, :obj:`"relu"`,
            :obj:`"focused"`, or :obj:`"logits"` and :obj:`"values"` if :obj:`q` and :obj:`k` are :math:`\log \phi` or :math:`\phi` already.
            (default: :obj:`"softmax"`)
        projection (torch.Tensor, optional): ``[M, C]``, for :obj:`"softmax"` and :obj:`"fourier"`. (default: :obj:`None`)
        batch (torch.Tensor, optional): Graph ids, a pair (sources, targets) where they differ. (default: :obj:`None`, one graph)
        batch_size (int, optional): Number of graphs. (default: :obj:`None`)
        scale (float, optional): Factor of :obj:`q` and :obj:`k` before :math:`\phi`. (default: :obj:`1.0`)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)
        query_mask (torch.Tensor, optional): :math:`a_r(i)`, ``[N_t, R]``. (default: :obj:`None`)
        key_mask (torch.Tensor, optional): :math:`b_r(j)`, ``[N_s, R]``. (default: :obj:`None`)
        key_noise (torch.Tensor, optional): :math:`g_{jk}`, ``[N_s, H, K]``, a constant without gradient; for :obj:`"softmax"` and
            :obj:`"logits"` without a mask. (default: :obj:`None`)

    Returns:
        ``[N_t, H, D]``

    Raises:
        ValueError: If :obj:`feature_map` is unknown, or :obj:`projection`, :obj:`batch` or :obj:`key_noise` does not fit.
    """
    sources, targets = node_pair(batch, k.size(0), q.size(0), batch_size, q.device)
    keys = plain_side(k, key_mask, feature_map, projection, scale, power, noise=key_noise)
    queries = plain_side(q, query_mask, feature_map, projection, scale, power, keys.samples)
    return attend(queries, keys, plain_values(v, k), sources, targets).unflatten(1, (q.size(1), -1))


def node_pair(
    batch: Tensor | tuple[Tensor | None, Tensor | None] | None, num_src: int, num_dst: int, batch_size: int | None, device: torch.device
) -> tuple[Segments, Segments]:
    r"""The segments of sources and targets; one vector serves both."""
    if not isinstance(batch, tuple):
        nodes = segments(batch, num_src, batch_size, device)
        if batch is not None or num_src == num_dst:
            return nodes, nodes if num_src == num_dst else segments(batch, num_dst, batch_size, device)
        return nodes, segments(None, num_dst, batch_size, device)
    if batch_size is None and batch[0] is not None and batch[1] is not None and not torch.compiler.is_compiling():
        batch_size = max((int(b.max()) + 1 for b in batch if b is not None and b.numel() > 0), default=0)
    return segments(batch[0], num_src, batch_size, device), segments(batch[1], num_dst, batch_size, device)


def attend(queries: Side, keys: Side, values: Values, sources: Segments, targets: Segments, factor: Tensor | None = None) -> Tensor:
    r"""``[N_t, H * D]``: the keys' state, its features multiplied by :obj:`factor` ``[B, H, M]``, read by the queries. States that need
    more room than the keys' inputs are not kept."""
    check_fit(queries, targets, (sources.sizes.size(0), keys.heads, keys.num_features, keys.rank, keys.samples))
    keep = kept(keys, values, sources)
    shared = keys.aligned()._replace(x=None) if keys.x is queries.x else keys.aligned()
    return _ops.call(_ops.attend, *queries.aligned(), *targets, *shared, *values.aligned(keys), *sources, factor, keep)[0]


def kept(keys: Side, values: Values, nodes: Segments) -> bool:
    r"""Whether the states of all graphs need no more room than the keys' inputs."""
    width = keys.rank * (values.channels(keys) + 1)
    return nodes.sizes.size(0) * keys.heads * keys.num_features * width <= keys.x.numel()


def attention_scores(
    queries: Side,
    keys: Side,
    state: AttentionState,
    pairs: Tensor,
    sources: Segments,
    targets: Segments,
    factor: Tensor | None = None,
) -> Tensor:
    r"""The weight ``[E, H]`` that target ``pairs[1]`` puts on source ``pairs[0]``, as applied: 0 across graphs. Linear parts are evaluated
    once for each node; features of pairs are computed again in the backward pass."""
    own = 0 if queries.own is None else 1
    itself = own if keys.x is queries.x else 0
    graph_dst, graph_src = node_to_graph(*targets), node_to_graph(*sources)
    (source, key_of), (target, query_of) = (nodes.unique(return_inverse=True) for nodes in pairs)
    q, k = (_evaluated(side, nodes) for side, nodes in ((queries, target), (keys, source)))

    def score(i: Tensor, j: Tensor) -> Tensor:
        graph = graph_dst[target[i]]
        maximum = state.maximum[graph]
        phi_q = Queries(q).features(i, maximum)[2][:, :, 0]
        phi_q = phi_q if factor is None else phi_q * factor[graph]
        key = split(k.x[j], j.numel(), k.heads)
        log, value = log_features(k.kind, key, k.projection, k.power, key.square().sum(-1, keepdim=True))
        phi_k = scaled(log, value, maximum[:, :, None])[:, :, 0]
        a, b = (phi_q.new_ones(1, 1, 1) if side.mask is None else side.mask[at][:, None, :] for side, at in ((q, i), (k, j)))
        total = (torch.einsum('ehm,ehmr->ehr', phi_q, state.denominator[graph]) * a).sum(-1) + own
        weight = (phi_q * phi_k).sum(-1) * (a * b).sum(-1) + itself * (target[i] == source[j])[:, None]
        share = torch.where(total == 0, torch.zeros_like(total), weight / torch.where(total == 0, torch.ones_like(total), total))
        return share * (graph == graph_src[source[j]])[:, None]

    run = partial(checkpoint, score, use_reentrant=False, preserve_rng_state=False) if torch.is_grad_enabled() else score
    scores = [run(i, j) for i, j in zip(query_of.split(rows(q)), key_of.split(rows(q)), strict=True)]
    return torch.cat(scores) if pairs.size(1) > 0 else queries.x.new_zeros((0, queries.heads))


def _evaluated(side: Side, nodes: Tensor) -> Side:
    r"""The side of some nodes, its linear part evaluated."""
    x = Affine(side.x, (side.weight, side.bias, side.scale))(nodes)[1]
    return side._replace(x=x, weight=None, bias=None, scale=1.0, mask=None if side.mask is None else side.mask[nodes], own=None)
