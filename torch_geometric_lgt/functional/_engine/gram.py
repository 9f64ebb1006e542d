# N nodes, B graphs, G graphs walked together, n nodes of each, F input width, H heads, D channels
# of an output head.
import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional._engine.layout import CHUNK_ELEMENTS, Nodes, take
from torch_geometric_lgt.functional.numerics import compute_dtype, inverse_of, without_cancellation
from torch_geometric_lgt.functional.segment import Segments, iterate_groups
from torch_geometric_lgt.typing import Differentiable

GRAM_ELEMENTS = 1 << 21


class CentreArguments(Arguments):
    r"""The arguments of :obj:`centres`."""

    x: Tensor
    nodes: Segments


class GramArguments(Arguments):
    r"""The arguments of :obj:`gram`."""

    x: Differentiable
    centre: Tensor
    nodes: Segments


class RatioArguments(Arguments):
    r"""The arguments of :obj:`affine_ratio`."""

    x: Differentiable
    numerator: Differentiable
    denominator: Differentiable
    centre: Tensor
    nodes: Segments
    least: Tensor


def centres(x: Tensor, nodes: Segments) -> Tensor:
    r"""``[B, F]``: the mean row of each graph, or of its first nodes where they are many. Sums of
    products of rows lose as many digits as the rows' common part is larger than what they differ
    by; what follows from sums over rows without it is the same, whatever it is, so that it counts
    as a constant."""
    return _centres(CentreArguments(x=x.detach(), nodes=nodes))


def gram(x: Tensor, centre: Tensor, nodes: Segments) -> Tensor:
    r"""Computes ``[B, F + 1, F + 1]`` in double precision: the inner products of the columns of
    :obj:`x` less its :obj:`centre` and of a column of ones over the nodes of each graph. All sums
    over the nodes of products of two affine maps of :obj:`x` follow from it. Where columns are
    nearly equal, these sums lose twice as many digits as the maps themselves, which double
    precision has to spare for :obj:`x` of single precision."""
    return _gram(GramArguments(x=x, centre=centre, nodes=nodes))


def affine_ratio(
    x: Tensor,
    numerator: Tensor,
    denominator: Tensor,
    centre: Tensor,
    nodes: Segments,
    least: Tensor,
) -> Tensor:
    r"""``[N, H * D]``: affine maps of each row of :obj:`x` less its graph's :obj:`centre`, divided
    head by head by other ones, with coefficients ``[B, F + 1, H * D]`` and ``[B, F + 1, H]`` for
    each graph, those of the constant last; 0 where a denominator is no more than :obj:`least`
    ``[B]``."""
    arguments = RatioArguments(
        x=x, numerator=numerator, denominator=denominator, centre=centre, nodes=nodes, least=least
    )
    return _affine_ratio(arguments)[0]


def _graphs(elements: int, width: int, columns: int, x: Tensor, axis: Segments):
    return iterate_groups(
        max(64, elements // width), max(1, elements // ((width + 1) * columns)), x.shape[:1], axis
    )


def _rows(x: Tensor, nodes: Nodes, centre: Tensor) -> Tensor:
    r"""``[G, n, F]``: rows of some graphs less their centres ``[G, F]``."""
    return take(x, nodes).unflatten(0, (centre.size(0), -1)) - centre[:, None]


@operator(CentreArguments, returns=('centre',))
def _centres(arguments: CentreArguments) -> Tensor:
    x, num_graphs = arguments.x, arguments.nodes.sizes.numel()
    out = x.new_zeros((num_graphs, x.size(1)), dtype=compute_dtype(x.dtype))
    for graphs, (chunks,) in _graphs(GRAM_ELEMENTS, x.size(1), 1, x, arguments.nodes):
        out[graphs] = take(x, chunks[0]).unflatten(0, (graphs.numel(), -1)).mean(1)
    return out


@_centres.fake
def _(arguments: CentreArguments):
    x = arguments.x
    return x.new_empty((arguments.nodes.sizes.shape[0], x.shape[1]), dtype=compute_dtype(x.dtype))


@operator(GramArguments, returns=('gram',))
def _gram(arguments: GramArguments) -> Tensor:
    x, centre, width = arguments.x, arguments.centre, arguments.x.size(1)
    out = x.new_zeros((arguments.nodes.sizes.numel(), width + 1, width + 1), dtype=torch.double)
    for graphs, (chunks,) in _graphs(GRAM_ELEMENTS, width, width + 1, x, arguments.nodes):
        square, total = (
            out.new_zeros(graphs.numel(), width, width),
            out.new_zeros(graphs.numel(), width),
        )
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs].double())
            square.baddbmm_(rows.transpose(1, 2), rows)
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
    for graphs, (chunks,) in _graphs(GRAM_ELEMENTS, width, width, x, arguments.nodes):
        linear, constant = (
            symmetric[graphs, :width, :width],
            symmetric[graphs, width : width + 1, :width],
        )
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs])
            out[nodes] = torch.baddbmm(constant, rows, linear).flatten(0, 1).to(out.dtype)
    return {'x': out}


