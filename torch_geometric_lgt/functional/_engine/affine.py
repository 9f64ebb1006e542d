# N nodes, G graphs walked together, n nodes of each, F input width, H heads, C channels of a key, D
# of a value, M features, R rank, K samples.

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.layout import Nodes, take
from torch_geometric_lgt.functional.numerics import compute_dtype


class Affine:
    r"""Linear parts of one input, evaluated as one and chunk by chunk. Each part is a weight, a
    bias and the factor of both; without a weight it is the input itself."""

    def __init__(self, x: Tensor, *parts: tuple[Tensor | None, Tensor | None, float]) -> None:
        self.x = x
        self.scales = [scale for _, _, scale in parts]
        weights = [weight * scale for weight, _, scale in parts if weight is not None]
        biases = [bias * scale for _, bias, scale in parts if bias is not None]
        self.weight = torch.cat(weights) if weights else None
        self.transposed = None if self.weight is None else self.weight.t().contiguous()
        self.bias = torch.cat(biases) if biases else None

    def __call__(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        x = take(self.x, nodes)
        if self.transposed is None:
            return x, x if self.scales[0] == 1.0 else x * self.scales[0]
        return x, x @ self.transposed if self.bias is None else torch.addmm(
            self.bias, x, self.transposed
        )


class AffineGrad:
    r"""Collects the gradients of an :class:`Affine`; that of the input may be shared with another
    one's."""

    def __init__(self, affine: Affine, shared: Tensor | None = None) -> None:
        self.affine = affine
        self.x = (
            torch.zeros_like(affine.x, dtype=compute_dtype(affine.x.dtype))
            if shared is None
            else shared
        )
        self.weight, self.bias = (
            None if t is None else torch.zeros_like(t) for t in (affine.transposed, affine.bias)
        )

    def add(self, nodes: Nodes, x: Tensor, grad: Tensor) -> None:
        if self.weight is None or self.affine.weight is None:
            self.x[nodes] += grad if self.affine.scales[0] == 1.0 else grad * self.affine.scales[0]
            return
        if isinstance(nodes, slice):
            self.x[nodes].addmm_(grad, self.affine.weight)
        else:
            self.x[nodes] += grad @ self.affine.weight
        self.weight.addmm_(x.t(), grad)
        if self.bias is not None:
            self.bias += grad.sum(0)

    def parameters(self, *lengths: int) -> list[Tensor | None]:
        r"""The gradients of weight and bias of each part, given the parts' lengths."""
        weight = None if self.weight is None else self.weight.t().contiguous()
        out = []
        for part, scale in enumerate(self.affine.scales):
            out += [
                None if t is None else t.split(lengths)[part] * scale for t in (weight, self.bias)
            ]
        return out
