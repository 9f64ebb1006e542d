# N nodes, B graphs, H heads, C channels per head, D channels of a value, M features, R rank of the
# mask.
import os
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_geometric_lgt._io import read_tensors, write_tensors
from torch_geometric_lgt.distributed import (
    all_reduce_max,
    all_reduce_sum,
    count_from_parts,
    count_parts,
)
from torch_geometric_lgt.functional._engine import operators, plain
from torch_geometric_lgt.functional._engine.dispatch import is_traced_small
from torch_geometric_lgt.functional.attention.state_checks import check_mergeable, check_readable
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput, no_values
from torch_geometric_lgt.functional.numerics import neutral
from torch_geometric_lgt.functional.segment import Segments, segments
from torch_geometric_lgt.functional.tensor_inputs import kernel_input, value_input

TENSORS = ('sums', 'maximum', 'squares', 'count', 'query_squares')
ENTRIES = (*TENSORS, 'rank', 'samples', 'projection')  # of a state dict
SQUARES = ('squares', 'query_squares')
ROUNDINGS = 64  # differences of sums below so many roundings are none


class AttentionState:
    r"""Stores the sums over all keys of each graph from which queries compute their attention.

    :meth:`from_keys` builds it, or the method ``attention_state`` of a layer; :meth:`read` and the
    layers' argument ``state`` use it. The sums are

    .. math::
        \mathbf{S}_r = \sum_j b_r(j) \, \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}, \qquad
        \mathbf{z}_r = \sum_j b_r(j) \, \phi(\mathbf{k}_j)

    over the keys :math:`j` of a graph, for a mask :math:`M_{ij} = \sum_r a_r(i) b_r(j)` (Eq. 6 and
    12 of `MGFormer <https://arxiv.org/abs/2405.04028>`_); without a mask :math:`R = b_1(j) = 1`.
    Feature :math:`m` is stored divided by :math:`\exp(c_m)` for each graph and head, so that sums
    neither overflow nor vanish, whatever the norm of the keys. Here :math:`c_m`, the
    :obj:`maximum`, is the largest exponent of the feature over the nodes of the graph; it is 0 for
    maps without exponentials. Outputs do not depend on it, because it cancels. States may be merged
    (:meth:`merge`) in any order, with the same result up to rounding; merging the state of no node
    changes nothing.

    Args:
        sums (torch.Tensor): ``[B, H, M, R * (D + 1)]``: :math:`\mathbf{S}_1, \dots, \mathbf{S}_R`
            (see :attr:`numerator`), then :math:`\mathbf{z}_1, \dots, \mathbf{z}_R` (see
            :attr:`denominator`).
        maximum (torch.Tensor): :math:`c_m`, ``[B, H, M]``, without gradient.
        squares (torch.Tensor): ``[B, H]``, :math:`\sum_j \|\mathbf{k}_j\|^2` of the keys times
            :obj:`scale`, from which SGFormer and DIFFormer compute the Frobenius norm of the keys;
            other attentions do not read it.
        count (torch.Tensor): ``[B]`` in int64, the number of keys.
        rank (int, optional): :math:`R`, 1 without a mask. (default: :obj:`1`)
        samples (int, optional): :math:`K`, the number of samples of NodeFormer's Gumbel noise; 1
            without noise. :math:`M` is :math:`K` times the number of features of a key, sample by
            sample, and outputs are the mean over the samples. (default: :obj:`1`)
        query_squares (torch.Tensor, optional): ``[B, H]``, :math:`\sum_j \|\mathbf{q}_j\|^2` over
            the queries of the same nodes, for the Frobenius norms of SGFormer and DIFFormer.
            (default: :obj:`None`, zeros, as other attentions do not read them)

    Raises:
        ValueError: If the shapes of the tensors do not fit each other.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import AttentionState
        >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
        >>> state = AttentionState.from_keys(k, v, 'relu')
        >>> state
        AttentionState(graphs=1, heads=1, features=2, channels=1, rank=1)
        >>> state.count
        tensor([4])
    """

    num_left_out: int | None = None  # set by AttentionMemory.without
    has_noise: bool | None = None  # set by layers with a feature map and AttentionMemory
    projection: Tensor | None = None  # the random vectors [M, C] of the keys, set by the same

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
        self.sums, self.maximum = sums, maximum
        self.squares, self.count = squares, count
        self.rank, self.samples = rank, samples
        self.query_squares = torch.zeros_like(squares) if query_squares is None else query_squares
        if self.query_squares.shape != squares.shape:
            raise ValueError(
                f"'query_squares' must have the shape of 'squares', {tuple(squares.shape)} (got "
                f'{tuple(self.query_squares.shape)})'
            )

    @property
    def numerator(self) -> Tensor:
        r"""Returns the sums :math:`\exp(-c_m) \, \mathbf{S}_r` over the keys, ``[B, H, M, R, D]``,
        as they are stored.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.tensor([[[0.0]], [[1.0]]]), torch.tensor([[[1.0]], [[3.0]]])
            >>> state = AttentionState.from_keys(k, v, 'logits')  # c = 1
            >>> state.numerator.flatten()  # 1 / e + 3
            tensor([3.3679])
            >>> (state.maximum.exp()[..., None, None] * state.numerator).flatten()  # 1 + 3 e
            tensor([9.1548])
        """
        return self.sums[..., : -self.rank].unflatten(-1, (self.rank, -1))

    @property
    def denominator(self) -> Tensor:
        r"""Returns the sums :math:`\exp(-c_m) \, \mathbf{z}_r` over the keys, ``[B, H, M, R]``, as
        they are stored.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.tensor([[[0.0]], [[1.0]]]), torch.tensor([[[1.0]], [[3.0]]])
            >>> state = AttentionState.from_keys(k, v, 'logits')  # c = 1
            >>> state.denominator.flatten()  # 1 / e + 1
            tensor([1.3679])
        """
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
        r"""Builds the state (the sums over all keys of each graph) of keys ``[N, H, C]`` and values
        ``[N, H, D]``. Arguments have the meaning they have in
        :meth:`~torch_geometric_lgt.functional.kernel_attention`: the maps that need a
        :obj:`projection` there, such as the default :obj:`"softmax"`, need it here. With the same
        map and queries, :meth:`read` returns the output of that function.

        Raises:
            ValueError: If a shape, :obj:`feature_map`, :obj:`projection` or :obj:`batch` does not
                fit.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState, kernel_attention
            >>> _ = torch.manual_seed(0)
            >>> q, k, v = torch.randn(3, 6, 1, 2).unbind()
            >>> batch = torch.tensor([0, 0, 0, 1, 1, 1])
            >>> state = AttentionState.from_keys(k, v, 'elu', batch=batch)
            >>> out = kernel_attention(q, k, v, 'elu', batch=batch)
            >>> torch.allclose(state.read(q, 'elu', batch=batch), out, atol=1e-6)
            True
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
        r"""Computes the attention output ``[N, H, D]`` of each query ``[N, H, C]`` over the keys of
        its graph, 0 for a graph without keys:

        .. math::
            \mathbf{h}_i = \frac{\sum_r a_r(i) \, \mathbf{S}_r^{\top} \phi(\mathbf{q}_i)}
            {\sum_r a_r(i) \, \mathbf{z}_r^{\top} \phi(\mathbf{q}_i)}

        Arguments have the same meaning as in
        :meth:`~torch_geometric_lgt.functional.kernel_attention`, with :obj:`batch` the graph id of
        each query; without it the state must be of one graph. The feature map, projection, scale
        and power must be the same as in :meth:`from_keys`: the state does not store them, and
        others give wrong outputs without an error.

        Raises:
            ValueError: If a graph id is not below the number of graphs in the state. If the state
                has other heads, features or another rank than the queries, or an argument does not
                fit.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])
            >>> v = torch.tensor([1.0, 2.0, 9.0]).view(3, 1, 1)
            >>> state = AttentionState.from_keys(k, v, 'relu')
            >>> state.read(torch.tensor([[[1.0, 0.0]], [[1.0, 1.0]]]), 'relu').flatten()
            tensor([1.5000, 4.0000])
        """
        queries = kernel_input(q, query_mask, feature_map, projection, scale, power, self.samples)
        num_graphs = None if batch is None else self.count.size(0)
        nodes = segments(batch, q.size(0), num_graphs, q.device, is_of_state=True)
        return read_state(self, queries, nodes).unflatten(1, (q.size(1), -1))

    def merge(self, other: 'AttentionState') -> 'AttentionState':
        r"""Returns the state of the keys of both states together, graph by graph:

        .. math::
            c = \max(c^{(1)}, c^{(2)}), \qquad \bar{z} = e^{c^{(1)} - c} \, \bar{z}^{(1)} +
                e^{c^{(2)} - c} \, \bar{z}^{(2)}

        with the stored sums :math:`\bar{z} = e^{-c} z`, likewise those with values, and the maxima
        :math:`c` of the two states and of the result. The attributes :obj:`count`, :obj:`squares`
        and :obj:`query_squares` are added.

        Raises:
            TypeError: If :obj:`other` is no state.
            ValueError: If the two states differ in the number of graphs, heads, features or
                channels, in the rank or in the samples.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> first = AttentionState.from_keys(k[:2], v[:2], 'relu')
            >>> second = AttentionState.from_keys(k[2:], v[2:], 'relu')
            >>> merged = first.merge(second)
            >>> torch.equal(merged.sums, AttentionState.from_keys(k, v, 'relu').sums)
            True
        """
        check_mergeable('other', other, self)
        maximum = torch.maximum(self.maximum, other.maximum)
        return self._replace(
            sums=self._sums_relative_to(maximum) + other._sums_relative_to(maximum),
            maximum=maximum,
            count=self.count + other.count,
            squares=self.squares + other.squares,
            query_squares=self.query_squares + other.query_squares,
        )

    def without(self, other: 'AttentionState') -> 'AttentionState':
        r"""Returns this state without the nodes of :obj:`other`. This state must contain each of
        these nodes, with the same key and value.

        Subtraction loses precision if few keys dominate; then build both states in float64. An
        entry of the difference below 64 machine epsilons times the entry of this state is set to 0.
        The output is therefore 0 if the features of all remaining nodes are 0. A graph that loses
        all nodes is exactly empty.

        Raises:
            TypeError: If :obj:`other` is no state.
            ValueError: As in :meth:`merge`, or if :obj:`other` has more nodes of a graph than this
                state.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> state = AttentionState.from_keys(k, v, 'relu')
            >>> rest = state.without(AttentionState.from_keys(k[:1], v[:1], 'relu'))
            >>> rest.count
            tensor([3])
            >>> rest.read(torch.ones(1, 1, 2), 'relu').flatten()
            tensor([2.])
        """
        check_mergeable('other', other, self)
        if bool((other.count > self.count).any()):
            raise ValueError(
                f"'other' must hold some of the nodes of this state (got {other.count.tolist()} of "
                f'{self.count.tolist()})'
            )
        minus = {name: -getattr(other, name) for name in TENSORS if name != 'maximum'}
        rest = self.merge(other._replace(**minus))
        eps = torch.finfo(self.sums.dtype).eps
        rounding = ROUNDINGS * eps * self._sums_relative_to(rest.maximum).abs()
        error = torch.where(rest.sums.abs() < rounding, rest.sums, 0)
        empty = rest.count == 0
        sums = (rest.sums - error.detach()).masked_fill(empty[:, None, None, None], 0)
        squares = {
            name: getattr(rest, name).clamp(min=0).masked_fill(empty[:, None], 0)
            for name in SQUARES
        }
        maximum = rest.maximum.masked_fill(empty[:, None, None], neutral(rest.maximum.dtype))
        return rest._replace(sums=sums, maximum=maximum, **squares)

    def scaled(self, factor: Tensor) -> 'AttentionState':
        r"""Returns this state with features multiplied by :obj:`factor` ``[B, H, M]``, as SGFormer
        and DIFFormer divide by their norms. Call :meth:`merge` and :meth:`all_reduce` before this
        method: the factor stays in the sums, and a merge of states with different factors is wrong
        without an error.

        Raises:
            ValueError: If :obj:`factor` has another shape.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> state = AttentionState.from_keys(k, v, 'relu')
            >>> state.scaled(torch.tensor([[[1.0, 0.5]]])).denominator.flatten()
            tensor([4., 2.])
        """
        if factor.shape != self.maximum.shape:
            raise ValueError(
                f"'factor' must have shape {tuple(self.maximum.shape)} (got {tuple(factor.shape)})"
            )
        return self._replace(sums=self.sums * factor.unsqueeze(-1))

    def all_reduce(self, group: dist.ProcessGroup | None = None) -> 'AttentionState':
        r"""Returns the state of the keys of all processes in :obj:`group` together (:obj:`None`:
        the default group). It takes one maximum and one packed sum over the processes.

        Every process must call this method for the same graphs, even a process without nodes.
        Gradients are the derivatives of the sum of the losses of all processes.

        Raises:
            TypeError: If :obj:`group` is no group that has this process.
            ValueError: If :mod:`torch.distributed` is not initialised.
            RuntimeError: If a process is lost, after the timeout of the group.

        Example:
            >>> import torch
            >>> import torch.distributed as dist
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> AttentionState.from_keys(k, v, 'relu').all_reduce().count
            tensor([4])
            >>> dist.destroy_process_group()
        """
        maximum = all_reduce_max(self.maximum, group)
        sums = self._sums_relative_to(maximum)
        local = [sums, self.squares, self.query_squares, count_parts(self.count, sums.dtype)]
        total = all_reduce_sum(torch.cat([part.flatten() for part in local]), group)
        totals = total.split([part.numel() for part in local])
        sums, squares, query_squares, counts = (
            total.view_as(part) for total, part in zip(totals, local, strict=True)
        )
        return self._replace(
            sums=sums,
            maximum=maximum,
            count=count_from_parts(counts),
            squares=squares,
            query_squares=query_squares,
        )

    def detach(self) -> 'AttentionState':
        r"""Returns a state with the same tensors, detached from the graph of gradients as by
        :meth:`torch.Tensor.detach`.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> state = AttentionState.from_keys(k.requires_grad_(), v, 'relu')
            >>> state.sums.requires_grad, state.detach().sums.requires_grad
            (True, False)
        """
        return self._marked(**{name: getattr(self, name).detach() for name in TENSORS})

    def to(self, *args: Any, **kwargs: Any) -> 'AttentionState':
        r"""Returns the state on another device or in another floating-point dtype. It takes
        the arguments of :meth:`torch.Tensor.to`. Counts stay int64.

        Raises:
            ValueError: If the dtype is not of floating point.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> state = AttentionState.from_keys(k, v, 'relu').to(torch.float64)
            >>> state.sums.dtype, state.count.dtype
            (torch.float64, torch.int64)
        """
        sums = self.sums.to(*args, **kwargs)
        if not sums.is_floating_point():
            raise ValueError(f"'dtype' must be of floating point (got {sums.dtype})")
        floor = max(neutral(dtype) for dtype in (sums.dtype, self.maximum.dtype))
        maximum = self.maximum.clamp(min=floor).to(sums.device, sums.dtype)
        squares = {name: getattr(self, name).to(sums.device, sums.dtype) for name in SQUARES}
        count = self.count.to(sums.device)
        state = self._marked(sums=sums, maximum=maximum, count=count, **squares)
        if self.projection is not None:
            state.projection = self.projection.to(sums.device, sums.dtype)
        return state

    def state_dict(self) -> dict[str, Tensor]:
        r"""Returns all attributes as tensors by name, for any checkpoint format, and the random
        vectors :obj:`projection` of the keys of a layer, else an empty tensor.
        :meth:`from_state_dict` makes the state again.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> sorted(AttentionState.from_keys(k, v, 'relu').state_dict())[:4]
            ['count', 'maximum', 'projection', 'query_squares']
        """
        numbers = {'rank': self.rank, 'samples': self.samples}
        whole = {name: torch.tensor(number, device='cpu') for name, number in numbers.items()}
        projection = self.sums.new_empty(0, 0) if self.projection is None else self.projection
        tensors = {name: getattr(self, name) for name in TENSORS}
        return tensors | whole | {'projection': projection}

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> 'AttentionState':
        r"""Returns the state whose :meth:`state_dict` is :obj:`state`.

        Raises:
            ValueError: If a tensor is missing or the shapes do not fit together.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> state = AttentionState.from_keys(k, v, 'relu')
            >>> AttentionState.from_state_dict(state.state_dict())
            AttentionState(graphs=1, heads=1, features=2, channels=1, rank=1)
        """
        missing = {*ENTRIES} - set(state)
        if missing:
            raise ValueError(f"'state' lacks {sorted(missing)}; pass what 'state_dict' returned")
        made = cls(
            **{name: state[name] for name in TENSORS},
            rank=int(state['rank']),
            samples=int(state['samples']),
        )
        made.projection = state['projection'] if state['projection'].numel() > 0 else None
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        r"""Writes the state to a safetensors file with the version of the format and a checksum,
        atomically. :meth:`load` reads the file.

        Args:
            path (str or Path): The file. An existing file is replaced.

        Raises:
            OSError: If the file cannot be written. No half-written file remains.

        Example:
            >>> import os, tempfile, torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     AttentionState.from_keys(k, v, 'relu').save(os.path.join(folder, 'keys.state'))
            ...     os.listdir(folder)
            ['keys.state']
        """
        write_tensors(path, self.state_dict(), 'attention_state')

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> 'AttentionState':
        r"""Reads the state from a file that :meth:`save` wrote, without unpickling anything. Its
        tensors are on the CPU.

        Args:
            path (str or Path): The file.

        Returns:
            AttentionState: The state, on the CPU.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file is damaged, contains something else or has an unsupported
                version.

        Example:
            >>> import os, tempfile, torch
            >>> from torch_geometric_lgt.functional import AttentionState
            >>> k, v = torch.ones(4, 1, 2), torch.arange(4.0).view(4, 1, 1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = os.path.join(folder, 'keys.state')
            ...     AttentionState.from_keys(k, v, 'relu').save(path)
            ...     AttentionState.load(path).count
            tensor([4])
        """
        return cls.from_state_dict(read_tensors(path, 'attention_state'))

    def _sums_relative_to(self, maximum: Tensor) -> Tensor:
        r"""Returns the sums as a state with another :obj:`maximum` ``[B, H, M]`` stores them."""
        return self.sums * (self.maximum - maximum).exp().unsqueeze(-1)

    def _replace(self, **changes: Tensor) -> 'AttentionState':
        r"""Returns a state with other tensors for the attributes named in :obj:`changes`, of keys
        with the same random vectors."""
        tensors = {name: getattr(self, name) for name in TENSORS} | changes
        state = AttentionState(**tensors, rank=self.rank, samples=self.samples)
        state.projection = self.projection
        return state

    def _marked(self, **changes: Tensor) -> 'AttentionState':
        r"""Returns the result of :meth:`_replace` for the same nodes, with what a layer or an
        :class:`~torch_geometric_lgt.nn.AttentionMemory` noted about them."""
        state = self._replace(**changes)
        state.num_left_out, state.has_noise = self.num_left_out, self.has_noise
        return state

    def __repr__(self) -> str:
        graphs, heads, features, width = self.sums.shape
        sizes = (
            f'graphs={graphs}, heads={heads}, features={features}, '
            f'channels={width // self.rank - 1}, rank={self.rank}'
        )
        sizes += f', samples={self.samples}' if self.samples > 1 else ''
        return f'{self.__class__.__name__}({sizes})'


def build_state(
    keys: KernelInput,
    values: LinearInput,
    nodes: Segments,
    query_squares: Tensor | None = None,
) -> AttentionState:
    r"""Builds the state of each graph (the sums over all its keys). Keys and values are evaluated
    for some rows at a time; :obj:`nodes` says which key belongs to which graph."""
    arguments = operators.BuildArguments(keys=keys.aligned(), values=values.aligned(), nodes=nodes)
    sums, maximum, squares = operators.build_state(arguments)
    return AttentionState(
        sums,
        maximum,
        squares,
        nodes.sizes,
        rank=keys.rank(),
        samples=keys.samples,
        query_squares=query_squares,
    )


def read_state(state: AttentionState, queries: KernelInput, nodes: Segments) -> Tensor:
    r"""Computes the outputs ``[N, H * D]`` of queries from a state (sums over all keys of a graph).
    Queries are evaluated for some rows at a time; :obj:`nodes` says which query belongs to which
    graph."""
    check_readable(state, queries, nodes)
    arguments = operators.ReadArguments(
        queries=queries.aligned(), nodes=nodes, sums=state.sums, maximum=state.maximum
    )
    return operators.read_state(arguments)[0]


def sums_of_squares(inputs: KernelInput, nodes: Segments) -> Tensor:
    r"""Computes the sums of squares ``[B, H]`` of the queries or keys of each graph. It builds a
    state (sums over all keys of a graph) without values, except for few numbers in code that
    :meth:`torch.compile` traces (:meth:`is_traced_small`)."""
    if is_traced_small(inputs):
        return plain.sums_of_squares(inputs, nodes)
    keys = replace(
        inputs, mask=None, projection=None, kind='values', noise=None, samples=1, self_value=None
    )
    return build_state(keys, no_values(keys), nodes).squares
