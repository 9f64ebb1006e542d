# N nodes, B graphs, H heads, C channels per head, D channels of a value, M features, R rank of the
# mask.
import os
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_geometric_lgt._io import read_tensors, write_tensors
from torch_geometric_lgt.distributed import all_reduce_max, all_reduce_sum
from torch_geometric_lgt.functional._engine import operators
from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput, kernel_input, value_input
from torch_geometric_lgt.functional.numerics import compute_dtype, neutral
from torch_geometric_lgt.functional.segment import Segments, segments

TENSORS = ('sums', 'maximum', 'squares', 'count', 'query_squares')
ROUNDINGS = 64  # differences of sums below so many roundings are none


class AttentionState:
    r"""Everything that queries need to know of the keys of each graph, whatever their number:

    .. math::
        \mathbf{S}_r = \sum_j b_r(j) \, \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}, \qquad
        \mathbf{z}_r = \sum_j b_r(j) \, \phi(\mathbf{k}_j)

    for a mask :math:`M_{ij} = \sum_r a_r(i) b_r(j)`. Feature :math:`m` of head :math:`h` and graph
    :math:`g` is stored divided by :math:`\exp(c_{ghm})` with :math:`c` the :obj:`maximum` of
    :math:`\log \phi_m(\mathbf{k}_j)` over the nodes of the graph, so that no norm of the keys
    overflows or vanishes. States form a commutative monoid under :meth:`merge` (up to rounding);
    the state of no node is neutral.

    Attributes:
        sums (torch.Tensor): ``[B, H, M, R * (D + 1)]``: :math:`\mathbf{S}_1, \dots, \mathbf{S}_R`,
            then :math:`\mathbf{z}_1, \dots, \mathbf{z}_R`.
        maximum (torch.Tensor): ``[B, H, M]``, without gradient: it cancels in every read.
        squares (torch.Tensor): ``[B, H]``, :math:`\sum_j \|\mathbf{k}_j\|^2`.
        count (torch.Tensor): ``[B]``, the number of nodes.
        query_squares (torch.Tensor): ``[B, H]``, :math:`\sum_j \|\mathbf{q}_j\|^2`, 0 where no norm
            over the queries of a graph is needed.
        rank (int): :math:`R`.
        samples (int): :math:`K`: the features are those of :math:`K` weightings of the keys, whose
            reads are averaged, ``M = K * M'``.
    """

    def __init__(
        self,
        sums: Tensor,
        maximum: Tensor,
        squares: Tensor,
        count: Tensor,
        rank: int = 1,
        samples: int = 1,
        query_squares: Tensor | None = None,
    ) -> None:
        if (
            sums.dim() != 4
            or maximum.shape != sums.shape[:3]
            or squares.shape != sums.shape[:2]
            or count.shape != sums.shape[:1]
        ):
            shapes = ', '.join(str(tuple(t.shape)) for t in (sums, maximum, squares, count))
            raise ValueError(
                "'sums', 'maximum', 'squares', 'count' must have shapes [B, H, M, W], [B, H, M], "
                f'[B, H], [B] (got {shapes})'
            )
        self.sums, self.maximum, self.squares, self.count, self.rank, self.samples = (
            sums,
            maximum,
            squares,
            count,
            rank,
            samples,
        )
        self.query_squares = torch.zeros_like(squares) if query_squares is None else query_squares

    @property
    def numerator(self) -> Tensor:
        r""":math:`\mathbf{S}` ``[B, H, M, R, D]``, scaled by :math:`\exp(-c)`."""
        return self.sums[..., : -self.rank].unflatten(-1, (self.rank, -1))

    @property
    def denominator(self) -> Tensor:
        r""":math:`\mathbf{z}` ``[B, H, M, R]``, scaled by :math:`\exp(-c)`."""
        return self.sums[..., -self.rank :]

    @classmethod
    def from_keys(
        cls,
        k: Tensor,
        v: Tensor,
        feature_map: str = 'softmax',
        projection: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        scale: float = 1.0,
        power: float = 3.0,
        key_mask: Tensor | None = None,
        key_noise: Tensor | None = None,
    ) -> 'AttentionState':
        r"""The state of the keys ``[N, H, C]`` and values ``[N, H, D]``; arguments as in
        :meth:`~torch_geometric_lgt.functional.kernel_attention`, which equals :meth:`read` of this
        state.

        Raises:
            ValueError: If a shape, :obj:`feature_map`, :obj:`projection` or :obj:`batch` does not
                fit.
        """
        keys = kernel_input(k, key_mask, feature_map, projection, scale, power, noise=key_noise)
        return build_state(
            keys, value_input(v, k), segments(batch, k.size(0), batch_size, k.device)
        )

    def read(
        self,
        q: Tensor,
        feature_map: str = 'softmax',
        projection: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        scale: float = 1.0,
        power: float = 3.0,
        query_mask: Tensor | None = None,
    ) -> Tensor:
        r"""The attention output ``[N, H, D]`` of each query ``[N, H, C]`` over the keys of its
        graph; 0 where there is none.

        Raises:
            ValueError: If the state has another number of graphs, heads, features or ranks than the
                queries, or an argument does not fit.
        """
        queries = kernel_input(q, query_mask, feature_map, projection, scale, power, self.samples)
        nodes = segments(batch, q.size(0), None if batch is None else self.count.size(0), q.device)
        return read_state(self, queries, nodes).unflatten(1, (q.size(1), -1))

    def merge(self, other: 'AttentionState') -> 'AttentionState':
        r"""The state of the nodes of both, graph by graph.

        Raises:
            ValueError: If the two states are not of the same graphs, heads, features and channels.
        """
        if self.sums.shape != other.sums.shape or (self.rank, self.samples) != (
            other.rank,
            other.samples,
        ):
            raise ValueError(
                "'other' must have the graphs, heads, features, channels and samples of this "
                f'state (got {other} and {self})'
            )
        maximum = torch.maximum(self.maximum, other.maximum)
        ours, theirs = (
            state.sums * (state.maximum - maximum).exp().unsqueeze(-1) for state in (self, other)
        )
        squares = self.squares + other.squares, self.query_squares + other.query_squares
        return self._like(ours + theirs, maximum, self.count + other.count, *squares)

    def without(self, other: 'AttentionState') -> 'AttentionState':
        r"""The state of the nodes of this state that are not among those of :obj:`other`, whose
        nodes must all be in this one with the same keys and values. What is left is a difference:
        build both states in double precision where a few keys outweigh the rest. Sums below 64
        roundings of what they are subtracted from are 0, so that nodes without weight read 0. A
        graph without nodes left is empty exactly.

        Raises:
            ValueError: As in :meth:`merge`, or if :obj:`other` has more nodes of a graph.
        """
        if other.count.shape == self.count.shape and bool((other.count > self.count).any()):
            raise ValueError(
                f"'other' must hold some of the nodes of this state (got {other.count.tolist()} of "
                f'{self.count.tolist()})'
            )
        minus = other._like(
            -other.sums, other.maximum, -other.count, -other.squares, -other.query_squares
        )
        left = self.merge(minus)
        rounding = (
            ROUNDINGS
            * torch.finfo(self.sums.dtype).eps
            * (self.maximum - left.maximum).exp().unsqueeze(-1)
            * self.sums.abs()
        )
        remainder = torch.where(left.sums.abs() < rounding, left.sums, 0)
        sums, gone = left.sums - remainder.detach(), left.count == 0
        maximum = left.maximum.masked_fill(gone[:, None, None], neutral(left.maximum.dtype))
        squares = (
            part.clamp(min=0).masked_fill(gone[:, None], 0)
            for part in (left.squares, left.query_squares)
        )
        return left._like(
            sums.masked_fill(gone[:, None, None, None], 0), maximum, left.count, *squares
        )

    def scaled(self, factor: Tensor) -> 'AttentionState':
        r"""The state with its features multiplied by :obj:`factor` ``[B, H, M]``, as it is read;
        such states do not merge."""
        return self._like(
            self.sums * factor.unsqueeze(-1),
            self.maximum,
            self.count,
            self.squares,
            self.query_squares,
        )

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> 'AttentionState':
        r"""The state of the nodes of all processes of :obj:`group` (:obj:`None`: the default
        group), by a maximum and one packed sum.

        Every process must call it for the same graphs, one without nodes included. The gradient is
        that of the sum of all processes' losses.

        Raises:
            RuntimeError: If :mod:`torch.distributed` is not initialised, or a process is lost
                (after the timeout of the group).
        """
        maximum = all_reduce_max(self.maximum, group)
        sums = self.sums * (self.maximum - maximum).exp().unsqueeze(-1)
        # whole numbers up to 2^36 pass a float32 sum exactly in two parts
        high, low = self.count // 4096, self.count % 4096
        parts = [sums, self.squares, self.query_squares, high.to(sums.dtype), low.to(sums.dtype)]
        total = all_reduce_sum(torch.cat([part.flatten() for part in parts]), group).split(
            [part.numel() for part in parts]
        )
        sums, squares, query_squares, high, low = (
            one.view_as(part) for one, part in zip(total, parts, strict=True)
        )
        count = high.detach().round().long() * 4096 + low.detach().round().long()
        return self._like(sums, maximum, count, squares, query_squares)

    def detach(self) -> 'AttentionState':
        r"""The same state, cut from the graph of gradients."""
        return self._like(
            self.sums.detach(),
            self.maximum,
            self.count,
            self.squares.detach(),
            self.query_squares.detach(),
        )

    def to(self, *args: Any, **kwargs: Any) -> 'AttentionState':
        r"""The state on another device or in another floating-point dtype, as
        :meth:`torch.Tensor.to`; counts stay whole numbers."""
        moved = self.sums.to(*args, **kwargs)
        floor = max(neutral(dtype) for dtype in (moved.dtype, self.maximum.dtype))
        maximum = self.maximum.clamp(min=floor).to(moved.device, moved.dtype)
        squares = (
            part.to(moved.device, moved.dtype) for part in (self.squares, self.query_squares)
        )
        return self._like(moved, maximum, self.count.to(moved.device), *squares)

    def state_dict(self) -> dict[str, Tensor]:
        r"""The tensors by name, to be written by any checkpoint format."""
        whole = {name: torch.tensor(getattr(self, name)) for name in ('rank', 'samples')}
        return {name: getattr(self, name) for name in TENSORS} | whole

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> 'AttentionState':
        r"""The inverse of :meth:`state_dict`.

        Raises:
            ValueError: If a tensor is missing or the shapes do not fit together.
        """
        missing = {*TENSORS, 'rank', 'samples'} - set(state)
        if missing:
            raise ValueError(f"'state' lacks {sorted(missing)}; pass what 'state_dict' returned")
        return cls(
            **{name: state[name] for name in TENSORS},
            rank=int(state['rank']),
            samples=int(state['samples']),
        )

    def save(self, path: str | os.PathLike) -> None:
        r"""Writes the state to a safetensors file with a version and a checksum, atomically.

        Raises:
            OSError: If the file cannot be written; none is left half-written.
        """
        write_tensors(path, self.state_dict(), 'attention_state')

    @classmethod
    def load(cls, path: str | os.PathLike) -> 'AttentionState':
        r"""Reads what :meth:`save` wrote, without unpickling anything.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged, of another kind or of another version.
        """
        return cls.from_state_dict(read_tensors(path, 'attention_state'))

    def _like(
        self, sums: Tensor, maximum: Tensor, count: Tensor, squares: Tensor, query_squares: Tensor
    ) -> 'AttentionState':
        return AttentionState(sums, maximum, squares, count, self.rank, self.samples, query_squares)

    def __repr__(self) -> str:
        graphs, heads, features, width = self.sums.shape
        sizes = (
            f'graphs={graphs}, heads={heads}, features={features}, '
            f'channels={width // self.rank - 1}, rank={self.rank}'
        )
        sizes += f', samples={self.samples}' if self.samples > 1 else ''
        return f'{self.__class__.__name__}({sizes})'


