r"""Tells the classes that a model predicts."""

from torch import Tensor


def predicted_classes(scores: Tensor) -> Tensor:
    r"""Returns the class of the largest score in each row of :obj:`scores` ``[N, C]``, and -1 where
    a score is NaN, as after a training that diverged."""
    return scores.argmax(1).masked_fill(scores.isnan().any(1), -1)
