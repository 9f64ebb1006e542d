# G graphs walked together, n nodes of each, H heads, D channels of a value, M features, K samples.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._loops import Queries, QueryGrads, scaled
from torch_geometric_lgt.functional._sides import Nodes, Side, join, split, take
from torch_geometric_lgt.functional.feature_maps import log_features, log_features_vjp


class SampledQueries(Queries):
    r"""The query side of a call whose keys were weighed :math:`K` times: the mean of the :math:`K` reads. The state's features are those of
    all samples, ``[G, H, K * M]``, of rank 1."""

    def features(self, nodes: Nodes, maximum: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""The input ``[G * n, F]``, the queries ``[G, H, n, C]`` and their features ``[G, H, n, K, M]``, in each sample the largest 1."""
        x, q = self.affine(nodes)
        q = split(q, maximum.size(0), self.side.heads)
        log = cast(Tensor, log_features(self.side.kind, q, self.side.projection, self.side.power, None)[0])
        log = log[..., None, :] + maximum.unflatten(-1, (self.side.samples, -1))[:, :, None]
        return x, q, scaled(log, None, log.amax(-1, keepdim=True))

    def read(self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, normaliser: Tensor) -> None:
        values, weights = self._parts(sums)
        for nodes in chunks:
            feature = self.features(nodes, maximum)[2]
            den = (feature * weights).sum(-1)
            feature *= self._share(den)
            out[nodes] = join(feature.flatten(-2) @ values).to(out.dtype)
            normaliser[nodes] = join(den)

    def _parts(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        r"""The values ``[G, H, K * M, D]`` and the weights ``[G, H, 1, K, M]`` of a state."""
        return sums[..., :-1].contiguous(), sums[..., -1].unflatten(-1, (self.side.samples, -1))[:, :, None]

    def _share(self, den: Tensor) -> Tensor:
        r"""What one sample's weights are multiplied by, ``[G, H, n, K, 1]``; 0 where there is no key."""
        return (self.side.samples * den).reciprocal().masked_fill_(den == 0, 0)[..., None]


class SampledQueryGrads(QueryGrads, SampledQueries):
    r"""The gradients of the query side of a call with samples."""

    def add(self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, normaliser: Tensor, grad: Tensor) -> Tensor:
        side, graphs = self.side, sums.size(0)
        values, weights = self._parts(sums)
        transposed = values.transpose(2, 3).contiguous()
        grad_values, grad_weights = torch.zeros_like(transposed), torch.zeros_like(weights)
        for nodes in chunks:
            x, q, feature = self.features(nodes, maximum)
            den, g = split(take(normaliser, nodes), graphs, side.heads), split(take(grad, nodes), graphs, side.heads)
            read = (g @ transposed).unflatten(-1, (side.samples, -1))
            feature *= self._share(den)
            along = (feature * read).sum(-1, keepdim=True) * side.samples  # of each sample's read with the gradient
            grad_values += g.transpose(2, 3) @ feature.flatten(-2)
            grad_weights -= (feature * along).sum(2, keepdim=True)
            grad_log = read.addcmul_(along, weights, value=-1).mul_(feature).sum(-2)
            grad_q = log_features_vjp(side.kind, q, side.projection, side.power, False, grad_log.new_ones(()), grad_log)
            self.grad.add(nodes, x, join(grad_q))
        return torch.cat([grad_values.transpose(2, 3), grad_weights.flatten(-2).transpose(2, 3)], -1)


def queries_of(side: Side) -> Queries:
    return Queries(side) if side.samples == 1 else SampledQueries(side)


def query_grads_of(side: Side) -> QueryGrads:
    return QueryGrads(side) if side.samples == 1 else SampledQueryGrads(side)