def build_state(keys: KernelInput, values: ValueInput, nodes: Segments) -> AttentionState:
    r"""The state of keys and values whose linear parts are evaluated on the way."""
    built = operators.BuildArguments(keys=keys.aligned(), values=values.aligned(), nodes=nodes)
    sums, maximum, squares = operators.build_state(built)
    return AttentionState(sums, maximum, squares, nodes.sizes, keys.rank(), keys.samples)


def read_state(state: AttentionState, queries: KernelInput, nodes: Segments) -> Tensor:
    r"""The output ``[N, H * D]`` of queries whose linear part is evaluated on the way."""
    check_readable(state, queries, nodes)
    read = operators.ReadArguments(
        queries=queries.aligned(), nodes=nodes, sums=state.sums, maximum=state.maximum
    )
    return operators.read_state(read)[0]


def sums_of_squares(side: KernelInput, nodes: Segments) -> Tensor:
    r"""``[B, H]``, of the queries or keys of each graph: a state without values holds little
    else."""
    plain = replace(
        side, mask=None, projection=None, kind='values', noise=None, samples=1, self_value=None
    )
    nothing = ValueInput(x=side.x, weight=side.x.new_empty((0, side.x.size(1))))
    return build_state(plain, nothing, nodes).squares


def check_readable(state: AttentionState, queries: KernelInput, nodes: Segments) -> None:
    r"""Raises a ValueError unless the queries can read the state."""
    check_fit(queries, nodes, (*state.sums.shape[:3], state.rank, state.samples))
    need, given = (
        (compute_dtype(queries.x.dtype), queries.x.device),
        (state.sums.dtype, state.sums.device),
    )
    if given != need:
        raise ValueError(
            f"'state' must be of {need[0]} on {need[1]} (got {given[0]} on {given[1]}); use "
            f'state.to({str(need[1])!r}, {need[0]})'
        )


def check_fit(queries: KernelInput, nodes: Segments, held: tuple[int, ...]) -> None:
    given = (
        nodes.sizes.size(0),
        queries.heads,
        queries.num_features(),
        queries.rank(),
        queries.samples,
    )
    if given != held:
        raise ValueError(
            "'state' must have the graphs, heads, features, rank and samples of the queries, "
            f'{given} (got {held})'
        )
