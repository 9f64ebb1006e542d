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
    guarded,
    inner,
    largest,
    scaled,
    spread,
)
from torch_geometric_lgt.functional._engine.layout import (
    Nodes,
    join,
    mask_of,
    self_value_of,
    split,
    take,
)
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.numerics import inverse_of


class Queries:
    r"""Computes the attention outputs of queries from states (sums over all keys of a graph), and
    the features of the queries."""

    def __init__(self, inputs: KernelInput) -> None:
        self.inputs = inputs
        self.affine = Affine(inputs.x, (inputs.weight, inputs.bias, inputs.data_normalizer))
        self.project = HeadProjection(inputs.head_projection)

    def evaluate(self, nodes: Nodes, num_graphs: int) -> tuple[Tensor, Tensor, Tensor]:
        r"""Evaluates the linear parts at the positions :obj:`nodes` of :obj:`num_graphs` = G graphs
        of equal size. Returns the input ``[G * n, F]``, the queries ``[G, H, n, C]`` and the input
        of the feature map: the queries, or their products ``[G, H, n, M]`` with a matrix per
        head."""
        x, q = self.affine(nodes)
        q = split(q, num_graphs, self.inputs.heads)
        return x, q, self.project(q)

    def features(self, nodes: Nodes, maximum: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Computes the queries at the positions :obj:`nodes` of :math:`G` graphs of equal size,
        and their features.

        :obj:`maximum` ``[G, H, M]`` is added to the logarithms, since the features of keys were
        divided by its exponential. Features are divided by the largest exponential of their row.

        Returns:
            The three results of :meth:`evaluate` and the features ``[G, H, n, M]``
        """
        inputs = self.inputs
        x, q, map_input = self.evaluate(nodes, maximum.size(0))
        log, value = inputs.map.log_features(map_input, inputs.projection, inputs.power, None)
        if not inputs.map.is_exponential:
            return x, q, map_input, cast(Tensor, value)
        log = maximum[:, :, None] if log is None else log + maximum[:, :, None]
        return x, q, map_input, scaled(log, value, largest(log, -1))

    def read(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, denominators: Tensor
    ) -> None:
        r"""Computes the outputs and denominators of some queries and writes them to :obj:`out` and
        :obj:`denominators`.

        Args:
            sums (torch.Tensor): The sums over the keys of :math:`G` graphs of equal size,
                ``[G, H, M, W]``.
            maximum (torch.Tensor): ``[G, H, M]``; :obj:`sums` are divided by its exponential.
            chunks (list): Positions of the queries: slices or index tensors, each a chunk that is
                computed together.
            out (torch.Tensor): ``[N, H * D]``; only the rows in :obj:`chunks` are written.
            denominators (torch.Tensor): ``[N, H]`` (with samples ``[N, H * K]``), likewise.
        """
        for nodes in chunks:
            rows, denominator = self.outputs(sums, maximum, nodes)
            out[nodes] = join(rows).to(out.dtype)
            denominators[nodes] = join(denominator)

    def outputs(self, sums: Tensor, maximum: Tensor, nodes: Nodes) -> tuple[Tensor, Tensor]:
        r"""Returns the outputs ``[G, H, n, D]`` and denominators ``[G, H, n, 1]`` of the queries at
        the positions :obj:`nodes`, for the arguments of :meth:`read`."""
        inputs = self.inputs
        num_graphs = sums.size(0)
        rank = inputs.rank()
        product = self.features(nodes, maximum)[-1] @ sums  # [G, H, n, W]
        mask = mask_of(inputs, nodes, num_graphs)
        self_value = self_value_of(inputs, nodes, num_graphs)
        denominator = product[..., -rank:]
        if mask is not None:
            denominator = (denominator * mask).sum(-1, keepdim=True)
        denominator = guarded(denominator, inputs, sums[:, :, :1, -1:])
        inverse = inverse_of(denominator)
        rows = fold(product, inverse if mask is None else mask * inverse, rank)
        if self_value is not None:
            rows = rows.addcmul_(self_value, inverse)
        return rows, denominator


class QueryGrads(Queries):
    r"""Accumulates the gradients of queries: of their input, weight, bias, mask weights and self
    values."""

    def __init__(self, inputs: KernelInput) -> None:
        super().__init__(inputs)
        self.grad = AffineGrad(self.affine)
        self.head_grad = HeadProjectionGrad(self.project)
        self.grad_mask = None if inputs.mask is None else torch.zeros_like(inputs.mask)
        self.grad_self_value = (
            None if inputs.self_value is None else torch.empty_like(inputs.self_value)
        )

    def add(
        self,
        sums: Tensor,
        maximum: Tensor,
        chunks: list[Nodes],
        denominators: Tensor,
        grad_out: Tensor,
    ) -> Tensor:
        r"""Adds the gradients of the queries in :obj:`chunks` and returns the gradient of
        :obj:`sums`, ``[G, H, M, W]``.

        Arguments and shapes are as in :meth:`Queries.read`. :obj:`denominators` are its result, and
        :obj:`grad_out` ``[N, H * D]`` is the gradient of its outputs.
        """
        inputs = self.inputs
        num_graphs = sums.size(0)
        transposed = sums.transpose(2, 3).contiguous()
        # [G, H, W, M], wide by features: the faster shape of the product
        grad_sums = torch.zeros_like(transposed)
        for nodes in chunks:
            x, q, map_input, feature = self.features(nodes, maximum)
            mask = mask_of(inputs, nodes, num_graphs)
            self_value = self_value_of(inputs, nodes, num_graphs)
            denominator, grad_rows = (
                split(take(rows, nodes), num_graphs, inputs.heads)
                for rows in (denominators, grad_out)
            )
            inverse = inverse_of(denominator)
            grad_numerator = grad_rows * inverse
            if mask is None or self.grad_mask is None:
                grad_feature = grad_numerator @ transposed[:, :, :-1]
                inner_product = (feature * grad_feature).sum(-1, keepdim=True)
                if self_value is not None and self.grad_self_value is not None:
                    inner_product += (grad_numerator * self_value).sum(-1, keepdim=True)
                    self.grad_self_value[nodes] = join(grad_numerator).to(
                        self.grad_self_value.dtype
                    )
                grad_denominator = inner_product.mul_(inverse).neg_()
                add_sums(grad_sums, feature, grad_numerator, grad_denominator)
                grad_feature.addcmul_(grad_denominator, transposed[:, :, -1:])
            else:
                # numerator and denominator nearly cancel in the gradient of the mask: both come
                # from one product, so that they are rounded alike
                product = feature @ sums
                grad_mask = inner(product, grad_numerator, inputs.rank())
                grad_denominator = -(grad_mask * mask).sum(-1, keepdim=True) * inverse
                grad_mask.addcmul_(product[..., -inputs.rank() :], grad_denominator)
                self.grad_mask[nodes] = grad_mask.sum(1).flatten(0, 1)
                grad_product = spread(grad_numerator, grad_denominator, mask)
                grad_feature = grad_product @ transposed
                grad_sums += grad_product.transpose(2, 3) @ feature
            grad_map_input = inputs.map.vjp(
                map_input, inputs.projection, inputs.power, False, feature, grad_feature
            )
            self.collect(nodes, x, q, grad_map_input)
        return grad_sums.transpose(2, 3)

    def collect(self, nodes: Nodes, x: Tensor, q: Tensor, grad_map_input: Tensor) -> None:
        r"""Adds the gradients of the linear parts of the queries at the positions :obj:`nodes`.

        :obj:`x` and :obj:`q` are the first results of :meth:`evaluate`, and :obj:`grad_map_input`
        is the gradient of the third.
        """
        self.grad.add(nodes, x, join(self.head_grad.add(q, grad_map_input)))

    def result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients by name: x, weight, bias, mask, head_projection and self_value,
        :obj:`None` where there is none. If keys share the input, call it after
        :meth:`KeyGrads.add`, which adds to the same gradient."""
        weight, bias = self.grad.parameters(self.inputs.heads * self.inputs.channels())
        return {
            'x': self.grad.x.to(self.inputs.x.dtype),
            'weight': weight,
            'bias': bias,
            'mask': self.grad_mask,
            'head_projection': self.head_grad.result(),
            'self_value': self.grad_self_value,
        }
