import torch
from torch import Tensor
from torch.nn.functional import pad

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional._engine.layout import CHUNK_ELEMENTS, Nodes, take
from torch_geometric_lgt.functional.numerics import (
    chunk_elements,
    compute_dtype,
    inverse_of,
)
from torch_geometric_lgt.functional.segment import (
    Segments,
    iterate_groups,
    join_graphs,
    split_graphs,
)
from torch_geometric_lgt.typing import Differentiable

PIECES = 8


class CentreArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`centres`."""

    x: Tensor
    nodes: Segments


class GramArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`gram`."""

    x: Differentiable
    centre: Tensor
    nodes: Segments


class RatioArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`affine_ratio`."""

    x: Differentiable
    numerator: Differentiable
    denominator: Differentiable
    centre: Tensor
    nodes: Segments
    least: Tensor


def centres(x: Tensor, nodes: Segments) -> Tensor:
    r"""Computes the mean row of :obj:`x` ``[N, F]`` in each graph, ``[B, F]``. In a graph of
    several chunks it is the mean of the first chunk.

    Sums of products of rows lose digits if the rows have a large part in common. Subtracting the
    centre removes this part. It is a constant without gradient, because no result depends on it.
    """
    return _centres(CentreArguments(x=x.detach(), nodes=nodes))


def gram(x: Tensor, centre: Tensor, nodes: Segments) -> Tensor:
    r"""Computes the products :math:`\mathbf{X}^{\top} \mathbf{X}` of each graph,
    ``[B, F + 1, F + 1]`` in double precision. A row of :math:`\mathbf{X}` is a row of :obj:`x`
    ``[N, F]`` minus the :obj:`centre` ``[B, F]`` of its graph, followed by 1.

    Sums over the nodes of products of two affine maps of :obj:`x` follow from the result. If
    columns are nearly equal, these sums lose twice as many digits as the maps themselves. For
    :obj:`x` in single precision, double precision has enough digits.
    """
    return _gram(GramArguments(x=x, centre=centre, nodes=nodes))


def affine_ratio(
    x: Tensor,
    numerator: Tensor,
    denominator: Tensor,
    centre: Tensor,
    nodes: Segments,
    least: Tensor,
) -> Tensor:
    r"""Divides one affine map of each row by another, head by head, and returns ``[N, H * D]``.

    Args:
        x (torch.Tensor): The rows ``[N, F]``.
        numerator (torch.Tensor): The coefficients ``[B, F + 1, H * D]`` of each graph; the last row
            is the constant.
        denominator (torch.Tensor): The coefficients ``[B, F + 1, H]``, likewise.
        centre (torch.Tensor): ``[B, F]``, subtracted from the rows of each graph first.
        nodes (Segments): Which rows belong to which graph.
        least (torch.Tensor): ``[B]``. A denominator whose absolute value is at most this gives 0.
    """
    arguments = RatioArguments(
        x=x, numerator=numerator, denominator=denominator, centre=centre, nodes=nodes, least=least
    )
    return _affine_ratio(arguments)[0]


def _groups(width: int, columns: int, x: Tensor, axis: Segments):
    r"""Yields groups of graphs of equal size, with chunks (rows computed together) that fit the
    cache. Rows of :obj:`width` numbers and coefficients ``[width + 1, columns]`` of each graph have
    about :obj:`CHUNK_ELEMENTS` numbers at most."""
    elements = chunk_elements(CHUNK_ELEMENTS, x.device)
    rows, max_graphs = max(64, elements // width), max(1, elements // ((width + 1) * columns))
    return iterate_groups(rows, max_graphs, x.shape[:1], axis)


def _rows(x: Tensor, nodes: Nodes, centre: Tensor) -> Tensor:
    r"""Returns the rows :obj:`nodes` of :obj:`x` minus the centres ``[G, F]`` of their graphs,
    ``[G, n, F]``."""
    return take(x, nodes).unflatten(0, (centre.size(0), -1)) - centre[:, None]


def _products(left: Tensor, right: Tensor) -> Tensor:
    r"""Returns the products :math:`\mathbf{L}^{\top} \mathbf{R}` of each graph, ``[G, F, C]``, for
    :obj:`left` ``[G, n, F]`` and :obj:`right` ``[G, n, C]``.

    The product of one graph is a sum of products of :obj:`PIECES` of its rows, because processors
    compute several narrow matrices in less time than one.
    """
    is_split = left.size(0) == 1 and left.size(1) % PIECES == 0
    if is_split:
        left, right = (x.unflatten(1, (PIECES, -1))[0] for x in (left, right))
    out = left.transpose(1, 2) @ right
    return out.sum(0, keepdim=True) if is_split else out


def _graph_rows(x: Tensor, centre: Tensor, nodes: Segments) -> list[Tensor]:
    r"""Returns the rows ``[n, F + 1]`` of each graph by operations that autograd records: those of
    :obj:`x` minus the :obj:`centre` ``[F]`` of the graph, followed by 1."""
    parts = zip(split_graphs(x, nodes), centre, strict=True)
    return [pad(part - mean, (0, 1), value=1.0) for part, mean in parts]


@operator(CentreArguments, returns=('centre',))
def _centres(arguments: CentreArguments) -> Tensor:
    x = arguments.x
    num_graphs = arguments.nodes.sizes.numel()
    out = x.new_zeros((num_graphs, x.size(1)), dtype=compute_dtype(x.dtype))
    for graphs, (chunks,) in _groups(x.size(1), 1, x, arguments.nodes):
        out[graphs] = take(x, chunks[0]).unflatten(0, (graphs.numel(), -1)).mean(1)
    return out


@_centres.formula
def _(arguments: CentreArguments, _saved):
    x = arguments.x.to(compute_dtype(arguments.x.dtype))
    parts = split_graphs(x, arguments.nodes)
    means = [part.sum(0, keepdim=True) / max(part.size(0), 1) for part in parts]
    return (torch.cat([x.new_zeros(0, x.size(1)), *means]),)


@_centres.fake
def _(arguments: CentreArguments):
    x = arguments.x
    return x.new_empty((arguments.nodes.sizes.shape[0], x.shape[1]), dtype=compute_dtype(x.dtype))


@operator(GramArguments, returns=('gram',))
def _gram(arguments: GramArguments) -> Tensor:
    x, centre, width = arguments.x, arguments.centre, arguments.x.size(1)
    out = x.new_zeros((arguments.nodes.sizes.numel(), width + 1, width + 1), dtype=torch.double)
    for graphs, (chunks,) in _groups(width, width + 1, x, arguments.nodes):
        square = out.new_zeros(graphs.numel(), width, width)
        total = out.new_zeros(graphs.numel(), width)
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs].double())
            square += _products(rows, rows)
            total += rows.sum(1)
        out[graphs, :width, :width] = square
        out[graphs, width, :width] = out[graphs, :width, width] = total
    out[:, width, width] = arguments.nodes.sizes.double()
    return out


@_gram.backward(outputs=('gram',))
def _(arguments: GramArguments, grad, _saved):
    x, centre, width = arguments.x, arguments.centre, arguments.x.size(1)
    symmetric = (grad.gram + grad.gram.transpose(1, 2)).to(centre.dtype)
    out = torch.empty_like(x)
    for graphs, (chunks,) in _groups(width, width, x, arguments.nodes):
        linear = symmetric[graphs, :width, :width]
        constant = symmetric[graphs, width : width + 1, :width]
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs])
            out[nodes] = torch.baddbmm(constant, rows, linear).flatten(0, 1).to(out.dtype)
    return {'x': out}


@_gram.formula
def _(arguments: GramArguments, _saved):
    x, centre = arguments.x.double(), arguments.centre.double()
    rows = _graph_rows(x, centre, arguments.nodes)
    width = x.size(1) + 1
    return (torch.cat([x.new_zeros(0, width, width), *((row.t() @ row)[None] for row in rows)]),)


@_gram.fake
def _(arguments: GramArguments):
    width = arguments.x.shape[1] + 1
    return arguments.x.new_empty((arguments.nodes.sizes.shape[0], width, width), dtype=torch.double)


def _inverse(x: Tensor, denominator: Tensor, least: Tensor) -> Tensor:
    r"""Returns the reciprocal denominators ``[G, n, H, 1]`` of the rows :obj:`x` ``[G, n, F]``, 0
    where a denominator is at most :obj:`least` ``[G]``. The coefficients :obj:`denominator` are
    ``[G, F + 1, H]``."""
    value = torch.baddbmm(denominator[:, -1:], x, denominator[:, :-1])
    return inverse_of(value, least[:, None, None]).unsqueeze(-1)


@operator(RatioArguments, returns=('out', 'inverse'))
def _affine_ratio(arguments: RatioArguments) -> tuple[Tensor, Tensor]:
    x, centre, least = arguments.x, arguments.centre, arguments.least
    numerator, denominator = arguments.numerator, arguments.denominator
    heads, columns = denominator.size(2), numerator.size(2)
    out = x.new_empty((x.size(0), columns))
    inverses = x.new_empty((x.size(0), heads), dtype=centre.dtype)
    width = max(x.size(1), columns)
    for graphs, (chunks,) in _groups(width, columns, x, arguments.nodes):
        above, below = (part[graphs].to(centre.dtype) for part in (numerator, denominator))
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs])
            inverse = _inverse(rows, below, least[graphs])
            value = torch.baddbmm(above[:, -1:], rows, above[:, :-1]).unflatten(2, (heads, -1))
            out[nodes] = value.mul_(inverse).flatten(2).flatten(0, 1).to(out.dtype)
            inverses[nodes] = inverse.flatten(2).flatten(0, 1)
    return out, inverses


@_affine_ratio.backward(outputs=('out',), saved=('out', 'inverse'))
def _(arguments: RatioArguments, grad, saved):
    x, centre = arguments.x, arguments.centre
    numerator, denominator = arguments.numerator, arguments.denominator
    heads, columns = denominator.size(2), numerator.size(2)
    grad_x, maps = torch.empty_like(x), torch.cat([numerator, denominator], -1)
    grad_maps, linear = torch.zeros_like(maps), maps[:, :-1].transpose(1, 2).to(centre.dtype)
    width = max(x.size(1), columns)
    for graphs, (chunks,) in _groups(width, columns, x, arguments.nodes):
        total = maps.new_zeros((graphs.numel(), *maps.shape[1:]))
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs])
            grad_out, value, inverse = (
                take(result, nodes).unflatten(0, (graphs.numel(), -1))
                for result in (grad.out, saved.out, saved.inverse)
            )
            grad_above = grad_out.unflatten(2, (heads, -1)) * inverse.unsqueeze(-1)
            grad_below = (grad_above * value.unflatten(2, (heads, -1))).sum(-1).neg_()
            part = torch.cat([grad_above.flatten(2), grad_below], -1)
            grad_x[nodes] = (part @ linear[graphs]).flatten(0, 1).to(grad_x.dtype)
            part = part.to(maps.dtype)
            total[:, :-1] += _products(rows.to(maps.dtype), part)
            total[:, -1] += part.sum(1)
        grad_maps[graphs] = total
    return {
        'x': grad_x,
        'numerator': grad_maps[..., :columns].contiguous(),
        'denominator': grad_maps[..., columns:].contiguous(),
    }


@_affine_ratio.formula
def _(arguments: RatioArguments, _saved):
    centre, heads = arguments.centre, arguments.denominator.size(2)
    maps = (part.to(centre.dtype) for part in (arguments.numerator, arguments.denominator))
    rows = _graph_rows(arguments.x.to(centre.dtype), centre, arguments.nodes)
    parts = [centre.new_zeros(0, arguments.numerator.size(2))]  # the result without graphs
    for row, above, below, least in zip(rows, *maps, arguments.least, strict=True):
        inverse = inverse_of(row @ below, least)
        value = (row @ above).unflatten(1, (heads, -1))
        parts.append((value * inverse.unsqueeze(-1)).flatten(1))
    return join_graphs(parts, arguments.nodes).to(arguments.x.dtype), None


@_affine_ratio.fake
def _(arguments: RatioArguments):
    x, columns, heads = arguments.x, arguments.numerator.shape[2], arguments.denominator.shape[2]
    inverse = x.new_empty((x.shape[0], heads), dtype=compute_dtype(x.dtype))
    return x.new_empty((x.shape[0], columns)), inverse


def _gram_flops(arguments: GramArguments) -> int:
    return 2 * arguments.x.shape[0] * arguments.x.shape[1] ** 2


def _ratio_flops(arguments: RatioArguments) -> int:
    columns = arguments.numerator.shape[2] + arguments.denominator.shape[2]
    return 2 * arguments.x.shape[0] * arguments.x.shape[1] * columns


_gram.flops(_gram_flops, _gram_flops)
_affine_ratio.flops(_ratio_flops, lambda arguments: 2 * _ratio_flops(arguments))
