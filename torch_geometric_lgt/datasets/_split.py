# E interactions.
from collections.abc import Sequence
from numbers import Real

import numpy as np

SPLITS = ('train', 'valid', 'test')


def assign_splits(
    user: np.ndarray, ratios: tuple[float, float, float] | None, seed: int
) -> np.ndarray:
    r"""Assigns each interaction to a split, an index ``[E]`` into :obj:`SPLITS`, separately for
    each user.

    With :obj:`ratios` a user's interactions are permuted. Valid and test get the whole part of
    their share; if that is 0, they get one interaction where a training interaction remains, test
    before valid. Without :obj:`ratios`, the last interaction of a user is for test and the last but
    one for valid (leave one out). A single interaction of a user is for training.
    """
    generator = np.random.default_rng(seed)
    order = np.argsort(user, kind='stable')
    split = np.zeros(user.size, dtype=np.int64)
    starts = np.flatnonzero(np.diff(user[order], prepend=-1))
    for start, stop in zip(starts, np.append(starts[1:], user.size), strict=True):
        rows = order[start:stop]
        if ratios is not None:
            rows = generator.permutation(rows)
        num_valid, num_test = held_out(rows.size, ratios)
        split[rows[rows.size - num_test - num_valid : rows.size - num_test]] = 1
        split[rows[rows.size - num_test :]] = 2
    return split


def check_ratios(ratios: tuple[float, ...]) -> None:
    r"""Checks the shares of the three splits.

    Raises:
        ValueError: If they are not three shares that sum to 1.
    """
    numbers = (
        isinstance(ratios, Sequence | np.ndarray)
        and len(ratios) == 3
        and all(isinstance(ratio, Real) for ratio in ratios)
    )
    if (
        not numbers
        or not all(0 <= ratio <= 1 for ratio in ratios)
        or ratios[0] == 0
        or abs(sum(ratios) - 1) > 1e-9
    ):
        raise ValueError(
            "'ratios' must be three shares (train, valid, test) that sum to 1, train above 0 (got "
            f'{ratios!r})'
        )


def check_seed(seed: int) -> None:
    r"""Checks a seed.

    Raises:
        ValueError: If it is no whole number from 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"'seed' must be a whole number from 0 (got {seed!r})")


def held_out(total: int, ratios: tuple[float, float, float] | None) -> tuple[int, int]:
    r"""Returns how many of :obj:`total` interactions of a user are for valid and for test."""
    if ratios is None:
        return int(total > 2), int(total > 1)
    counts, train = {}, total - sum(int(ratio * total) for ratio in ratios[1:])
    for name, ratio in (('test', ratios[2]), ('valid', ratios[1])):
        raised = int(train > 1 and 0 < ratio * total < 1)
        counts[name] = int(ratio * total) + raised
        train -= raised
    return counts['valid'], counts['test']
