r"""Computes the formulas of the papers literally, with an ``N x N`` weight matrix, for tests on
small graphs. The functions share no code with the rest of the package."""

import torch
from torch import Tensor

__all__ = [
    'adjacency_matrix',
    'attention_matrix',
    'degree_mask',
    'diffusion_attention',
    'edge_weights',
    'feature_map',
    'inverse_denominators',
    'jaccard',
    'kernel_attention',
    'normalised',
    'normalised_adjacency',
    'sampled_attention',
    'sgformer_attention',
    'sigmoid_attention',
    'uniformity',
]


def feature_map(
    kind: str, x: Tensor, projection: Tensor | None = None, power: float = 3.0
) -> Tensor:
    r"""Computes the features :math:`\phi(\mathbf{x})` of each vector by their formulas in
    :class:`~torch_geometric_lgt.nn.FeatureMap`, from ``[*, C]`` to ``[*, M]``. Large inputs may
    overflow; there is no rescaling.

    Args:
        kind (str): :obj:`"elu"`, :obj:`"relu"`, :obj:`"focused"` or :obj:`"assignment"` (the
            softmax over the features of a learned map), with :math:`M = C`; :obj:`"softmax"` for
            the random exponentials, with :math:`M` rows of the projection, without the factor
            :math:`M^{-1/2}`; or :obj:`"fourier"`, with :math:`M / 2` rows.
        x (torch.Tensor): The vectors ``[*, C]``.
        projection (torch.Tensor, optional): The rows :math:`\mathbf{w}_m` of the projection, for
            :obj:`"softmax"` and :obj:`"fourier"`. (default: :obj:`None`)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import feature_map
        >>> feature_map('elu', torch.tensor([-1., 0., 2.]))
        tensor([0.3679, 1.0000, 3.0000])
    """
    if kind == 'elu':
        return torch.where(x > 0, x + 1, x.exp())
    if kind == 'relu':
        return x.clamp(min=0)
    if kind == 'assignment':
        return x.exp() / x.exp().sum(-1, keepdim=True)
    if kind == 'focused':
        r = x.clamp(min=0)
        dead = (r == 0).all(-1, keepdim=True)
        r = torch.where(dead, torch.ones_like(r), r)
        out = (
            (r * r).sum(-1, keepdim=True).sqrt()
            / (r ** (2 * power)).sum(-1, keepdim=True).sqrt()
            * r**power
        )
        return torch.where(dead, torch.zeros_like(out), out)
    angle = torch.einsum('mc,...c->...m', projection, x)
    half = (x * x).sum(-1, keepdim=True) / 2
    if kind == 'fourier':
        return torch.cat([torch.cos(angle), torch.sin(angle)], -1) * torch.exp(half)
    return torch.exp(angle - half)


