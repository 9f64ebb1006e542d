# N nodes, E pairs, H heads, C channels per head, D channels of a value, M features, R rank of the
# mask.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine import operators
from torch_geometric_lgt.functional._engine.dispatch import is_fused
from torch_geometric_lgt.functional.attention.state import check_fit
from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput, kernel_input, value_input
from torch_geometric_lgt.functional.segment import Segments, check_pair, segments
from torch_geometric_lgt.functional.tracing import may_read_values


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
    r"""Kernelised attention of every node to all nodes of its graph, in :math:`O(N)` (Eq. 6 of
    MGFormer; with a separable mask, Eq. 12):

    .. math::
        \mathbf{h}_i = \frac{\sum_r a_r(i) \, \phi(\mathbf{q}_i)^{\top} \sum_j b_r(j)
            \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}}
        {\sum_r a_r(i) \, \phi(\mathbf{q}_i)^{\top} \sum_j b_r(j) \phi(\mathbf{k}_j)}

    Differs from the paper: nothing is added to :math:`\phi` or to the denominator; a row whose
    denominator is 0 gives 0.

    With log-weights :math:`g_{jk}` of the keys it is the mean of :math:`K` such attentions, each
    with :math:`b(j) = \exp(g_{jk})`: for Gumbel noise divided by a temperature the kernelised
    Gumbel-softmax of `NodeFormer <https://arxiv.org/abs/2306.08385>`_.

    Args:
        q (torch.Tensor): Queries ``[N_t, H, C]``.
        k (torch.Tensor): Keys ``[N_s, H, C]``.
        v (torch.Tensor): ValueInput ``[N_s, H, D]``.
        feature_map (str, optional): The kind of :math:`\phi`: :obj:`"softmax"`, :obj:`"fourier"`,
            :obj:`"elu"`, :obj:`"relu"`, :obj:`"focused"`, or :obj:`"logits"` and :obj:`"values"` if
            :obj:`q` and :obj:`k` are :math:`\log \phi` or :math:`\phi` already. (default:
            :obj:`"softmax"`)
        projection (torch.Tensor, optional): ``[M, C]``, for :obj:`"softmax"` and :obj:`"fourier"`.
            (default: :obj:`None`)
        batch (torch.Tensor, optional): Graph ids, a pair (sources, targets) where they differ.
            (default: :obj:`None`, one graph)
        batch_size (int, optional): Number of graphs. (default: :obj:`None`)
        scale (float, optional): Factor of :obj:`q` and :obj:`k` before :math:`\phi`. (default:
            :obj:`1.0`)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)
        query_mask (torch.Tensor, optional): :math:`a_r(i)`, ``[N_t, R]``. (default: :obj:`None`)
        key_mask (torch.Tensor, optional): :math:`b_r(j)`, ``[N_s, R]``. (default: :obj:`None`)
        key_noise (torch.Tensor, optional): :math:`g_{jk}`, ``[N_s, H, K]``, a constant without
            gradient; for :obj:`"softmax"` and :obj:`"logits"` without a mask. (default:
            :obj:`None`)

    Returns:
        ``[N_t, H, D]``

    Raises:
        ValueError: If :obj:`feature_map` is unknown, :obj:`k` or :obj:`v` is of another dtype or
            device than :obj:`q`, or :obj:`projection`, :obj:`batch` or :obj:`key_noise` does not
            fit.
    """
    check_alike(q, k, v)
    sources, targets = node_pair(batch, k.size(0), q.size(0), batch_size, q.device)
    keys = kernel_input(k, key_mask, feature_map, projection, scale, power, noise=key_noise)
    queries = kernel_input(q, query_mask, feature_map, projection, scale, power, keys.samples)
    return attend(queries, keys, value_input(v, k), sources, targets).unflatten(1, (q.size(1), -1))


