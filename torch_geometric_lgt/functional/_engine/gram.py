# N nodes, B graphs, G graphs walked together, n nodes of each, F input width, H heads, D channels of an output head.
import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from torch_geometric_lgt.functional._engine.custom_op import call, differentiable, operator
from torch_geometric_lgt.functional._engine.layout import CHUNK_ELEMENTS, Nodes, take
from torch_geometric_lgt.functional.numerics import compute_dtype, inverse_of, without_cancellation
from torch_geometric_lgt.functional.segment import Segments, groups

GRAM_ELEMENTS = 1 << 21
AXIS = 'Tensor sizes, Tensor? order'
RATIO = f'Tensor x, Tensor numerator, Tensor denominator, Tensor centre, {AXIS}, Tensor least'


def centres(x: Tensor, nodes: Segments) -> Tensor:
    r"""``[B, F]``: the mean row of each graph, or of its first nodes where they are many. Sums of products of rows lose as many digits as
    the rows' common part is larger than what they differ by; what follows from sums over rows without it is the same, whatever it is, so
    that it counts as a constant."""
    return call(_centres, x.detach(), *nodes)


def gram(x: Tensor, centre: Tensor, nodes: Segments) -> Tensor:
    r"""Computes ``[B, F + 1, F + 1]`` in double precision: the inner products of the columns of :obj:`x` less its :obj:`centre` and of a
    column of ones over the nodes of each graph. All sums over the nodes of products of two affine maps of :obj:`x` follow from it. Where
    columns are nearly equal, these sums lose twice as many digits as the maps themselves, which double precision has to spare for
    :obj:`x` of single precision."""
    return call(_gram, x, centre, *nodes)


def affine_ratio(x: Tensor, numerator: Tensor, denominator: Tensor, centre: Tensor, nodes: Segments, least: Tensor) -> Tensor:
    r"""``[N, H * D]``: affine maps of each row of :obj:`x` less its graph's :obj:`centre`, divided head by head by other ones, with
    coefficients ``[B, F + 1, H * D]`` and ``[B, F + 1, H]`` for each graph, those of the constant last; 0 where a denominator is
    no more than :obj:`least` ``[B]``."""
    return call(_ratio, x, numerator, denominator, centre, *nodes, least)[0]