def attention_matrix(
    phi_q: Tensor,
    phi_k: Tensor,
    mask: Tensor | None = None,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes the attention weights ``[N_q, N_k, H]`` of all keys for all queries, which sum to 1
    for each query and head. A query without a key in its graph has the weights 0.

    Args:
        phi_q (torch.Tensor): The features of the queries ``[N_q, H, M]``.
        phi_k (torch.Tensor): The features of the keys ``[N_k, H, M]``.
        mask (torch.Tensor, optional): A factor for each pair ``[N_q, N_k]``. (default: :obj:`None`)
        batch_q (torch.Tensor, optional): The graph id of each query. (default: :obj:`None`)
        batch_k (torch.Tensor, optional): The graph id of each key. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import attention_matrix
        >>> phi = torch.ones(2, 1, 3)
        >>> attention_matrix(phi, phi)[..., 0]
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    weight = torch.einsum('ihm,jhm->ijh', phi_q, phi_k)
    if mask is not None:
        weight = weight * mask[..., None]
    if batch_q is not None and batch_k is not None:
        weight = weight * (batch_q[:, None] == batch_k[None, :])[..., None]
    total = weight.sum(1, keepdim=True)
    return torch.where(
        total == 0,
        torch.zeros_like(weight),
        weight / torch.where(total == 0, torch.ones_like(total), total),
    )


def kernel_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes the outputs ``[N_q, H, D]`` of kernelised attention to values :obj:`v`
    ``[N_k, H, D]``: Eq. 6 of MGFormer, or Eq. 8 with a mask.

    The features :obj:`phi_q` are ``[N_q, H, M]`` and :obj:`phi_k` ``[N_k, H, M]``. The
    :obj:`mask` ``[N_q, N_k]`` multiplies the weights before their sum is made 1. The arguments
    :obj:`batch_q` and :obj:`batch_k` are the graph ids.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import kernel_attention
        >>> phi, v = torch.ones(2, 1, 3), torch.tensor([[[1.]], [[3.]]])
        >>> kernel_attention(phi, phi, v).flatten()
        tensor([2., 2.])
    """
    return torch.einsum('ijh,jhd->ihd', attention_matrix(phi_q, phi_k, mask, batch_q, batch_k), v)


def sampled_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    noise: Tensor,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes NodeFormer's kernelised Gumbel-softmax ``[N_q, H, D]``: the mean of :math:`K`
    attentions. In attention :math:`k` the features of key :math:`j` are multiplied by
    :math:`\exp(g_{jk})`.

    Args:
        phi_q (torch.Tensor): The features of the queries ``[N_q, H, M]``.
        phi_k (torch.Tensor): The features of the keys ``[N_k, H, M]``.
        v (torch.Tensor): The values ``[N_k, H, D]``.
        noise (torch.Tensor): :math:`g_{jk}`, ``[N_k, H, K]``.
        batch_q (torch.Tensor, optional): The graph id of each query. (default: :obj:`None`)
        batch_k (torch.Tensor, optional): The graph id of each key. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import sampled_attention
        >>> phi, v = torch.ones(2, 1, 3), torch.tensor([[[1.]], [[3.]]])
        >>> noise = torch.tensor([3.0, 1.0]).log().view(2, 1, 1)
        >>> sampled_attention(phi, phi, v, noise).flatten()
        tensor([1.5000, 1.5000])
    """
    weights = torch.exp(noise)
    reads = [
        kernel_attention(phi_q, phi_k * weights[:, :, k : k + 1], v, None, batch_q, batch_k)
        for k in range(noise.shape[2])
    ]
    return torch.stack(reads).mean(0)


def normalised(x: Tensor, norm: str, batch: Tensor | None = None) -> Tensor:
    r"""Divides the vectors in :obj:`x` ``[N, H, C]`` by their norm; vectors of norm 0 become 0.

    Args:
        x (torch.Tensor): The vectors ``[N, H, C]``.
        norm (str): :obj:`"row"`, the length of each vector, or :obj:`"frobenius"`, the norm of all
            vectors of its graph and head together.
        batch (torch.Tensor, optional): The graph id of each vector ``[N]``. (default: :obj:`None`,
            one graph)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import normalised
        >>> normalised(torch.tensor([[[3., 4.]], [[0., 0.]]]), 'row')[:, 0]
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    if norm == 'row':
        same = torch.eye(x.shape[0], dtype=x.dtype)
    else:
        batch = torch.zeros(x.shape[0], dtype=torch.long) if batch is None else batch
        same = (batch[:, None] == batch[None, :]).to(x.dtype)
    length = torch.einsum('ij,jhc->ih', same, x * x).sqrt()
    return (
        torch.where(
            length == 0,
            torch.zeros_like(length),
            1 / torch.where(length == 0, torch.ones_like(length), length),
        )[..., None]
        * x
    )


def inverse_denominators(constant: Tensor, products: Tensor, channels: int, norm: str) -> Tensor:
    r"""Computes :math:`1 / (c + p)` ``[N, H, 1]``, the inverse denominators of DIFFormer's and
    SGFormer's attention, or 0 if the sum is 0 up to rounding errors.

    That is the case if :math:`|c + p| \leq \varepsilon (|c| + |p|) (C + 8) / 2`, where
    :math:`\varepsilon` is the machine epsilon of the dtype for row norms, and 64 times that for
    Frobenius norms.

    Args:
        constant (torch.Tensor): :math:`c`, ``[N, H]``.
        products (torch.Tensor): :math:`p`, the sum of the inner products ``[N, H]``.
        channels (int): :math:`C`.
        norm (str): :obj:`"row"` or :obj:`"frobenius"`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import inverse_denominators
        >>> constant, products = torch.ones(2, 1), torch.tensor([[1.], [-1.]])
        >>> inverse_denominators(constant, products, 4, 'row').flatten()
        tensor([0.5000, 0.0000])
    """
    total, unit = (
        constant + products,
        torch.finfo(products.dtype).eps * (64 if norm == 'frobenius' else 1),
    )
    dead = total.abs() <= (channels + 8) / 2 * unit * (constant.abs() + products.abs())
    return torch.where(
        dead, torch.zeros_like(total), 1 / torch.where(dead, torch.ones_like(total), total)
    )[..., None]


def diffusion_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norm: str,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes attention with DIFFormer's simple kernel, ``[N_q, H, D]``: the weights :math:`1 +
    \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j` are divided by their sum for each query.

    Args:
        q (torch.Tensor): The queries ``[N_q, H, C]``, to be normalised here.
        k (torch.Tensor): The keys ``[N_k, H, C]``, to be normalised here.
        v (torch.Tensor): The values ``[N_k, H, D]``.
        norm (str): :obj:`"row"` or :obj:`"frobenius"`, see :meth:`normalised`.
        batch_q (torch.Tensor, optional): The graph id of each query. (default: :obj:`None`)
        batch_k (torch.Tensor, optional): The graph id of each key. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import diffusion_attention
        >>> q, v = torch.ones(2, 1, 1), torch.tensor([[[1.]], [[3.]]])
        >>> diffusion_attention(q, q, v, 'row').flatten()
        tensor([2., 2.])
    """
    similarity = torch.einsum(
        'ihc,jhc->ijh', normalised(q, norm, batch_q), normalised(k, norm, batch_k)
    )
    same = torch.ones_like(similarity)
    if batch_q is not None and batch_k is not None:
        same = same * (batch_q[:, None] == batch_k[None, :])[..., None]
    share = inverse_denominators(same.sum(1), (similarity * same).sum(1), q.shape[2], norm)
    return torch.einsum('ijh,jhd->ihd', (1 + similarity) * same, v) * share


def sigmoid_attention(
    q: Tensor, k: Tensor, v: Tensor, batch_q: Tensor | None = None, batch_k: Tensor | None = None
) -> Tensor:
    r"""Computes attention with DIFFormer's sigmoid kernel, ``[N_q, H, D]``: the weights
    :math:`\sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)` are divided by their sum for each query.

    The arguments are those of :meth:`diffusion_attention`. A query without a key in its graph gets
    0.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import sigmoid_attention
        >>> q, v = torch.zeros(2, 1, 1), torch.tensor([[[1.]], [[3.]]])
        >>> sigmoid_attention(q, q, v).flatten()
        tensor([2., 2.])
    """
    weight = 1 / (1 + torch.exp(-torch.einsum('ihc,jhc->ijh', q, k)))
    if batch_q is not None and batch_k is not None:
        weight = weight * (batch_q[:, None] == batch_k[None, :])[..., None]
    total = weight.sum(1)[..., None]
    return torch.einsum('ijh,jhd->ihd', weight, v) / torch.where(
        total == 0, torch.ones_like(total), total
    )


def sgformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    own: Tensor,
    norm: str,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes SGFormer's attention ``[N_q, H, D]`` over the :math:`N` keys of each graph:
    :math:`\mathbf{D}^{-1} [\mathbf{V} + \tilde{\mathbf{Q}} (\tilde{\mathbf{K}}^{\top} \mathbf{V}) /
    N]`.

    The matrix :math:`\mathbf{D} = \mathrm{diag}(\mathbf{1} + \tilde{\mathbf{Q}}
    (\tilde{\mathbf{K}}^{\top} \mathbf{1}) / N)` is inverted by :meth:`inverse_denominators`. The
    first :math:`\mathbf{V}` is :obj:`own` ``[N_q, H, D]``, the values of the queries. The second is
    :obj:`v` ``[N_k, H, D]``, the values of the keys. The other arguments are those of
    :meth:`diffusion_attention`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import sgformer_attention
        >>> q, v = torch.ones(2, 1, 1), torch.tensor([[[1.]], [[3.]]])
        >>> sgformer_attention(q, q, v, v, 'row').flatten()
        tensor([1.5000, 2.5000])
    """
    weight = torch.einsum(
        'ihc,jhc->ijh', normalised(q, norm, batch_q), normalised(k, norm, batch_k)
    )
    same = torch.ones_like(weight[..., 0])
    if batch_q is not None and batch_k is not None:
        same = (batch_q[:, None] == batch_k[None, :]).to(weight.dtype)
    weight = weight * (same / same.sum(1, keepdim=True).clamp(min=1))[..., None]
    return (own + torch.einsum('ijh,jhd->ihd', weight, v)) * inverse_denominators(
        torch.ones_like(weight[:, 0]), weight.sum(1), q.shape[2], norm
    )


def degree_mask(z_q: Tensor, z_k: Tensor) -> Tensor:
    r"""Computes the mask ``[N_q, N_k]`` of Eq. 10 of MGFormer, :math:`M_{ij} = \sin(\frac{\pi}{2}
    \cdot \frac{z_i + z_j}{2})`, from numbers :obj:`z_q` ``[N_q]`` and :obj:`z_k` ``[N_k]`` between
    0 and 1.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import degree_mask
        >>> degree_mask(torch.tensor([0., 1.]), torch.tensor([0., 1.]))
        tensor([[0.0000, 0.7071],
                [0.7071, 1.0000]])
    """
    return torch.sin(torch.pi / 2 * (z_q[:, None] + z_k[None, :]) / 2)


def uniformity(x: Tensor, temperature: float) -> Tensor:
    r"""Computes the uniformity loss, the second part of Eq. 13 of MGFormer, a scalar, for the
    embeddings :obj:`x` ``[N, D]`` of users or of items.

    The rows are scaled to length 1. The loss is the logarithm of the mean of :math:`\exp(-t
    \|\mathbf{x}_i - \mathbf{x}_j\|^2)` over all pairs :math:`i \neq j`, with :math:`t` the
    :obj:`temperature`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import uniformity
        >>> round(float(uniformity(torch.eye(3), temperature=2.0)), 4)
        -4.0
    """
    unit = x / (x * x).sum(1, keepdim=True).sqrt()
    squared = ((unit[:, None] - unit[None]) ** 2).sum(-1)
    return torch.exp(-temperature * squared)[~torch.eye(x.size(0), dtype=torch.bool)].mean().log()


def jaccard(adjacency: Tensor) -> Tensor:
    r"""Computes the Jaccard index of the neighbourhoods of each pair of nodes, ``[N, N]`` (Eq. 7 of
    LiteGT). Row :math:`i` of the 0/1 matrix :obj:`adjacency` ``[N, N]`` marks the neighbours of
    node :math:`i`. The index of two empty neighbourhoods is 0.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import jaccard
        >>> jaccard(torch.tensor([[1., 1.], [0., 1.]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    shared = torch.einsum('ik,jk->ij', adjacency, adjacency)
    either = 1 - torch.einsum('ik,jk->ijk', 1 - adjacency, 1 - adjacency)
    return shared / either.sum(2).clamp(min=1)


def attention_distance(adjacency: Tensor, measure: str) -> Tensor:
    r"""Computes the distance ``[N]`` of the attention of each node from a plain mean (Eq. 10 of
    LiteGT). Row :math:`i` of the 0/1 matrix :obj:`adjacency` ``[N, N]`` marks the neighbours of
    node :math:`i`. A node without neighbours gets :math:`-\infty`.

    Args:
        adjacency (torch.Tensor): ``[N, N]``, with zeros on the diagonal.
        measure (str): :obj:`"jaccard"`, or :obj:`"lse"` for the logarithm of the sum of
            exponentials in place of the maximum, as in Eq. 9.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import attention_distance
        >>> attention_distance(torch.tensor([[0., 0., 0.], [1., 0., 0.], [1., 1., 0.]]), 'jaccard')
        tensor([   -inf,  0.0000, -0.4431])
    """
    index, degree = jaccard(adjacency), adjacency.sum(1)
    if measure == 'jaccard':
        top = torch.where(adjacency > 0, index, -torch.inf).max(1).values
    else:
        top = (index.exp() * adjacency).sum(1).log()
    mean = (index * adjacency).sum(1) / degree
    return torch.where(degree == 0, -torch.inf, top - mean - degree.log())


def edge_scores(kernel: str, q: Tensor, k: Tensor, e: Tensor) -> Tensor:
    r"""Computes the scores ``[N_t, N_s, H, C]`` of pairs with features in one branch of LiteGT:
    :math:`\mathbf{q}_i \odot \mathbf{k}_j \odot \mathbf{e}_{ij} / \sqrt{C}` (as in `"A
    Generalization of Transformer Networks to Graphs" <https://arxiv.org/abs/2012.09699>`_), or with
    :math:`|\mathbf{q}_i - \mathbf{k}_j|` in place of the product of queries and keys.

    Args:
        kernel (str): :obj:`"softmax"` or :obj:`"subtractor"`.
        q (torch.Tensor): The queries ``[N_t, H, C]``.
        k (torch.Tensor): The keys ``[N_s, H, C]``.
        e (torch.Tensor): The projected features of the pairs ``[N_t, N_s, H, C]``.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import edge_scores
        >>> q, k = torch.tensor([[[1., 2., 0., 1.]]]), torch.tensor([[[3., 1., 5., 1.]]])
        >>> edge_scores('softmax', q, k, torch.ones(1, 1, 1, 4)).flatten()
        tensor([1.5000, 1.0000, 0.0000, 0.5000])
    """
    if kernel == 'softmax':
        pair = torch.einsum('ihc,jhc->ijhc', q, k)
    else:
        pair = (q[:, None] - k[None]).abs()
    return pair * e / q.shape[2] ** 0.5


def edge_weights(
    kernel: str, count: Tensor, score: Tensor, mask: Tensor | None = None, normalize: bool = True
) -> Tensor:
    r"""Computes the weights ``[N_t, N_s, H]`` of each source for each target in one branch of
    LiteGT (Eq. 3 and 7-9).

    A weight is the count times the exponential of the score for :obj:`"softmax"`, the count for
    :obj:`"mean"`, and otherwise the count times the score. It is divided by the sum over the
    sources.

    Args:
        kernel (str): :obj:`"softmax"`, :obj:`"mean"`, :obj:`"jaccard"` or :obj:`"subtractor"`.
        count (torch.Tensor): The number of edges from each source to each target ``[N_t, N_s]``, or
            the sum of their weights.
        score (torch.Tensor): ``[N_t, N_s, H]``: logits of the softmax, Jaccard indices or
            distances.
        mask (torch.Tensor, optional): A bool for each target ``[N_t]``; those with :obj:`False` get
            the mean in place of the softmax. (default: :obj:`None`)
        normalize (bool, optional): If :obj:`False`, Jaccard indices and distances are not divided
            by their sum. (default: :obj:`True`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import edge_weights
        >>> count, score = torch.tensor([[1., 1.]]), torch.tensor([[[1.], [3.]]])
        >>> edge_weights('jaccard', count, score).flatten()
        tensor([0.2500, 0.7500])
    """
    degree = count.sum(1)[:, None, None]
    mean = (count[..., None] / torch.where(degree == 0, torch.ones_like(degree), degree)).expand_as(
        score
    )
    if kernel == 'mean':
        return mean
    weight = count[..., None] * (torch.exp(score) if kernel == 'softmax' else score)
    if kernel != 'softmax' and not normalize:
        return weight
    total = weight.sum(1, keepdim=True)
    weight = torch.where(
        total == 0, mean, weight / torch.where(total == 0, torch.ones_like(total), total)
    )
    return (
        torch.where(mask[:, None, None], weight, mean)
        if kernel == 'softmax' and mask is not None
        else weight
    )


def adjacency_matrix(edge_index: Tensor, weight: Tensor, num_src: int, num_dst: int) -> Tensor:
    r"""Computes the matrix ``[N_t, N_s]`` with the sum of the weights :obj:`weight` ``[E]`` of all
    edges from each source to each target in :obj:`edge_index` ``[2, E]``.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import adjacency_matrix
        >>> edge_index, weight = torch.tensor([[0, 0, 1], [1, 1, 0]]), torch.ones(3)
        >>> adjacency_matrix(edge_index, weight, num_src=2, num_dst=2)
        tensor([[0., 1.],
                [2., 0.]])
    """
    to_target = (torch.arange(num_dst)[:, None] == edge_index[1]).to(weight.dtype)
    from_source = (edge_index[0][:, None] == torch.arange(num_src)).to(weight.dtype)
    return torch.einsum('ie,e,ej->ij', to_target, weight, from_source)


def normalised_adjacency(adjacency: Tensor) -> Tensor:
    r"""Computes :math:`\mathbf{D}_t^{-1/2} \mathbf{A} \mathbf{D}_s^{-1/2}` for a matrix
    :obj:`adjacency` ``[N_t, N_s]``. :math:`\mathbf{D}_t` holds the row sums of :obj:`adjacency`,
    and :math:`\mathbf{D}_s` its column sums. Entries whose row or column sums to 0 are 0.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import normalised_adjacency
        >>> normalised_adjacency(torch.tensor([[0., 4.], [4., 0.]]))
        tensor([[0., 1.],
                [1., 0.]])
    """
    totals = adjacency.sum(1), adjacency.sum(0)
    row, column = (
        torch.where(d == 0, torch.zeros_like(d), torch.where(d == 0, torch.ones_like(d), d) ** -0.5)
        for d in totals
    )
    return row[:, None] * adjacency * column