def check_alike(q: Tensor, k: Tensor, v: Tensor) -> None:
    r"""Raises a ValueError unless queries, keys and values fit each other."""
    for name, other in (('k', k), ('v', v)):
        if (other.dtype, other.device) != (q.dtype, q.device):
            raise ValueError(
                f"'{name}' must be as 'q' of {q.dtype} on {q.device} (got {other.dtype} on "
                f'{other.device}); use {name}.to(q)'
            )
    if q.dim() == k.dim() and q.shape[1:] != k.shape[1:]:
        raise ValueError(
            f"'k' must have the heads and channels of 'q', {tuple(q.shape[1:])} (got "
            f'{tuple(k.shape[1:])})'
        )


def node_pair(
    batch: Tensor | tuple[Tensor | None, Tensor | None] | None,
    num_src: int,
    num_dst: int,
    batch_size: int | None,
    device: torch.device,
) -> tuple[Segments, Segments]:
    r"""The segments of sources and targets; one vector serves both."""
    if not isinstance(batch, tuple):
        nodes = segments(batch, num_src, batch_size, device)
        return nodes, nodes if num_src == num_dst else segments(batch, num_dst, batch_size, device)
    batch = check_pair(batch)
    if batch_size is None and batch[0] is not None and batch[1] is not None and may_read_values():
        batch_size = max(
            (int(b.max()) + 1 for b in batch if b is not None and b.numel() > 0), default=0
        )
    return segments(batch[0], num_src, batch_size, device), segments(
        batch[1], num_dst, batch_size, device
    )


def attend(
    queries: KernelInput,
    keys: KernelInput,
    values: ValueInput,
    sources: Segments,
    targets: Segments,
    factor: Tensor | None = None,
) -> Tensor:
    r"""``[N_t, H * D]``: the keys' state, its features multiplied by :obj:`factor` ``[B, H, M]``,
    read by the queries. States that need more room than the keys' inputs are not kept."""
    check_fit(
        queries,
        targets,
        (sources.sizes.size(0), keys.heads, keys.num_features(), keys.rank(), keys.samples),
    )
    store = stores_states(keys, values, sources)
    arguments = operators.AttendArguments(
        queries=queries.aligned(),
        targets=targets,
        keys=keys.aligned(),
        values=values.aligned(),
        sources=sources,
        factor=factor,
        store_states=store,
    )
    return operators.attend(arguments)[0]


def folded(queries: KernelInput) -> KernelInput:
    r"""Returns the queries with their projection multiplied into their linear part, where that
    takes less work: the norm of a query cancels, so that its features need one product instead of
    two."""
    x, channels = queries.x, queries.channels()
    num_features = queries.num_features() // queries.samples
    less = num_features * x.size(1) <= channels * (x.size(1) + num_features)
    if queries.kind != 'softmax' or queries.weight is None or not less or is_fused(queries, 0):
        return queries
    with torch.autocast(x.device.type, enabled=False):
        matrix = queries.scale * cast(Tensor, queries.projection)
        weight = torch.einsum(
            'mc,hcf->hmf', matrix, queries.weight.unflatten(0, (queries.heads, -1))
        ).flatten(0, 1)
        bias = (
            None
            if queries.bias is None
            else (queries.bias.unflatten(0, (queries.heads, -1)) @ matrix.t()).flatten()
        )
    return KernelInput(
        x=x,
        heads=queries.heads,
        kind='logits',
        weight=weight,
        bias=bias,
        mask=queries.mask,
        samples=queries.samples,
    )


def stores_states(keys: KernelInput, values: ValueInput, nodes: Segments) -> bool:
    r"""Whether the states of all graphs need no more room than the keys' inputs; no exported
    program depends on the number of nodes."""
    if torch.compiler.is_exporting():
        return False
    width = keys.rank() * (values.channels(keys.heads) + 1)
    return nodes.sizes.size(0) * keys.heads * keys.num_features() * width <= keys.x.numel()
