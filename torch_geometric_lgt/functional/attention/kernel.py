# N nodes, E pairs, H heads, C channels per head, D channels of a value, M features, R rank of the
# mask.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine import operators, plain
from torch_geometric_lgt.functional._engine.dispatch import is_fused, may_record
from torch_geometric_lgt.functional.attention.state_checks import check_fit
from torch_geometric_lgt.functional.inputs import (
    KernelInput,
    LinearInput,
    fold_projection,
    folding_saves_work,
)
from torch_geometric_lgt.functional.numerics import without_autocast
from torch_geometric_lgt.functional.segment import (
    Segments,
    check_pair,
    count_graphs,
    number_of_graphs,
    segments,
)
from torch_geometric_lgt.functional.tensor_inputs import (
    check_by_head,
    check_tensor,
    kernel_input,
    value_input,
)
from torch_geometric_lgt.functional.tracing import is_exporting, may_read_values


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
    r"""Computes the kernelised attention of every node to all nodes of its graph, in :math:`O(N)`
    (Eq. 6 of `MGFormer <https://arxiv.org/abs/2405.04028>`_):

    .. math::
        \mathbf{h}_i = \frac{\sum_r a_r(i) \, \phi(\mathbf{q}_i)^{\top} \sum_j b_r(j)
            \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}}
        {\sum_r a_r(i) \, \phi(\mathbf{q}_i)^{\top} \sum_j b_r(j) \phi(\mathbf{k}_j)}

    with a separable mask :math:`M_{ij} = \sum_r a_r(i) b_r(j)` of rank :math:`R` (Eq. 12). Without
    :obj:`query_mask` and :obj:`key_mask`, :math:`M_{ij} = 1`.

    As in the paper, nothing is added to :math:`\phi` or to the denominator. A row whose denominator
    is 0 gives 0.

    With :obj:`key_noise`, log-weights :math:`\gamma_{jk}` of the keys, the result is the mean of
    :math:`K` such attentions, each with :math:`b(j) = \exp(\gamma_{jk})`. With :math:`\gamma_{jk} =
    g_{jk} / \tau` for Gumbel noise :math:`g_{jk}` and a temperature :math:`\tau`, this is the
    kernelised Gumbel-softmax of `NodeFormer <https://arxiv.org/abs/2306.08385>`_.

    Args:
        q (torch.Tensor): Queries ``[N_t, H, C]``.
        k (torch.Tensor): Keys ``[N_s, H, C]``.
        v (torch.Tensor): Values ``[N_s, H, D]``.
        feature_map (str, optional): The name of :math:`\phi`: :obj:`"softmax"` for
            :math:`\exp(\mathbf{w}_m^{\top} \mathbf{x} - \|\mathbf{x}\|^2 / 2)`, the maps
            :obj:`"positive"`, :obj:`"orthogonal"` and :obj:`"simplex"` of layers by their
            :obj:`projection`; :obj:`"fourier"`, :obj:`"elu"`, :obj:`"relu"` or :obj:`"focused"` as
            in :class:`~torch_geometric_lgt.nn.FeatureMap`; :obj:`"logits"` or :obj:`"values"` if
            :obj:`q` and :obj:`k` are :math:`\log \phi` or :math:`\phi` already;
            :obj:`"assignment"`, the map :obj:`"learned"` of layers, if they are its logits.
            (default: :obj:`"softmax"`, which needs a :obj:`projection`)
        projection (torch.Tensor, optional): :math:`\mathbf{w}_1, \dots, \mathbf{w}_M` as ``[M,
            C]``, such as :meth:`gaussian_projection` draws. The maps :obj:`"softmax"` and
            :obj:`"fourier"` need it. (default: :obj:`None`, for the other maps)
        batch (torch.Tensor or tuple, optional): The graph id of each node, ``[N]`` in any order, or
            a pair of such vectors: first for the keys, then for the queries. (default:
            :obj:`None`, one graph)
        batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than the
            largest graph id)
        scale (float, optional): Factor of both :obj:`q` and :obj:`k` before any :math:`\phi`. Not
            the :obj:`scale` :math:`s` of :class:`~torch_geometric_lgt.nn.KernelAttentionConv`,
            which is the factor of inner products: with random features that layer has the factor
            :math:`(s / \tau)^{1/2}` here, by default :math:`C^{-1/4}`. (default: :obj:`1.0`)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)
        query_mask (torch.Tensor, optional): :math:`a_r(i)`, ``[N_t, R]``. (default: :obj:`None`, 1)
        key_mask (torch.Tensor, optional): :math:`b_r(j)`, ``[N_s, R]``. (default: :obj:`None`, 1)
        key_noise (torch.Tensor, optional): :math:`\gamma_{jk}` of each head, ``[N_s, H, K]``, a
            constant without gradient; only with :obj:`"softmax"` or :obj:`"logits"`, and not
            together with a mask. (default: :obj:`None`, no noise)

    Returns:
        ``[N_t, H, D]``

    Raises:
        TypeError: If :obj:`q`, :obj:`k`, :obj:`v` or :obj:`batch` is no tensor.
        ValueError: If :obj:`feature_map` is unknown or lacks its :obj:`projection`. If :obj:`k` or
            :obj:`v` is of another dtype or device than :obj:`q`, or a shape, :obj:`projection`,
            :obj:`batch`, a mask or :obj:`key_noise` does not fit. If :obj:`power` is below 1. If
            :obj:`projection`, :obj:`scale`, :obj:`power` or :obj:`key_noise` requires a gradient:
            multiply :obj:`q` and :obj:`k` by a learned factor.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import gaussian_projection, kernel_attention
        >>> _ = torch.manual_seed(0)
        >>> q, k, v = torch.randn(3, 5, 2, 4).unbind()  # 5 nodes, 2 heads, 4 channels
        >>> projection = gaussian_projection(8, 4).float()
        >>> batch = torch.tensor([0, 0, 0, 1, 1])
        >>> out = kernel_attention(q, k, v, 'softmax', projection, batch)
        >>> out.shape
        torch.Size([5, 2, 4])
        >>> alone = kernel_attention(q[:3], k[:3], v[:3], 'softmax', projection)
        >>> torch.allclose(out[:3], alone, atol=1e-6)
        True
        >>> many, q, k = gaussian_projection(4096, 4).float(), q / 2, k / 2
        >>> estimate = kernel_attention(q, k, v, 'softmax', many, scale=4**-0.25)
        >>> q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        >>> exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        >>> torch.allclose(estimate.transpose(0, 1), exact, atol=0.1)
        True
    """
    batch_size = count_graphs(batch, batch_size)
    check_by_head(q)
    check_alike(q, k, v)
    sources, targets = node_pair(batch, k.size(0), q.size(0), batch_size, q.device)
    keys = kernel_input(k, key_mask, feature_map, projection, scale, power, noise=key_noise)
    queries = kernel_input(q, query_mask, feature_map, projection, scale, power, keys.samples)
    if queries.rank() != keys.rank():
        raise ValueError(
            "'query_mask' and 'key_mask' must have equally many columns, and no mask counts as one "
            f'(got {queries.rank()} and {keys.rank()})'
        )
    return attend(queries, keys, value_input(v, k), sources, targets).unflatten(1, (q.size(1), -1))


