"""Gradients by the names of their leaves, so that a failure names the gradient that differs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.testing import assert_close


def leaves_of(module: Module, *parts: str, **inputs: Tensor) -> dict[str, Tensor]:
    """Returns the inputs and the parameters of a module, or of some parts of it, by their names."""
    parameters = {
        name: parameter
        for name, parameter in module.named_parameters()
        if not parts or name.startswith(parts)
    }
    return {**inputs, **parameters}


def gradients(
    out: Any, leaves: Mapping[str, Tensor], grad: Any = None, **options: bool
) -> dict[str, Tensor]:
    """Returns the gradient of each leaf by its name.

    The output is a scalar, or has the cotangent ``grad``; options are those of
    :func:`torch.autograd.grad`."""
    found = torch.autograd.grad(out, list(leaves.values()), grad, **options)
    return dict(zip(leaves, found, strict=True))


def assert_same_gradients(
    actual: Tensor,
    expected: Tensor,
    leaves: Mapping[str, Tensor],
    grad: Tensor | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    **options: bool,
) -> None:
    """Compares the gradients of two outputs for the same cotangent, which is random by default."""
    grad = torch.randn_like(expected) if grad is None else grad
    results = [gradients(out, leaves, grad, **options) for out in (actual, expected)]
    assert_close(*results, rtol=rtol, atol=atol)