@_gram.fake
def _(arguments: GramArguments):
    width = arguments.x.shape[1] + 1
    return arguments.x.new_empty((arguments.nodes.sizes.shape[0], width, width), dtype=torch.double)


def _inverse(x: Tensor, denominator: Tensor, least: Tensor) -> Tensor:
    r"""``[G, n, H, 1]``."""
    value = torch.baddbmm(denominator[:, -1:], x, denominator[:, :-1])
    return inverse_of(without_cancellation(value, least[:, None, None])).unsqueeze(-1)


@operator(RatioArguments, returns=('out', 'inverse'))
def _affine_ratio(arguments: RatioArguments) -> tuple[Tensor, Tensor]:
    x, numerator, denominator, centre = (
        arguments.x,
        arguments.numerator,
        arguments.denominator,
        arguments.centre,
    )
    heads, columns = denominator.size(2), numerator.size(2)
    out = x.new_empty((x.size(0), columns))
    inverse = x.new_empty((x.size(0), heads), dtype=centre.dtype)
    for graphs, (chunks,) in _graphs(
        CHUNK_ELEMENTS, max(x.size(1), columns), columns, x, arguments.nodes
    ):
        above, below = (part[graphs].to(centre.dtype) for part in (numerator, denominator))
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs])
            share = _inverse(rows, below, arguments.least[graphs])
            value = torch.baddbmm(above[:, -1:], rows, above[:, :-1]).unflatten(2, (heads, -1))
            out[nodes] = value.mul_(share).flatten(2).flatten(0, 1).to(out.dtype)
            inverse[nodes] = share.flatten(2).flatten(0, 1)
    return out, inverse


@_affine_ratio.backward(outputs=('out',), saved=('out', 'inverse'))
def _(arguments: RatioArguments, grad, saved):
    x, numerator, denominator, centre = (
        arguments.x,
        arguments.numerator,
        arguments.denominator,
        arguments.centre,
    )
    heads, columns = denominator.size(2), numerator.size(2)
    grad_x, grad_numerator, grad_denominator = (
        torch.empty_like(x),
        torch.zeros_like(numerator),
        torch.zeros_like(denominator),
    )
    for graphs, (chunks,) in _graphs(
        CHUNK_ELEMENTS, max(x.size(1), columns), columns, x, arguments.nodes
    ):
        above, below = (
            part[graphs, :-1].transpose(1, 2).to(centre.dtype) for part in (numerator, denominator)
        )
        local_grads = [
            part.new_zeros((graphs.numel(), *part.shape[1:]))
            for part in (grad_numerator, grad_denominator)
        ]
        for nodes in chunks:
            rows = _rows(x, nodes, centre[graphs])
            grad_out, value, share = (
                take(t, nodes).unflatten(0, (graphs.numel(), -1))
                for t in (grad.out, saved.out, saved.inverse)
            )
            grad_above = grad_out.unflatten(2, (heads, -1)) * share.unsqueeze(-1)
            grad_below = (grad_above * value.unflatten(2, (heads, -1))).sum(-1).neg_()
            grad_above = grad_above.flatten(2)
            grad_x[nodes] = (
                torch.baddbmm(grad_above @ above, grad_below, below).flatten(0, 1).to(grad_x.dtype)
            )
            for total, part in zip(local_grads, (grad_above, grad_below), strict=True):
                total[:, :-1].baddbmm_(rows.transpose(1, 2).to(total.dtype), part.to(total.dtype))
                total[:, -1] += part.sum(1)
        grad_numerator[graphs], grad_denominator[graphs] = local_grads
    return {'x': grad_x, 'numerator': grad_numerator, 'denominator': grad_denominator}


@_affine_ratio.fake
def _(arguments: RatioArguments):
    x, columns, heads = arguments.x, arguments.numerator.shape[2], arguments.denominator.shape[2]
    return x.new_empty((x.shape[0], columns)), x.new_empty(
        (x.shape[0], heads), dtype=compute_dtype(x.dtype)
    )


def _gram_flops(arguments: GramArguments) -> int:
    return 2 * arguments.x.shape[0] * arguments.x.shape[1] ** 2


def _ratio_flops(arguments: RatioArguments) -> int:
    x = arguments.x
    return (
        2
        * x.shape[0]
        * x.shape[1]
        * (arguments.numerator.shape[2] + arguments.denominator.shape[2])
    )


_gram.flops(_gram_flops, _gram_flops)
_affine_ratio.flops(_ratio_flops, lambda arguments: 2 * _ratio_flops(arguments))
