# G graphs of n nodes each, H heads, C channels per head, M features.
import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.layout import Nodes, by_graph, by_head, take
from torch_geometric_lgt.functional.numerics import compute_dtype


class Affine:
    r"""Evaluates several linear parts of the same input :obj:`x` ``[N, F]`` by one matrix product,
    for some rows at a time.

    A linear part is a Linear layer, given as a tuple: weight ``[C, F]``, bias ``[C]`` and a factor
    of both. If no part has a weight, the result is the input times the factor of the first part.
    """

    def __init__(self, x: Tensor, *parts: tuple[Tensor | None, Tensor | None, float]) -> None:
        self.x = x
        self.scales = [scale for _, _, scale in parts]
        self.weight = _joined([(weight, scale) for weight, _, scale in parts])
        self.transposed = None if self.weight is None else self.weight.t()
        self.bias = _joined([(bias, scale) for _, bias, scale in parts])

    def __call__(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        r"""Returns the input ``[n, F]`` of the rows :obj:`nodes` in the dtype of sums, and the
        outputs of all linear parts side by side, ``[n, C_1 + C_2 + ..]``."""
        x = take(self.x, nodes)
        if self.transposed is None:
            return x, x if self.scales[0] == 1.0 else x * self.scales[0]
        if self.bias is None:
            return x, x @ self.transposed
        return x, torch.addmm(self.bias, x, self.transposed)


def _joined(parts: list[tuple[Tensor | None, float]]) -> Tensor | None:
    r"""Returns the tensors of :obj:`parts` times their factors, one below the other; :obj:`None` if
    there are none."""
    tensors = [x if scale == 1.0 else x * scale for x, scale in parts if x is not None]
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0] if tensors else None


class AffineGrad:
    r"""Accumulates the gradients of input, weights and biases of an :class:`Affine` over chunks of
    rows. The gradient of the input is added to the tensor :obj:`shared` ``[N, F]``, if given, else
    to new zeros."""

    def __init__(self, affine: Affine, shared: Tensor | None = None) -> None:
        self.affine = affine
        if shared is None:
            shared = torch.zeros_like(affine.x, dtype=compute_dtype(affine.x.dtype))
        self.x = shared
        self.weight, self.bias = (
            None if t is None else t.new_zeros(t.shape) for t in (affine.transposed, affine.bias)
        )

    def add(self, nodes: Nodes, x: Tensor, grad: Tensor) -> None:
        r"""Adds the gradients of the rows :obj:`nodes` in place. :obj:`x` ``[n, F]`` is their input
        and :obj:`grad` ``[n, C_1 + C_2 + ..]`` the gradient of the outputs, both as :class:`Affine`
        returned them."""
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
        r"""Returns the gradients of weight and bias of the first linear part, then of the second,
        and so on; :obj:`None` where there is none. :obj:`lengths` are the numbers of rows of the
        weights."""
        weight = None if self.weight is None else self.weight.t().contiguous()
        return [
            None if grad is None else grad.split(lengths)[part] * scale
            for part, scale in enumerate(self.affine.scales)
            for grad in (weight, self.bias)
        ]


class HeadProjection:
    r"""Multiplies queries or keys by the matrix ``[M, C]`` of their head. Without
    :obj:`matrices` ``[H, M, C]`` it returns them unchanged."""

    def __init__(self, matrices: Tensor | None) -> None:
        self.matrices = matrices
        self.transposed = None if matrices is None else matrices.transpose(1, 2)

    def __call__(self, x: Tensor) -> Tensor:
        r"""Returns ``[G, H, n, M]`` for queries or keys :obj:`x` ``[G, H, n, C]``."""
        return x if self.transposed is None else x @ self.transposed


class HeadProjectionGrad:
    r"""Accumulates the gradient of the matrices of a :class:`HeadProjection` over chunks of
    rows."""

    def __init__(self, projection: HeadProjection) -> None:
        self.projection, transposed = projection, projection.transposed
        # [H, C, M], wide by features: the faster shape of the product
        self.transposed = None if transposed is None else transposed.new_zeros(transposed.shape)

    def add(self, x: Tensor, grad: Tensor) -> Tensor:
        r"""Adds the gradient of the matrices in place and returns the gradient ``[G, H, n, C]`` of
        :obj:`x`. :obj:`grad` ``[G, H, n, M]`` is the gradient of the products."""
        if self.transposed is None or self.projection.matrices is None:
            return grad
        head_grad = by_head(grad)
        self.transposed += by_head(x).transpose(1, 2) @ head_grad
        return by_graph(head_grad @ self.projection.matrices, x.size(0))

    def result(self) -> Tensor | None:
        r"""Returns the gradient ``[H, M, C]`` of the matrices, :obj:`None` without matrices."""
        return None if self.transposed is None else self.transposed.transpose(1, 2).contiguous()
