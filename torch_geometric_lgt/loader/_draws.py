# F nodes of a frontier, M edges into them.
import numpy as np
import torch


def drawn_generator() -> np.random.Generator:
    r"""Returns NumPy's generator with a seed that torch's global generator of the CPU draws."""
    return np.random.default_rng(int(torch.randint(1 << 62, (), device='cpu')))


def distinct(size: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    r"""Draws :obj:`count` different integers from 0 to ``size[i] - 1`` for each row :obj:`i`,
    ``[F, count]``. Each size must be above :obj:`count`.

    All subsets have equal probability (Floyd's algorithm, in
    `"Programming Pearls: A Sample of Brilliance" <https://doi.org/10.1145/30401.315746>`_).
    """
    out = np.empty((size.size, count), np.int64)
    for step in range(count):
        last = size - count + step
        draw = random.integers(0, last + 1)
        out[:, step] = np.where((out[:, :step] == draw[:, None]).any(1), last, draw)
    return out


def weighted_distinct(
    weight: np.ndarray, size: np.ndarray, count: int, random: np.random.Generator
) -> np.ndarray:
    r"""Draws :obj:`count` different integers from 0 to ``size[i] - 1`` for each row :obj:`i`,
    ``[F, count]``, one after another in proportion to their weights.

    :obj:`weight` ``[M]`` lists the weights of all rows. Each size must be above :obj:`count`.
    Integers of weight 0 are drawn uniformly after all others. The first :obj:`count` arrivals of
    independent Poisson processes, whose rates are the weights, have this distribution (`"Weighted
    Random Sampling with a Reservoir" <https://doi.org/10.1016/j.ipl.2005.11.003>`_).
    """
    owner, start = np.repeat(np.arange(size.size), size), np.cumsum(size) - size
    unit = random.standard_exponential(weight.size)
    with np.errstate(over='ignore'):
        arrival = np.divide(unit, weight, out=np.full(weight.size, np.inf), where=weight > 0)
    order = np.lexsort((unit, arrival, owner))
    return order[start[:, None] + np.arange(count)] - start[:, None]


def weighted_repeated(
    weight: np.ndarray, size: np.ndarray, count: int, random: np.random.Generator
) -> np.ndarray:
    r"""Draws :obj:`count` integers from 0 to ``size[i] - 1`` for each row :obj:`i`,
    ``[F, count]``, independently and in proportion to their weights.

    :obj:`weight` ``[M]`` lists the weights of all rows. No size may be 0.

    Raises:
        ValueError: If all weights of a row are 0.
    """
    owner, start = np.repeat(np.arange(size.size), size), np.cumsum(size) - size
    total = np.add.reduceat(weight, start) if size.size > 0 else np.empty(0)
    if (total == 0).any():
        raise ValueError(
            "'weight_attr' must have a positive weight among the incoming edges of each node with "
            "'replace' (got weights of 0 only)"
        )
    share = np.cumsum(weight / total[owner])
    share -= np.concatenate([[0.0], share])[start][owner]
    share /= share[start + size - 1][owner]  # ends at exactly 1 in each row
    row = np.arange(size.size)[:, None]
    draw = np.minimum(row + random.random((size.size, count)), np.nextafter(row + 1.0, 0))
    return np.searchsorted(owner + share, draw, side='right') - start[:, None]


def count_until(
    time: np.ndarray, start: np.ndarray, size: np.ndarray, until: np.ndarray
) -> np.ndarray:
    r"""Counts the times of each row :obj:`i` that are at most ``until[i]``, ``[F]``.

    The times of row :obj:`i` are ``time[start[i]]`` to ``time[start[i] + size[i] - 1]``, in
    ascending order.
    """
    low, high = np.zeros_like(size), size.copy()
    rows = np.flatnonzero(size > 0)
    while rows.size > 0:
        middle = (low[rows] + high[rows]) // 2
        early = time[start[rows] + middle] <= until[rows]
        low[rows[early]], high[rows[~early]] = middle[early] + 1, middle[~early]
        rows = rows[low[rows] < high[rows]]
    return low
