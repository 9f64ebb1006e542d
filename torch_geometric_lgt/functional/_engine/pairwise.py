# N nodes, G graphs walked together, n nodes of each, H heads, D channels of a value, M features, R
# rank of the mask.
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked import (
    KeyGrads,
    Keys,
    Queries,
    QueryGrads,
    largest,
    scaled,
)
from torch_geometric_lgt.functional._engine.layout import (
    Nodes,
    join,
    mask_of,
    self_value_of,
    split,
    take,
)
from torch_geometric_lgt.functional.inputs import rounding_share
from torch_geometric_lgt.functional.numerics import inverse_of, without_cancellation


class Pairs:
    r"""The weights of all pairs of nodes of equally large graphs, which are fewer than the numbers
    of a state where graphs are small; the features of the queries are multiplied by :obj:`factor`
    ``[G, H, M]``."""

    def __init__(
        self, queries: Queries, keys: Keys, to: Nodes, of: Nodes, graphs: int, factor: Tensor | None
    ) -> None:
        side = keys.side
        self.to, self.of, self.factor = to, of, None if factor is None else factor[:, :, None]
        self.side = side
        self.key_input, self.k, self.value_input, self.v = keys.evaluate(of, graphs)
        log, value = side.map.log_features(
            self.k, side.projection, side.power, self.k.square().sum(-1, keepdim=True)
        )
        of_feature = self.k.new_zeros(()) if log is None else largest(log, 2)
        self.key_feature = scaled(log, value, of_feature)
        maximum = of_feature.expand(graphs, side.heads, 1, side.num_features())[:, :, 0]
        self.query_input, self.q, self.query_feature = queries.features(to, maximum)
        self.read_feature = (
            self.query_feature if self.factor is None else self.query_feature * self.factor
        )
        self.weight = self.read_feature @ self.key_feature.transpose(2, 3)
        of_query, of_key = mask_of(queries.side, to, graphs), mask_of(side, of, graphs)
        self.masks = None
        if of_query is not None or of_key is not None:
            one, (targets, sources) = self.weight.new_ones(1), self.weight.shape[2:]
            of_query = one.expand(graphs, 1, targets, 1) if of_query is None else of_query
            self.masks = of_query, one.expand(graphs, 1, sources, 1) if of_key is None else of_key
        self.masked = self._under_mask(self.weight)
        self.own = self_value_of(queries.side, to, graphs)

    def _under_mask(self, x: Tensor) -> Tensor:
        return x if self.masks is None else x * (self.masks[0] @ self.masks[1].transpose(2, 3))

    def read(self, out: Tensor, normaliser: Tensor) -> None:
        r"""Writes the rows of the targets, see :meth:`Queries.read`."""
        den = self.masked.sum(-1, keepdim=True)
        den = den if self.own is None else den + 1
        if self.own is not None or self.side.map.has_constant:
            constant = self.k.size(2) if self.own is None else 1
            den = without_cancellation(den, constant * rounding_share(self.side))
        inverse = inverse_of(den)
        total = self.masked @ self.v
        out[self.to] = join((total if self.own is None else total + self.own) * inverse).to(
            out.dtype
        )
        normaliser[self.to] = join(den)

    def add_grads(
        self, queries: QueryGrads, keys: KeyGrads, normaliser: Tensor, grad: Tensor
    ) -> Tensor | None:
        r"""Adds the gradients of both sides and returns that of the factor ``[G, H, M]``, if there
        is one."""
        side, graphs = keys.side, self.weight.size(0)
        den, g = (split(take(part, self.to), graphs, side.heads) for part in (normaliser, grad))
        inverse = inverse_of(den)
        g = g * inverse
        parts = g @ self.v.transpose(2, 3)
        slope = (parts * self.masked).sum(-1, keepdim=True)
        if self.own is not None and queries.grad_self_value is not None:
            slope += (g * self.own).sum(-1, keepdim=True)
            queries.grad_self_value[self.to] = join(g).to(queries.grad_self_value.dtype)
        grad_weight = parts - slope * inverse
        self._add_mask_grads(queries, keys, grad_weight)
        grad_weight = self._under_mask(grad_weight)
        grad_read, grad_key = (
            grad_weight @ self.key_feature,
            grad_weight.transpose(2, 3) @ self.read_feature,
        )
        grad_factor, grad_query = None, grad_read
        if self.factor is not None:
            grad_factor, grad_query = (
                (grad_read * self.query_feature).sum(2),
                grad_read * self.factor,
            )
        grad_q, grad_k = (
            join(own.map.vjp(x, own.projection, own.power, own is keys.side, feature, grad_feature))
            for own, x, feature, grad_feature in (
                (queries.side, self.q, self.query_feature, grad_query),
                (keys.side, self.k, self.key_feature, grad_key),
            )
        )
        queries.grad.add(self.to, self.query_input, grad_q)
        keys.collect(
            self.of, self.key_input, grad_k, self.value_input, join(self.masked.transpose(2, 3) @ g)
        )
        return grad_factor

    def _add_mask_grads(self, queries: QueryGrads, keys: KeyGrads, grad_weight: Tensor) -> None:
        if self.masks is None:
            return
        product = (grad_weight * self.weight).sum(1)
        of_query, of_key = (mask[:, 0] for mask in self.masks)
        if queries.grad_mask is not None:
            queries.grad_mask[self.to] = (product @ of_key).flatten(0, 1)
        if keys.grad_mask is not None:
            keys.grad_mask[self.of] = (product.transpose(1, 2) @ of_query).flatten(0, 1)