def check_alike(q: Tensor, k: Tensor, v: Tensor, self_value: Tensor | None = None) -> None:
    r"""Raises a ValueError unless queries, keys, values and self values have the same dtype and
    device, and queries and keys the same heads and channels. A TypeError is raised if one is no
    tensor."""
    for name, other in (('k', k), ('v', v), ('self_value', self_value)):
        if other is None:
            continue
        check_tensor(f"'{name}'", other)
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
    r"""Returns two :class:`Segments`: which of :obj:`num_src` sources and which of :obj:`num_dst`
    targets belong to which graph. :obj:`batch` is one batch vector for both, or a pair (sources,
    targets)."""
    if not isinstance(batch, tuple):
        sources = segments(batch, num_src, batch_size, device)
        if num_src == num_dst:
            return sources, sources
        return sources, segments(batch, num_dst, batch_size, device)
    batch = check_pair(batch)
    source_batch, target_batch = batch
    if (
        batch_size is None
        and source_batch is not None
        and target_batch is not None
        and may_read_values()
    ):
        batch_size = number_of_graphs(source_batch, target_batch)
    sources = segments(source_batch, num_src, batch_size, device)
    targets = segments(target_batch, num_dst, batch_size, device)
    num_graphs = sources.sizes.size(0), targets.sizes.size(0)
    if num_graphs[0] != num_graphs[1]:
        raise ValueError(
            "'batch' must have as many graphs of sources as of targets (got "
            f'{num_graphs[0]} and {num_graphs[1]}); give the graph ids of both'
        )
    return sources, targets


def attend(
    queries: KernelInput,
    keys: KernelInput,
    values: LinearInput,
    sources: Segments,
    targets: Segments,
    factor: Tensor | None = None,
) -> Tensor:
    r"""Computes the attention outputs ``[N_t, H * D]`` of queries over the keys of their graphs.

    States (sums over all keys of a graph) that need more memory than the input of the keys are
    built again in the backward pass. :obj:`sources` and :obj:`targets` say which key and which
    query belongs to which graph; :obj:`factor` ``[B, H, M]`` multiplies the features. Small graphs
    (:meth:`is_plain`) keep all features for the backward pass.
    """
    num_graphs, num_features = sources.sizes.size(0), keys.num_features()
    check_fit(queries, targets, (num_graphs, keys.heads, num_features, keys.rank(), keys.samples))
    arguments = operators.AttendArguments(
        queries=queries.aligned(),
        targets=targets,
        keys=keys.aligned(),
        values=values.aligned(),
        sources=sources,
        factor=factor,
        store_states=stores_states(keys, values, sources),
    )
    tensors = arguments.pack()
    if may_record(tensors, sources) and arguments.is_plain():
        return plain.attend(arguments)
    return operators.attend(arguments)[0]


def folded(queries: KernelInput) -> KernelInput:
    r"""Multiplies the projection of softmax features into the linear part (Linear layer) of the
    queries, and returns the result as new queries. Returns :obj:`queries` itself unless this
    saves work. The norm of a query cancels in the attention. Without the norm, its log-features
    are linear in the input of the Linear layer."""
    is_softmax = queries.kind == 'softmax' and not is_fused(queries, 0)
    if not is_softmax or not folding_saves_work(queries):
        return queries
    queries = queries.aligned()
    weight, bias = cast(Tensor, queries.weight), queries.bias
    with without_autocast(queries.x.device.type):
        projection = queries.data_normalizer * cast(Tensor, queries.projection)
        weight, bias = fold_projection(projection, weight, bias, queries.heads)
    return KernelInput(
        x=queries.x,
        heads=queries.heads,
        kind='logits',
        weight=weight,
        bias=bias,
        mask=queries.mask,
        samples=queries.samples,
    )


def stores_states(keys: KernelInput, values: LinearInput, nodes: Segments) -> bool:
    r"""Returns whether the states (sums over all keys) of all graphs have at most as many numbers
    as the input of the keys. Returns :obj:`False` for an exported program, which serves any number
    of nodes."""
    if is_exporting():
        return False
    width = keys.rank() * (values.channels(keys.heads) + 1)
    return nodes.sizes.size(0) * keys.heads * keys.num_features() * width <= keys.x.numel()
