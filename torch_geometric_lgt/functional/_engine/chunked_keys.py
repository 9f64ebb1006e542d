# The backward pass has the symbols of docs/theory/attention_state.rst.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.affine import (
    Affine,
    AffineGrad,
    HeadProjection,
    HeadProjectionGrad,
)
from torch_geometric_lgt.functional._engine.features import (
    add_sums,
    fold,
    inner,
    sampled,
    scaled,
    spread,
)
from torch_geometric_lgt.functional._engine.layout import (
    Nodes,
    count_nodes,
    fewest_deferred,
    join,
    mask_of,
    noise_of,
    split,
)
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.numerics import compute_dtype, neutral


def grad_key_features(
    inputs: KernelInput, left: Tensor, right: Tensor, product: Tensor, maximum: Tensor
) -> Tensor:
    r"""Returns the gradient :math:`\mathbf{g}` of the features of keys, ``[G, H, n, M]``, as the
    product of :obj:`left` ``[G, H, n, W]`` and :obj:`right` ``[G, H, W, M]``.

    If features :math:`\mathbf{f}` have unit sums (:class:`Map`), their gradient is
    :math:`\mathbf{g} - e^{\mathbf{c}} \, \mathbf{f}^{\top} \mathbf{g}`. The second term is one more
    column of the product: :obj:`product` ``[G, H, n, W]``, the features times the transpose of
    :obj:`right`, gives :math:`\mathbf{f}^{\top} \mathbf{g}`. :obj:`maximum` ``[G, H, 1, M]`` is
    :math:`\mathbf{c}`.
    """
    if inputs.map.has_unit_sums:
        inner_product = (left * product).sum(-1, keepdim=True)
        left = torch.cat([left, -inner_product], -1)
        right = torch.cat([right, maximum.exp()], -2)
    return left @ right


def sums_of_values(sums: Tensor, values: LinearInput, rank: int) -> Tensor:
    r"""Returns the sums over the keys of one head ``[G, 1, M, R * (D + 1)]`` from those of the
    input of the values, ``[G, 1, M, R * (F + 1)]``, by the linear part of :obj:`values`."""
    totals = sums[..., -rank:]
    columns = sums[..., :-rank].unflatten(-1, (rank, -1)) @ cast(Tensor, values.weight).t()
    if values.bias is not None:
        columns = columns.addcmul_(totals[..., None], values.bias)
    return torch.cat([columns.flatten(-2), totals], -1)


