import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.layout import Nodes, take
from torch_geometric_lgt.functional.numerics import compute_dtype


class Affine:
    r"""Evaluates several linear parts of one input by one product, chunk by chunk. Each part is a
    weight, a bias and the factor of both; a part without a weight is the identity."""

    def __init__(self, x: Tensor, *parts: tuple[Tensor | None, Tensor | None, float]) -> None:
        self.x = x
        self.scales = [scale for _, _, scale in parts]
        weights = [weight * scale for weight, _, scale in parts if weight is not None]
        biases = [bias * scale for _, bias, scale in parts if bias is not None]
        self.weight = torch.cat(weights) if weights else None
        self.transposed = None if self.weight is None else self.weight.t().contiguous()
        self.bias = torch.cat(biases) if biases else None

    def __call__(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        r"""Returns the input of some nodes and its linear parts."""
        x = take(self.x, nodes)
        if self.transposed is None:
            return x, x if self.scales[0] == 1.0 else x * self.scales[0]
        if self.bias is None:
            return x, x @ self.transposed
        return x, torch.addmm(self.bias, x, self.transposed)


class AffineGrad:
    r"""Adds up the gradients of an :class:`Affine`. The gradient of the input is added to
    :obj:`shared`, if it is a tensor."""

    def __init__(self, affine: Affine, shared: Tensor | None = None) -> None:
        self.affine = affine
        if shared is None:
            shared = torch.zeros_like(affine.x, dtype=compute_dtype(affine.x.dtype))
        self.x = shared
        self.weight, self.bias = (
            None if t is None else torch.zeros_like(t) for t in (affine.transposed, affine.bias)
        )

    def add(self, nodes: Nodes, x: Tensor, grad: Tensor) -> None:
        r"""Adds the gradients of some nodes with the input :obj:`x`."""
        if self.weight is None or self.affine.weight is None:
            scale = self.affine.scales[0]
            self.x[nodes] += grad if scale == 1.0 else grad * scale
            return
        if isinstance(nodes, slice):
            self.x[nodes].addmm_(grad, self.affine.weight)
        else:
            self.x[nodes] += grad @ self.affine.weight
        self.weight.addmm_(x.t(), grad)
        if self.bias is not None:
            self.bias += grad.sum(0)

    def parameters(self, *lengths: int) -> list[Tensor | None]:
        r"""Returns the gradients of weight and bias of each part, of so many rows each."""
        weight = None if self.weight is None else self.weight.t().contiguous()
        return [
            None if grad is None else grad.split(lengths)[part] * scale
            for part, scale in enumerate(self.affine.scales)
            for grad in (weight, self.bias)
        ]
