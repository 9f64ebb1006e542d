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

    :obj:`user` ``[E]`` has the user of each interaction. With :obj:`ratios`, shares of train, valid
    and test, a user's interactions are split at random, with :obj:`seed`. If :obj:`ratios` is
    :obj:`None`, the last interaction of a user is for test and the last but one for valid (leave
    one out). :meth:`held_out` has the numbers. A user's only interaction is for training.
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
    r"""Checks the shares of training, validation and test.

    Raises:
        ValueError: If :obj:`ratios` are not three numbers from 0 to 1 that sum to 1, or the
            training share is 0.
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
    r"""Checks that a seed is a whole number of at least 0.

    Raises:
        ValueError: If the seed is anything else.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"'seed' must be a whole number from 0 (got {seed!r})")


def held_out(total: int, ratios: tuple[float, float, float] | None) -> tuple[int, int]:
    r"""Returns how many of :obj:`total` interactions of a user are for valid and for test.

    Each gets its share of :obj:`ratios`, rounded down. A share above 0 that is rounded down to 0
    gets one interaction if a training interaction remains, test before valid. If :obj:`ratios` is
    :obj:`None`, both get one (leave one out): test from two interactions on, valid from three on.
    """
    if ratios is None:
        return int(total > 2), int(total > 1)
    shares = {'test': _share(ratios[2], total), 'valid': _share(ratios[1], total)}
    counts = {}
    train = total - sum(int(share) for share in shares.values())
    for name, share in shares.items():
        raised = int(train > 1 and 0 < share < 1)
        counts[name] = int(share) + raised
        train -= raised
    return counts['valid'], counts['test']


def _share(ratio: float, total: int) -> float:
    r"""Returns the share of :obj:`total`, without the rounding error of the product, which may make
    a whole number smaller: 0.29 of 100 is 29."""
    return round(ratio * total, 9)
