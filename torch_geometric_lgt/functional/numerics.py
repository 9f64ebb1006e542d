# N nodes, G graphs walked together, n nodes of each, F input width, H heads, C channels of a key, D
# of a value, M features, R rank, K samples.
import math

import torch
from torch import Tensor


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def convert(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if x is None else x.to(dtype)


def neutral(dtype: torch.dtype) -> float:
    r"""The maximum of no key: finite, so that differences of maxima stay numbers."""
    return torch.finfo(dtype).min / 4


def largest_power(dtype: torch.dtype) -> float:
    r"""A number whose exponential is finite."""
    return math.log(torch.finfo(dtype).max) - 1


def inverse_of(x: Tensor) -> Tensor:
    r"""1 over each number; where it is 0 or too small for that, 0 with a gradient of 0."""
    return x.masked_fill(x.abs() < torch.finfo(x.dtype).tiny, torch.inf).reciprocal_()


def without_cancellation(denominator: Tensor, least: Tensor | float) -> Tensor:
    r"""Sets denominators to 0 where no more than rounding errors is left of terms that cancel."""
    return denominator.masked_fill(denominator.abs() <= least, 0)
