r"""Replays the least work of a forward and backward pass: its matrix products, and one copy of
the input and of the output gradient."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PROBE = (
    1009  # nodes, a prime: the sizes that it divides are those that grow with the number of nodes
)
OPERANDS = {
    torch.ops.aten.mm: 0,
    torch.ops.aten.bmm: 0,
    torch.ops.aten.addmm: 1,
    torch.ops.aten.baddbmm: 1,
}  # the first that is multiplied


class Operand(NamedTuple):
    shape: tuple[int, ...]
    transposed: bool

    def at(self, num_nodes: int) -> 'Operand':
        return self._replace(
            shape=tuple(
                size // PROBE * num_nodes if size % PROBE == 0 else size for size in self.shape
            )
        )

    def random(self) -> Tensor:
        *batch, rows, columns = self.shape
        return torch.rand(*batch, columns, rows).mT if self.transposed else torch.rand(self.shape)


class Recorded(TorchDispatchMode):
    r"""Records the operands of all matrix products that run."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Operand, Operand]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if (first := OPERANDS.get(func.overloadpacket)) is not None:
            a, b = (
                Operand(tuple(x.shape), x.stride(-1) != 1 and x.stride(-2) == 1)
                for x in args[first : first + 2]
            )
            self.products.append((a, b))
        return func(*args, **(kwargs or {}))


def matrix_products(forward: Callable[[], Tensor]) -> list[tuple[Operand, Operand]]:
    r"""Records the products of a function over :obj:`PROBE` nodes and of its backward pass."""
    with Recorded() as recorded:
        forward().sum().backward()
    return recorded.products


def replay(
    products: list[tuple[Operand, Operand]], num_nodes: int, channels: int
) -> Callable[[], None]:
    r"""Runs the products and the two copies over :obj:`num_nodes` nodes."""
    sized = [(a.at(num_nodes), b.at(num_nodes)) for a, b in products]
    operands = {operand: operand.random() for pair in sized for operand in pair}
    results = {
        (*a.shape[:-1], b.shape[-1]): torch.empty(*a.shape[:-1], b.shape[-1]) for a, b in sized
    }
    source, target = torch.rand(num_nodes, channels), torch.empty(num_nodes, channels)

    def run() -> None:
        for a, b in sized:
            torch.matmul(operands[a], operands[b], out=results[(*a.shape[:-1], b.shape[-1])])
        for _ in ('input', 'gradient'):
            target.copy_(source)

    return run
