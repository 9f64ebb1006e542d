# G graphs of n targets and m sources each, H heads, C channels of a key, D of a value, M features.
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked_keys import KeyGrads, Keys, grad_key_features
from torch_geometric_lgt.functional._engine.chunked_queries import Queries, QueryGrads
from torch_geometric_lgt.functional._engine.features import guarded, largest, scaled
from torch_geometric_lgt.functional._engine.layout import (
    Nodes,
    both_masks,
    join,
    mask_of,
    self_value_of,
    split,
    take,
)
from torch_geometric_lgt.functional.numerics import inverse_of


class PairwiseBackend:
    r"""Computes attention from the weights of all pairs (target, source) of :math:`G` graphs of
    equal size, in place of a state (sums over all keys).

    For small graphs the pairs are fewer than the numbers of a state.

    Args:
        queries (Queries): Computes queries.
        keys (Keys): Computes keys and values.
        targets (torch.Tensor or slice): The positions of the :math:`G n` queries, graph by graph.
        sources (torch.Tensor or slice): The positions of the :math:`G m` keys, graph by graph.
        num_graphs (int): :math:`G`.
        factor (torch.Tensor, optional): ``[G, H, M]``, multiplies the features of the queries.

    Attributes:
        k, v (torch.Tensor): Keys ``[G, H, m, C]`` and values ``[G, H, m, D]``.
        q (torch.Tensor): Queries ``[G, H, n, C]``.
        key_input, query_input (torch.Tensor): The inputs of the feature map.
        key_feature, query_feature (torch.Tensor): Features ``[G, H, m, M]`` and ``[G, H, n, M]``.
        maximum (torch.Tensor): ``[G, H, 1, M]``; the features of keys are divided by its
            exponential.
        masks (tuple, optional): The result of :meth:`both_masks`.
        self_value (torch.Tensor, optional): The values ``[G, H, n, D]`` that queries include with
            weight 1.
        kernel, weight (torch.Tensor): The products of features ``[G, H, n, m]`` and their weights
            under the masks.
    """

    def __init__(
        self,
        queries: Queries,
        keys: Keys,
        targets: Nodes,
        sources: Nodes,
        num_graphs: int,
        factor: Tensor | None,
    ) -> None:
        self.inputs, self.targets, self.sources = queries.inputs, targets, sources
        inputs = keys.inputs
        self.key_x, self.k, self.value_x, self.v = keys.evaluate(sources, num_graphs)
        self.key_input, _, log, value = keys.log_features(self.k, inputs.map.is_exponential)
        shape = (num_graphs, inputs.heads, 1, inputs.num_features())
        maximum = self.k.new_zeros(()) if log is None else largest(log, 2)
        self.key_feature = scaled(log, value, maximum)
        self.maximum: Tensor = maximum.expand(shape)
        self.query_x, self.q, self.query_input, self.query_feature = queries.features(
            targets, self.maximum[:, :, 0]
        )
        masks = mask_of(queries.inputs, targets, num_graphs), mask_of(inputs, sources, num_graphs)
        self.masks = both_masks(*masks, self.q.size(2), self.k.size(2))
        self.self_value = self_value_of(queries.inputs, targets, num_graphs)
        self.factor = None if factor is None else factor[:, :, None]
        self.read_feature = (
            self.query_feature if self.factor is None else self.query_feature * self.factor
        )
        self.kernel = self.read_feature @ self.key_feature.transpose(2, 3)
        self.weight = self._under_mask(self.kernel)

    def _under_mask(self, x: Tensor) -> Tensor:
        return x if self.masks is None else x * (self.masks[0] @ self.masks[1].transpose(2, 3))

    def read(self, out: Tensor, denominators: Tensor) -> None:
        r"""Writes the outputs and the denominators of the targets to their rows of :obj:`out`
        ``[N_t, H * D]`` and :obj:`denominators` ``[N_t, H]``."""
        denominator = guarded(self.weight.sum(-1, keepdim=True), self.inputs, self.k.size(2))
        numerator = self.weight @ self.v
        if self.self_value is not None:
            numerator = numerator + self.self_value
        rows = numerator * inverse_of(denominator)
        out[self.targets] = join(rows).to(out.dtype)
        denominators[self.targets] = join(denominator)

    def add_grads(
        self, queries: QueryGrads, keys: KeyGrads, denominators: Tensor, grad_out: Tensor
    ) -> Tensor | None:
        r"""Adds the gradients of queries to :obj:`queries`, and the gradients of keys and values to
        :obj:`keys`.

        :obj:`denominators` ``[N_t, H]`` are the results of :meth:`read`, and :obj:`grad_out`
        ``[N_t, H * D]`` is the gradient of its outputs. Returns the gradient of the factor
        ``[G, H, M]``, or :obj:`None` without a factor.
        """
        num_graphs, heads = self.kernel.size(0), keys.inputs.heads
        denominator, grad_rows = (
            split(take(rows, self.targets), num_graphs, heads) for rows in (denominators, grad_out)
        )
        inverse = inverse_of(denominator)
        grad_numerator = grad_rows * inverse
        grad_weight = grad_numerator @ self.v.transpose(2, 3)
        inner_product = (grad_weight * self.weight).sum(-1, keepdim=True)
        if self.self_value is not None and queries.grad_self_value is not None:
            inner_product += (grad_numerator * self.self_value).sum(-1, keepdim=True)
            queries.grad_self_value[self.targets] = join(grad_numerator).to(
                queries.grad_self_value.dtype
            )
        grad_denominator = -inner_product * inverse
        grad_weight = grad_weight + grad_denominator
        self._add_mask_grads(queries, keys, grad_weight)
        grad_kernel = self._under_mask(grad_weight)
        grad_read = grad_kernel @ self.key_feature
        grad_key = grad_key_features(
            keys.inputs,
            grad_kernel.transpose(2, 3),
            self.read_feature,
            self.kernel.transpose(2, 3),
            self.maximum,
        )
        grad_factor = None
        grad_query = grad_read
        if self.factor is not None:
            grad_factor = (grad_read * self.query_feature).sum(2)
            grad_query = grad_read * self.factor
        grad_query_input = self._vjp(queries, self.query_input, self.query_feature, grad_query)
        grad_key_input = self._vjp(keys, self.key_input, self.key_feature, grad_key)
        grad_k = join(keys.head_grad.add(self.k, grad_key_input))
        grad_v = join(self.weight.transpose(2, 3) @ grad_numerator)
        queries.collect(self.targets, self.query_x, self.q, grad_query_input)
        keys.collect(self.sources, self.key_x, grad_k, self.value_x, grad_v)
        return grad_factor

    @staticmethod
    def _vjp(part: Queries | Keys, map_input: Tensor, feature: Tensor, grad: Tensor) -> Tensor:
        inputs = part.inputs
        is_key = isinstance(part, Keys)
        return inputs.map.vjp(map_input, inputs.projection, inputs.power, is_key, feature, grad)

    def _add_mask_grads(self, queries: QueryGrads, keys: KeyGrads, grad_weight: Tensor) -> None:
        if self.masks is None:
            return
        grad_mask = (grad_weight * self.kernel).sum(1)  # [G, n, m], of the product of both masks
        query_mask, key_mask = (mask[:, 0] for mask in self.masks)
        if queries.grad_mask is not None:
            queries.grad_mask[self.targets] = (grad_mask @ key_mask).flatten(0, 1)
        if keys.grad_mask is not None:
            keys.grad_mask[self.sources] = (grad_mask.transpose(1, 2) @ query_mask).flatten(0, 1)
