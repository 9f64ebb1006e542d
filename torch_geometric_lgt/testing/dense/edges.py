import torch
from torch import Tensor

from torch_geometric_lgt.testing.dense._arguments import check_known


def jaccard(adjacency: Tensor) -> Tensor:
    r"""Computes the Jaccard index of the neighbourhoods of each pair of nodes, ``[N, N]`` (Eq. 7 of
    `LiteGT <https://doi.org/10.1145/3459637.3482272>`_). Row :math:`i` of the 0/1 matrix
    :obj:`adjacency` ``[N, N]`` marks the neighbours of node :math:`i`; an entry on the diagonal
    makes a node its own neighbour, which :meth:`~torch_geometric_lgt.functional.jaccard` never
    does. The index of two empty neighbourhoods is 0.

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
    check_known('measure', measure, ('jaccard', 'lse'))
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
    check_known('kernel', kernel, ('softmax', 'subtractor'))
    if kernel == 'softmax':
        pair = torch.einsum('ihc,jhc->ijhc', q, k)
    else:
        pair = (q[:, None] - k[None]).abs()
    return pair * e / q.shape[2] ** 0.5


def edge_weights(
    kernel: str, count: Tensor, score: Tensor, mask: Tensor | None = None, normalize: bool = True
) -> Tensor:
    r"""Computes the attention weights ``[N_t, N_s, H]`` of each source for each target in one
    branch (half of the heads) of `LiteGT <https://doi.org/10.1145/3459637.3482272>`_ (Eq. 3, 4 and
    6).

    A weight is the count times the exponential of the score for :obj:`"softmax"`, the count for
    :obj:`"mean"`, and otherwise the count times the score. It is divided by the sum over the
    sources, for :obj:`"jaccard"` and :obj:`"subtractor"` unless ``normalize=False``. A target for
    which this sum is 0 gets the weights of :obj:`"mean"`, and 0 without any source.

    Args:
        kernel (str): :obj:`"softmax"`, :obj:`"mean"`, :obj:`"jaccard"` or :obj:`"subtractor"`.
        count (torch.Tensor): The number of edges from each source to each target ``[N_t, N_s]``, or
            the sum of their weights.
        score (torch.Tensor): ``[N_t, N_s, H]``: logits of the softmax, Jaccard indices or
            distances; :obj:`"mean"` reads its shape only.
        mask (torch.Tensor, optional): A bool for each target ``[N_t]``, for :obj:`"softmax"`:
            targets with :obj:`False` get the weights of :obj:`"mean"`. Other kernels ignore it.
            (default: :obj:`None`, softmax for all)
        normalize (bool, optional): If :obj:`False`, Jaccard indices and distances are not divided
            by their sum, and weights whose sum is 0 stay as they are. (default: :obj:`True`)

    Raises:
        ValueError: If :obj:`kernel` is unknown.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import edge_weights
        >>> count, score = torch.tensor([[1., 1.]]), torch.tensor([[[1.], [3.]]])
        >>> edge_weights('jaccard', count, score).flatten()
        tensor([0.2500, 0.7500])
    """
    check_known('kernel', kernel, ('softmax', 'mean', 'jaccard', 'subtractor'))
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
    targets, sources = (torch.arange(num, device=weight.device) for num in (num_dst, num_src))
    to_target = (targets[:, None] == edge_index[1]).to(weight.dtype)
    from_source = (edge_index[0][:, None] == sources).to(weight.dtype)
    return torch.einsum('ie,e,ej->ij', to_target, weight, from_source)


def normalised_adjacency(adjacency: Tensor) -> Tensor:
    r"""Computes :math:`\mathbf{D}_t^{-1/2} \mathbf{A} \mathbf{D}_s^{-1/2}` for a matrix
    :obj:`adjacency` ``[N_t, N_s]``. :math:`\mathbf{D}_t` holds the row sums of :obj:`adjacency`,
    and :math:`\mathbf{D}_s` its column sums. Entries whose row or column sums to 0 are 0; a
    negative sum gives NaN.

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
