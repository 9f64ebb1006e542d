# N nodes, G graphs walked together, n nodes of each, H heads, D channels of a value, M features, K
# samples.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked import (
    KeyGrads,
    Keys,
    Queries,
    QueryGrads,
    largest,
    scaled,
)
from torch_geometric_lgt.functional._engine.layout import Nodes, join, noise_of, split, take
from torch_geometric_lgt.functional.numerics import inverse_of, neutral

MAX_GAP = 40.0  # sums may be this far, as a logarithm, below what they are divided by
STEP = 1 / 64


def split_maximum(maximum: Tensor, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Splits a maximum ``[G, H, K * M]`` into the differences of the features to the largest,
    ``[G, H, K, M]``, and the largest of each sample, ``[G, H, K]``. Also says of which graphs,
    ``[G]``, all samples have the same differences; NaN counts as the same."""
    both = maximum.unflatten(-1, (samples, -1))
    of_sample = both.amax(-1)
    of_feature = both - of_sample[..., None]
    differences = (of_feature - of_feature[..., :1, :]).abs() > 0
    return of_feature, of_sample, ~differences.flatten(1).any(1)


def above(x: Tensor) -> Tensor:
    r"""The next multiples of a power of 2: their sums are exact."""
    return (x / STEP).ceil() * STEP


class SampledKeys(Keys):
    r"""The keys and values of a call whose keys are weighed :math:`K` times. Where the logarithms
    allow it, a state is divided by the exponential of a bound for each feature plus one for each
    sample, so that its exponentials are products of :math:`M + K`; where not, by that of the
    maximum of all :math:`K M`."""

    def weighed(
        self, log: Tensor | None, value: Tensor | None, nodes: Nodes, maximum: Tensor
    ) -> Tensor:
        of_feature, of_sample, alike = split_maximum(maximum, self.side.samples)
        log, noise = (
            cast(Tensor, log),
            cast(Tensor, noise_of(self.side, nodes, maximum.size(0))) - of_sample[:, :, None],
        )
        centred = log - of_feature[:, :, None, 0]
        shift = largest(centred, -1)  # that of each node: neither factor is above 1
        product = (
            scaled(centred, None, shift)[..., None, :] * scaled(noise, None, -shift)[..., None]
        ).flatten(-2)
        if bool(alike.all()):
            return product
        joint = scaled(log[..., None, :] - of_feature[:, :, None], None, -noise[..., None]).flatten(
            -2
        )
        return torch.where(alike[:, None, None, None], product, joint)

    def build(self, graphs: int, chunks: list[Nodes]) -> tuple[Tensor, Tensor, Tensor]:
        side = self.side
        sums, maximum, squares = self.empty_state(graphs)
        least = neutral(sums.dtype)
        of_feature, of_sample, strongest = (
            sums.new_full((graphs, side.heads, size), least)
            for size in (side.num_features() // side.samples, side.samples, side.samples)
        )
        log_strongest = torch.full_like(maximum, torch.inf).unflatten(-1, (side.samples, -1))
        sums = sums.transpose(2, 3).contiguous()
        for nodes in chunks:
            _, k, _, v = self.evaluate(nodes, graphs)
            squared = k.square().sum(-1, keepdim=True)
            squares += squared.sum((2, 3))
            log = cast(Tensor, side.map.log_features(k, side.projection, side.power, squared)[0])
            noise = cast(Tensor, noise_of(side, nodes, graphs))
            peak, node = noise.max(2)
            reached = torch.gather(log, 2, node[..., None].expand(-1, -1, -1, log.size(-1)))
            log_strongest = torch.where((peak > strongest)[..., None], reached, log_strongest)
            strongest = torch.maximum(strongest, peak)
            new_feature, new_sample = (
                torch.maximum(of_feature, above(log.amax(2))),
                torch.maximum(of_sample, above(peak)),
            )
            sums *= (
                ((of_feature - new_feature)[..., None, :] + (of_sample - new_sample)[..., None])
                .flatten(-2)
                .exp()[:, :, None]
            )
            of_feature, of_sample = new_feature, new_sample
            weight = scaled(noise, None, of_sample[:, :, None])
            feature = (
                scaled(log, None, of_feature[:, :, None])[..., None, :] * weight[..., None]
            ).flatten(-2)
            sums += (
                torch.cat([v, v.new_ones(()).expand(*v.shape[:-1], 1)], -1).transpose(2, 3)
                @ feature
            )
        sums = sums.transpose(2, 3).contiguous()
        if not chunks:
            return sums, maximum, squares
        maximum = (of_feature[..., None, :] + of_sample[..., None]).flatten(-2)
        apart = (
            ((of_feature[..., None, :] - log_strongest) > MAX_GAP).flatten(1).any(1)[:, None, None]
        )
        if bool(apart.any()):
            joint_sums, joint_maximum, _ = super().build(graphs, chunks)
            sums, maximum = (
                torch.where(apart[..., None], joint_sums, sums),
                torch.where(apart, joint_maximum, maximum),
            )
        return sums, maximum, squares


class SampledKeyGrads(KeyGrads, SampledKeys):
    r"""The gradients of the keys and values of a call with samples."""


class SampledQueries(Queries):
    r"""The query side of a call whose keys were weighed :math:`K` times: the mean of the :math:`K`
    reads. The state's features are those of all samples, ``[G, H, K * M]``, of rank 1."""

    def features(self, nodes: Nodes, maximum: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""The input ``[G * n, F]``, the queries ``[G, H, n, C]`` and their features ``[G, H, n, K,
        M]``, in each sample the largest 1, for all samples at once, ``[G, H, n, 1, M]``, where they
        are alike."""
        x, q = self.affine(nodes)
        q = split(q, maximum.size(0), self.side.heads)
        log = cast(
            Tensor, self.side.map.log_features(q, self.side.projection, self.side.power, None)[0]
        )
        of_feature, _, alike = split_maximum(maximum, self.side.samples)
        of_feature = of_feature[..., :1, :] if bool(alike.all()) else of_feature
        log = log[..., None, :] + of_feature[:, :, None]
        return x, q, scaled(log, None, largest(log, -1))

    def read(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, normaliser: Tensor
    ) -> None:
        values, weights = self._parts(sums)
        for nodes in chunks:
            feature = self.features(nodes, maximum)[2]
            alike = feature.size(-2) == 1
            den = (
                feature.squeeze(-2) @ weights.transpose(2, 3)
                if alike
                else (feature * weights[:, :, None]).sum(-1)
            )
            out[nodes] = join((feature * self._share(den)).flatten(-2) @ values).to(out.dtype)
            normaliser[nodes] = join(den)

    def _parts(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        r"""The values ``[G, H, K * M, D]`` and the weights ``[G, H, K, M]`` of a state."""
        return sums[..., :-1].contiguous(), sums[..., -1].unflatten(-1, (self.side.samples, -1))

    def _share(self, den: Tensor) -> Tensor:
        r"""What one sample's weights are multiplied by, ``[G, H, n, K, 1]``; 0 where there is no
        key."""
        return inverse_of(self.side.samples * den)[..., None]


class SampledQueryGrads(QueryGrads, SampledQueries):
    r"""The gradients of the query side of a call with samples."""

    def add(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], normaliser: Tensor, grad: Tensor
    ) -> Tensor:
        side, graphs = self.side, sums.size(0)
        values, weights = self._parts(sums)
        transposed = values.transpose(2, 3).contiguous()
        grad_values, grad_weights = torch.zeros_like(transposed), torch.zeros_like(weights)
        for nodes in chunks:
            x, q, feature = self.features(nodes, maximum)
            den, g = (
                split(take(normaliser, nodes), graphs, side.heads),
                split(take(grad, nodes), graphs, side.heads),
            )
            read = (g @ transposed).unflatten(-1, (side.samples, -1))
            feature = feature * self._share(den)
            along = (feature * read).sum(
                -1, keepdim=True
            ) * side.samples  # of each sample's read with the gradient
            grad_values += g.transpose(2, 3) @ feature.flatten(-2)
            grad_weights -= (feature * along).sum(2)
            grad_log = read.addcmul_(along, weights[:, :, None], value=-1).mul_(feature).sum(-2)
            grad_q = side.map.vjp(
                q, side.projection, side.power, False, grad_log.new_ones(()), grad_log
            )
            self.grad.add(nodes, x, join(grad_q))
        return torch.cat([grad_values.transpose(2, 3), grad_weights.flatten(-2)[..., None]], -1)
