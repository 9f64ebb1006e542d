import math

import torch
from torch import Tensor


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    r"""Returns the dtype of sums: at least single precision."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def convert(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    r"""Converts a tensor, if it is one."""
    return None if x is None else x.to(dtype)


def neutral(dtype: torch.dtype) -> float:
    r"""Returns the maximum of a graph without keys. It is finite, so that differences of maxima are
    numbers."""
    return torch.finfo(dtype).min / 4


def largest_power(dtype: torch.dtype) -> float:
    r"""Returns a large number whose exponential is finite."""
    return math.log(torch.finfo(dtype).max) - 1


def inverse_of(x: Tensor) -> Tensor:
    r"""Inverts each number. A number below the smallest normal one gives 0 with a gradient of 0."""
    return x.masked_fill(x.abs() < torch.finfo(x.dtype).tiny, torch.inf).reciprocal_()


def without_cancellation(denominator: Tensor, least: Tensor | float) -> Tensor:
    r"""Sets denominators to 0 where their terms cancel up to rounding errors, at most
    :obj:`least`."""
    return denominator.masked_fill(denominator.abs() <= least, 0)