class Keys:
    r"""Computes the features of keys and builds states: for each graph the sums of the features of
    all keys, times their values and alone."""

    def __init__(self, inputs: KernelInput, values: LinearInput) -> None:
        self.inputs, self.values = inputs, values
        heads = inputs.heads
        self.widths = heads * inputs.channels(), heads * values.channels(heads)
        key_part = inputs.weight, inputs.bias, inputs.data_normalizer
        value_part = values.weight, values.bias, 1.0
        both_linear = inputs.weight is not None and values.weight is not None
        same_bias = (inputs.bias is None) == (values.bias is None)
        self.joint = values.x is inputs.x and both_linear and same_bias
        self.affine = Affine(inputs.x, key_part, *([value_part] if self.joint else []))
        self.value_affine = self.affine if self.joint else Affine(values.x, value_part)
        self.project = HeadProjection(inputs.head_projection)

    def flat(self, nodes: Nodes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Evaluates the linear parts of keys and values at the positions :obj:`nodes`. Returns the
        input of the keys ``[n, F]``, the keys ``[n, H * C]``, the input of the values and the
        values ``[n, H * D]``."""
        x, k = self.affine(nodes)
        if self.joint:
            return x, k[:, : self.widths[0]], x, k[:, self.widths[0] :]
        return x, k, *self.value_affine(nodes)

    def evaluate(self, nodes: Nodes, num_graphs: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Returns the results of :meth:`flat` with keys ``[G, H, n, C]`` and values
        ``[G, H, n, D]``. The positions :obj:`nodes` belong to :obj:`num_graphs` = G graphs of equal
        size."""
        x, k, value_x, v = self.flat(nodes)
        return (
            x,
            split(k, num_graphs, self.inputs.heads),
            value_x,
            split(v, num_graphs, self.inputs.heads),
        )

    def log_features(
        self, k: Tensor, needs_squares: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        r"""Returns the input of the feature map for keys :obj:`k` ``[G, H, n, C]``: the keys, or
        their products ``[G, H, n, M]`` with a matrix per head. Also returns the sums of squares
        ``[G, H, n, 1]`` of the keys, if they are needed, and the two results of
        :meth:`Map.log_features`."""
        inputs = self.inputs
        squared = k.square().sum(-1, keepdim=True) if needs_squares else None
        map_input = self.project(k)
        features = inputs.map.log_features(map_input, inputs.projection, inputs.power, squared)
        return map_input, squared, *features

    def weighed(
        self, log: Tensor | None, value: Tensor | None, nodes: Nodes, maximum: Tensor
    ) -> Tensor:
        r"""Returns the features of weighted keys, ``[G, H, n, K * M]``, divided by the exponential
        of :obj:`maximum` ``[G, H, K * M]``.

        :obj:`log` and :obj:`value` are the results of :meth:`Map.log_features` for the keys
        :obj:`nodes`. Without samples :math:`K` is 1 and the weights are 1.
        """
        noise = noise_of(self.inputs, nodes, maximum.size(0))
        return scaled(sampled(log, noise), value, maximum[:, :, None])

    def empty_state(self, num_graphs: int) -> tuple[Tensor, Tensor, Tensor]:
        r"""Returns the state (sums over all keys) of :obj:`num_graphs` = B graphs without keys: the
        sums ``[B, H, M, W]``, the maximum ``[B, H, M]`` of log-features and the sums of squares
        ``[B, H]`` of keys."""
        inputs = self.inputs
        dtype = compute_dtype(self.inputs.x.dtype)
        start = neutral(dtype) if inputs.map.is_exponential else 0.0
        shape = (num_graphs, inputs.heads, inputs.num_features())
        maximum = inputs.x.new_full(shape, start, dtype=dtype)
        width = inputs.rank() * (self.values.channels(inputs.heads) + 1)
        sums = maximum.new_zeros((*maximum.shape, width))
        return sums, maximum, sums.new_zeros((num_graphs, inputs.heads))

    def build(self, num_graphs: int, chunks: list[Nodes]) -> tuple[Tensor, Tensor, Tensor]:
        r"""Returns the state (sums over all keys) of :obj:`num_graphs` = G graphs of equal size, in
        the order of :meth:`empty_state`. :obj:`chunks` are the positions of the keys: slices or
        index tensors, each a chunk that is computed together."""
        inputs, values = self.inputs, self.values
        num_keys = count_nodes(chunks) // max(num_graphs, 1)
        if num_graphs > 0 and num_keys >= fewest_deferred(inputs, values):
            keys = Keys(inputs, LinearInput(x=values.x))
            of_inputs, maximum, squares = keys.build(num_graphs, chunks)
            return sums_of_values(of_inputs, values, inputs.rank()), maximum, squares
        sums, maximum, squares = self.empty_state(num_graphs)
        # [G, H, W, M], wide by features: the faster shape of the product
        sums = sums.transpose(2, 3).contiguous()
        for nodes in chunks:
            _, k, _, v = self.evaluate(nodes, num_graphs)
            _, squared, log, value = self.log_features(k)
            squares += cast(Tensor, squared).sum((2, 3))
            weighted = sampled(log, noise_of(inputs, nodes, num_graphs))
            if weighted is not None:
                new_maximum = torch.maximum(maximum, weighted.amax(2))
                sums *= (maximum - new_maximum).exp_()[:, :, None]
                maximum = new_maximum
            mask = mask_of(inputs, nodes, num_graphs)
            feature = self.weighed(log, value, nodes, maximum)
            if mask is None:
                add_sums(sums, feature, v)
            else:
                columns = spread(v, v.new_ones(()).expand(*v.shape[:-1], 1), mask)
                sums += columns.transpose(2, 3) @ feature
        return sums.transpose(2, 3).contiguous(), maximum, squares


class KeyGrads(Keys):
    r"""Accumulates the gradients of keys and values. The gradient of the input is added to
    :obj:`shared` ``[N, F]``, if given: the gradient of queries with the same input."""

    def __init__(
        self, inputs: KernelInput, values: LinearInput, shared: Tensor | None = None
    ) -> None:
        super().__init__(inputs, values)
        self.shared, self.grad = shared is not None, AffineGrad(self.affine, shared)
        self.head_grad = HeadProjectionGrad(self.project)
        self.value_grad = self.grad
        if not self.joint:
            value_shared = self.grad.x if values.x is inputs.x else None
            self.value_grad = AffineGrad(self.value_affine, value_shared)
        self.grad_mask = None if inputs.mask is None else torch.zeros_like(inputs.mask)

    def add(
        self, maximum: Tensor, chunks: list[Nodes], grad_sums: Tensor, grad_squares: Tensor | None
    ) -> None:
        r"""Adds the gradients of the keys and values in :obj:`chunks`, given the gradients of the
        results of :meth:`Keys.build`.

        Args:
            maximum (torch.Tensor): ``[G, H, M]``, a result of :meth:`Keys.build`.
            chunks (list): Positions of the keys: slices or index tensors, each a chunk that is
                computed together.
            grad_sums (torch.Tensor): The gradient of the sums, ``[G, H, M, W]``.
            grad_squares (torch.Tensor, optional): The gradient of the sums of squares, ``[G, H]``.
        """
        inputs = self.inputs
        num_graphs = grad_sums.size(0)
        transposed = grad_sums.transpose(2, 3).contiguous()
        for nodes in chunks:
            x, k, value_x, v = self.evaluate(nodes, num_graphs)
            mask = mask_of(inputs, nodes, num_graphs)
            map_input, _, log, value = self.log_features(k)
            feature = self.weighed(log, value, nodes, maximum)
            grad_columns = feature @ grad_sums  # [G, H, n, W]
            if self.grad_mask is not None:
                grad_mask = inner(grad_columns, v, inputs.rank())
                grad_mask.add_(grad_columns[..., -inputs.rank() :])
                self.grad_mask[nodes] = grad_mask.sum(1).flatten(0, 1)
            one = v.new_ones(()).expand(*v.shape[:-1], 1)
            columns = spread(v, one, mask)
            grad_feature = grad_key_features(
                inputs, columns, transposed, grad_columns, maximum[:, :, None]
            )
            if inputs.noise is not None:  # all samples share one key
                grad_log = (grad_feature * feature).unflatten(-1, (inputs.samples, -1)).sum(-2)
                feature, grad_feature = grad_log.new_ones(()), grad_log
            grad_map_input = inputs.map.vjp(
                map_input, inputs.projection, inputs.power, True, feature, grad_feature
            )
            grad_k = self.head_grad.add(k, grad_map_input)
            if grad_squares is not None:
                grad_square = grad_squares[..., None, None]
                # keys may be infinite
                product = torch.where(grad_square == 0, 0, k * grad_square)
                grad_k.add_(product, alpha=2)
            grad_v = fold(grad_columns, mask, inputs.rank())
            self.collect(nodes, x, join(grad_k), value_x, join(grad_v))

    def collect(
        self, nodes: Nodes, x: Tensor, grad_k: Tensor, value_x: Tensor, grad_v: Tensor
    ) -> None:
        r"""Adds the gradients of input, weight and bias of the keys and values at the positions
        :obj:`nodes`.

        :obj:`x` and :obj:`value_x` are the inputs as :meth:`Keys.flat` returns them. :obj:`grad_k`
        ``[n, H * C]`` and :obj:`grad_v` ``[n, H * D]`` are the gradients of keys and values.
        """
        if self.joint:
            self.grad.add(nodes, x, torch.cat([grad_k, grad_v], 1))
        else:
            self.grad.add(nodes, x, grad_k)
            self.value_grad.add(nodes, value_x, grad_v)

    def result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients of the keys by name: x, weight, bias, mask and head_projection,
        :obj:`None` where there is none. The gradient of x is also :obj:`None` if it was added to
        the gradient of the queries."""
        widths = self.widths if self.joint else self.widths[:1]
        weight, bias = self.grad.parameters(*widths)[:2]
        x = None if self.shared else self.grad.x.to(self.inputs.x.dtype)
        return {
            'x': x,
            'weight': weight,
            'bias': bias,
            'mask': self.grad_mask,
            'head_projection': self.head_grad.result(),
        }

    def value_result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients of the values by name: x, weight and bias, :obj:`None` where
        there is none. The gradient of x is also :obj:`None` if it was added to the gradient of
        the keys."""
        widths = self.widths if self.joint else self.widths[1:]
        weight, bias = self.value_grad.parameters(*widths)[-2:]
        shared = self.values.x is self.inputs.x
        x = None if shared else self.value_grad.x.to(self.values.x.dtype)
        return {'x': x, 'weight': weight, 'bias': bias}
