# N nodes, H heads of a branch, C channels per head.
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.numerics import without_autocast
from torch_geometric_lgt.nn._layers.input_checks import check_not_negative

KERNELS = ('softmax', 'jaccard', 'subtractor', 'mean')
KERNELS_WITH_QUERIES = ('softmax', 'subtractor')


class Branch(NamedTuple):
    r"""Describes consecutive heads with the same kernel.

    Attributes:
        kernel (str): A kernel in :obj:`KERNELS`.
        heads (slice): The heads of the branch among all heads.
        channels (slice): The channels of the branch in queries and keys, none for a kernel without
            queries.
        num_heads (int): :math:`H`.
    """

    kernel: str
    heads: slice
    channels: slice
    num_heads: int

    @property
    def has_queries(self) -> bool:
        return self.kernel in KERNELS_WITH_QUERIES

    def select(self, part: LinearInput) -> LinearInput:
        r"""Selects the channels of the branch from the linear part :obj:`part` of all queries or
        keys, which is that of the branch if no other has any."""
        if self.channels == slice(0, part.channels(1)):
            return part
        if part.weight is None:
            return LinearInput(x=part.x[:, self.channels])
        bias = None if part.bias is None else part.bias[self.channels]
        return LinearInput(x=part.x, weight=part.weight[self.channels], bias=bias)

    def output(self, part: LinearInput) -> Tensor:
        r"""Computes the queries or keys of the branch, ``[N, H * C]``, in at least single
        precision. Rounded ones would give the difference of close numbers the wrong sign, and the
        distance of the subtractor a gradient of the wrong sign."""
        with without_autocast(part.x.device.type):
            return self.select(part).output()


def kernel_pair(kernel: str | tuple[str, str]) -> tuple[str, str]:
    r"""Returns the kernels of both halves of the heads; a name stands for the second half beside a
    softmax.

    Raises:
        ValueError: If there are not two kernels, or one is unknown.
    """
    kernels = ('softmax', kernel) if isinstance(kernel, str) else kernel
    if not isinstance(kernels, Sequence) or len(kernels) != 2:
        raise ValueError(
            f"'kernel' must be one or two of {', '.join(map(repr, KERNELS))} (got {kernel!r})"
        )
    for name in kernels:
        check_choice('kernel', name, KERNELS, ', or two of them')
    return kernels[0], kernels[1]


def query_channels(kernels: tuple[str, str], channels: int) -> int:
    r"""Returns how many of the :obj:`channels` of all heads belong to kernels with queries."""
    return sum(name in KERNELS_WITH_QUERIES for name in kernels) * channels // 2


def make_branches(kernels: tuple[str, str], heads: int, head_channels: int) -> tuple[Branch, ...]:
    r"""Splits the :obj:`heads` of a layer, with :obj:`head_channels` each, into branches. Each
    kernel has half of the heads; twice the same kernel is one branch."""
    kernels_of_branches = dict.fromkeys(kernels)
    num_heads = heads // len(kernels_of_branches)
    out = []
    stop = 0
    for index, kernel in enumerate(kernels_of_branches):
        start = stop
        stop += num_heads * head_channels if kernel in KERNELS_WITH_QUERIES else 0
        branch_heads = slice(index * num_heads, (index + 1) * num_heads)
        out.append(Branch(kernel, branch_heads, slice(start, stop), num_heads))
    return tuple(out)


def check_edge_channels(kernels: tuple[str, str], edge_channels: int) -> None:
    r"""Raises a ValueError if the size :obj:`edge_channels` of the features of edges is negative,
    or positive for kernels without scores that the features could multiply."""
    check_not_negative(edge_channels=edge_channels)
    if edge_channels > 0 and query_channels(kernels, 2) == 0:
        raise ValueError(
            f"'edge_channels' must be 0 for kernels without queries and keys, {kernels} (got "
            f'{edge_channels})'
        )