def _graphs(elements: int, width: int, columns: int, x: Tensor, axis: Segments):
    return groups(max(64, elements // width), max(1, elements // ((width + 1) * columns)), x.shape[:1], axis)


def _rows(x: Tensor, nodes: Nodes, centre: Tensor) -> Tensor:
    r"""``[G, n, F]``: rows of some graphs less their centres ``[G, F]``."""
    return take(x, nodes).unflatten(0, (centre.size(0), -1)) - centre[:, None]


@operator('centres', f'Tensor x, {AXIS}', 'Tensor')
def _centres(x, sizes, order):
    out = x.new_zeros((sizes.numel(), x.size(1)), dtype=compute_dtype(x.dtype))
    for graphs, (chunks,) in _graphs(GRAM_ELEMENTS, x.size(1), 1, x, Segments(sizes, order)):
        out[graphs] = take(x, chunks[0]).unflatten(0, (graphs.numel(), -1)).mean(1)
    return out


@operator('gram', f'Tensor x, Tensor centre, {AXIS}', 'Tensor')
def _gram(x, centre, sizes, order):
    width = x.size(1)
    out = x.new_zeros((sizes.numel(), width + 1, width + 1), dtype=torch.double)
    for graphs, (chunks,) in _graphs(GRAM_ELEMENTS, width, width + 1, x, Segments(sizes, order)):
        square, total = out.new_zeros(graphs.numel(), width, width), out.new_zeros(graphs.numel(), width)
        for nodes in chunks:
            part = _rows(x, nodes, centre[graphs].double())
            square.baddbmm_(part.transpose(1, 2), part)
            total += part.sum(1)
        out[graphs, :width, :width] = square
        out[graphs, width, :width] = out[graphs, :width, width] = total
    out[:, width, width] = sizes.double()
    return out


@operator('gram_backward', f'Tensor grad, Tensor x, Tensor centre, {AXIS}', 'Tensor[]')
def _gram_backward(grad, x, centre, sizes, order):
    width = x.size(1)
    slope = (grad + grad.transpose(1, 2)).to(centre.dtype)
    out = torch.empty_like(x)
    for graphs, (chunks,) in _graphs(GRAM_ELEMENTS, width, width, x, Segments(sizes, order)):
        own, constant = slope[graphs, :width, :width], slope[graphs, width : width + 1, :width]
        for nodes in chunks:
            part = _rows(x, nodes, centre[graphs])
            out[nodes] = torch.baddbmm(constant, part, own).flatten(0, 1).to(out.dtype)
    return [out]


def _inverse(x: Tensor, denominator: Tensor, least: Tensor) -> Tensor:
    r"""``[G, n, H, 1]``."""
    value = torch.baddbmm(denominator[:, -1:], x, denominator[:, :-1])
    return inverse_of(without_cancellation(value, least[:, None, None])).unsqueeze(-1)


@operator('affine_ratio', RATIO, '(Tensor, Tensor)')
def _ratio(x, numerator, denominator, centre, sizes, order, least):
    heads, columns = denominator.size(2), numerator.size(2)
    out = x.new_empty((x.size(0), columns))
    inverse = x.new_empty((x.size(0), heads), dtype=centre.dtype)
    for graphs, (chunks,) in _graphs(CHUNK_ELEMENTS, max(x.size(1), columns), columns, x, Segments(sizes, order)):
        above, below = (part[graphs].to(centre.dtype) for part in (numerator, denominator))
        for nodes in chunks:
            part = _rows(x, nodes, centre[graphs])
            share = _inverse(part, below, least[graphs])
            value = torch.baddbmm(above[:, -1:], part, above[:, :-1]).unflatten(2, (heads, -1))
            out[nodes] = value.mul_(share).flatten(2).flatten(0, 1).to(out.dtype)
            inverse[nodes] = share.flatten(2).flatten(0, 1)
    return out, inverse


@operator('affine_ratio_backward', f'Tensor grad, Tensor out, Tensor inverse, {RATIO}', 'Tensor[]')
def _ratio_backward(grad, out, inverse, x, numerator, denominator, centre, sizes, order, _least):
    heads, columns = denominator.size(2), numerator.size(2)
    grad_x, grads = torch.empty_like(x), [torch.zeros_like(part) for part in (numerator, denominator)]
    for graphs, (chunks,) in _graphs(CHUNK_ELEMENTS, max(x.size(1), columns), columns, x, Segments(sizes, order)):
        above, below = (part[graphs, :-1].transpose(1, 2).to(centre.dtype) for part in (numerator, denominator))
        own = [part.new_zeros((graphs.numel(), *part.shape[1:])) for part in grads]
        for nodes in chunks:
            part = _rows(x, nodes, centre[graphs])
            slope, value, share = (take(t, nodes).unflatten(0, (graphs.numel(), -1)) for t in (grad, out, inverse))
            slope = slope.unflatten(2, (heads, -1)) * share.unsqueeze(-1)
            along = (slope * value.unflatten(2, (heads, -1))).sum(-1).neg_()
            slope = slope.flatten(2)
            grad_x[nodes] = torch.baddbmm(slope @ above, along, below).flatten(0, 1).to(grad_x.dtype)
            for total, columns_of in zip(own, (slope, along), strict=True):
                total[:, :-1].baddbmm_(part.transpose(1, 2).to(total.dtype), columns_of.to(total.dtype))
                total[:, -1] += columns_of.sum(1)
        for total, found in zip(grads, own, strict=True):
            total[graphs] = found
    return [grad_x, *grads]


@_centres.register_fake
def _(x, sizes, _order):
    return x.new_empty((sizes.shape[0], x.shape[1]), dtype=compute_dtype(x.dtype))


@_gram.register_fake
def _(x, _centre, sizes, _order):
    return x.new_empty((sizes.shape[0], x.shape[1] + 1, x.shape[1] + 1), dtype=torch.double)


@_gram_backward.register_fake
def _(_grad, x, _centre, _sizes, _order):
    return [torch.empty_like(x)]


@_ratio.register_fake
def _(x, numerator, denominator, *_args):
    return x.new_empty((x.shape[0], numerator.shape[2])), x.new_empty((x.shape[0], denominator.shape[2]), dtype=compute_dtype(x.dtype))


@_ratio_backward.register_fake
def _(_grad, _out, _inverse, x, numerator, denominator, *_args):
    return [torch.empty_like(part) for part in (x, numerator, denominator)]


differentiable(_gram, _gram_backward, (0,), (0,), ())
differentiable(_ratio, _ratio_backward, (0, 1, 2), (0,), (0, 1))


@register_flop_formula([torch.ops.torch_geometric_lgt.gram, torch.ops.torch_geometric_lgt.gram_backward], get_raw=True)
def _gram_flops(*args, **_):
    x = args[-4]
    return 2 * x.shape[0] * x.shape[1] ** 2


@register_flop_formula(torch.ops.torch_geometric_lgt.affine_ratio, get_raw=True)
def _ratio_flops(x, numerator, denominator, *_args, **_):
    return 2 * x.shape[0] * x.shape[1] * (numerator.shape[2] + denominator.shape[2])


@register_flop_formula(torch.ops.torch_geometric_lgt.affine_ratio_backward, get_raw=True)
def _ratio_backward_flops(_grad, _out, _inverse, *args, **_):
    return 2 * _ratio_flops(*args)
