# M features of one sample: a state has K * M.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked_keys import KeyGrads, Keys
from torch_geometric_lgt.functional._engine.chunked_queries import Queries, QueryGrads
from torch_geometric_lgt.functional._engine.features import add_sums, largest, scaled
from torch_geometric_lgt.functional._engine.layout import Nodes, join, noise_of, split, take
from torch_geometric_lgt.functional.numerics import inverse_of, neutral
from torch_geometric_lgt.functional.tracing import may_read_values

MAX_GAP = 40.0  # sums may be smaller than their divisors by the exponential of this
STEP = 1 / 64


def split_maximum(maximum: Tensor, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Splits the maximum ``[G, H, K * M]`` of log-features into a part for each feature and a part
    for each sample.

    Returns:
        Each maximum minus the largest one of its sample, ``[G, H, K, M]``. The largest one of each
        sample, ``[G, H, K]``. Whether all samples of a graph have the same differences, ``[G]``;
        NaN counts as the same.
    """
    both = maximum.unflatten(-1, (samples, -1))
    sample_maximum = both.amax(-1)
    feature_maximum = both - sample_maximum[..., None]
    differs = (feature_maximum - feature_maximum[..., :1, :]).abs() > 0
    return feature_maximum, sample_maximum, ~differs.flatten(1).any(1)


def round_up(x: Tensor) -> Tensor:
    r"""Rounds each number up to a multiple of 1/64. Sums of such numbers are exact."""
    return (x / STEP).ceil() * STEP


def outer_sum(of_features: Tensor, of_samples: Tensor) -> Tensor:
    r"""Returns the sums ``[..., K * M]`` of each number of :obj:`of_samples` ``[..., K]`` and each
    of :obj:`of_features` ``[..., M]``, sample by sample."""
    return (of_features[..., None, :] + of_samples[..., None]).flatten(-2)


def outer_product(of_features: Tensor, of_samples: Tensor) -> Tensor:
    r"""Returns the products ``[..., K * M]`` of each number of :obj:`of_samples` ``[..., K]`` and
    each of :obj:`of_features` ``[..., M]``, sample by sample."""
    return (of_features[..., None, :] * of_samples[..., None]).flatten(-2)


class SampledKeys(Keys):
    r"""Computes the features of keys with :math:`K` random weightings (samples), and builds states:
    sums over all keys of a graph.

    A state is stored divided by exponentials. Usually their exponents are the sum of a bound for
    each feature and a bound for each sample. Then :math:`M + K` exponentials per key give all
    :math:`K M` features as products. If the bounds are far above the logarithms, the exponents are
    the maxima of all :math:`K M` logarithms.
    """

    def weighed(
        self, log: Tensor | None, value: Tensor | None, nodes: Nodes, maximum: Tensor
    ) -> Tensor:
        log = cast(Tensor, log)
        feature_maximum, sample_maximum, alike = split_maximum(maximum, self.inputs.samples)
        noise = cast(Tensor, noise_of(self.inputs, nodes, maximum.size(0)))
        noise = noise - sample_maximum[:, :, None]
        centred = log - feature_maximum[:, :, None, 0]
        bound = largest(centred, -1)  # s_j of each node: neither factor is above 1
        product = outer_product(scaled(centred, None, bound), scaled(noise, None, -bound))
        if may_read_values() and bool(alike.all()):
            return product
        centred = log[..., None, :] - feature_maximum[:, :, None]
        joint = scaled(centred, None, -noise[..., None]).flatten(-2)
        return torch.where(alike[:, None, None, None], product, joint)

    def build(self, num_graphs: int, chunks: list[Nodes]) -> tuple[Tensor, Tensor, Tensor]:
        inputs, samples = self.inputs, self.inputs.samples
        sums, maximum, squares = self.empty_state(num_graphs)
        # a_m and b_k, and the largest log-weight of each sample
        feature_bound, sample_bound, strongest = (
            sums.new_full((num_graphs, inputs.heads, size), neutral(sums.dtype))
            for size in (inputs.num_features() // samples, samples, samples)
        )
        log_strongest = torch.full_like(maximum, torch.inf).unflatten(-1, (samples, -1))
        sums = sums.transpose(2, 3).contiguous()
        for nodes in chunks:
            _, k, _, v = self.evaluate(nodes, num_graphs)
            _, squared, log, _ = self.log_features(k)
            squares += cast(Tensor, squared).sum((2, 3))
            log = cast(Tensor, log)
            noise = cast(Tensor, noise_of(inputs, nodes, num_graphs))
            peak, node = noise.max(2)
            log_peak = torch.gather(log, 2, node[..., None].expand(-1, -1, -1, log.size(-1)))
            log_strongest = torch.where((peak > strongest)[..., None], log_peak, log_strongest)
            strongest = torch.maximum(strongest, peak)
            new_feature_bound = torch.maximum(feature_bound, round_up(log.amax(2)))
            new_sample_bound = torch.maximum(sample_bound, round_up(peak))
            rescale = outer_sum(feature_bound - new_feature_bound, sample_bound - new_sample_bound)
            sums *= rescale.exp()[:, :, None]
            feature_bound, sample_bound = new_feature_bound, new_sample_bound
            weight = scaled(noise, None, sample_bound[:, :, None])
            feature = outer_product(scaled(log, None, feature_bound[:, :, None]), weight)
            add_sums(sums, feature, v)
        sums = sums.transpose(2, 3).contiguous()
        if not chunks:
            return sums, maximum, squares
        maximum = outer_sum(feature_bound, sample_bound)
        gap = feature_bound[..., None, :] - log_strongest
        is_wide = (gap > MAX_GAP).flatten(1).any(1)[:, None, None]
        if not may_read_values() or bool(is_wide.any()):
            joint_sums, joint_maximum, _ = super().build(num_graphs, chunks)
            sums = torch.where(is_wide[..., None], joint_sums, sums)
            maximum = torch.where(is_wide, joint_maximum, maximum)
        return sums, maximum, squares


class SampledKeyGrads(KeyGrads, SampledKeys):
    r"""Accumulates the gradients of values and of keys with :math:`K` random weightings
    (samples)."""


class SampledQueries(Queries):
    r"""Computes the mean of the :math:`K` attention outputs from :math:`K` random weightings
    (samples) of the keys. A state (sums over all keys of a graph) has the features of all samples,
    ``[G, H, K * M]``, and rank 1."""

    def features(self, nodes: Nodes, maximum: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Computes the queries at the positions :obj:`nodes` of :math:`G` graphs of equal size,
        and their features for each sample.

        :obj:`maximum` ``[G, H, K * M]`` is added to the logarithms, since the features of keys were
        divided by its exponential. The largest feature of each sample is 1.

        Returns:
            The three results of :meth:`evaluate` and the features ``[G, H, n, K, M]``, or
            ``[G, H, n, 1, M]`` if all samples have the same
        """
        inputs = self.inputs
        x, q, map_input = self.evaluate(nodes, maximum.size(0))
        log, _ = inputs.map.log_features(map_input, inputs.projection, inputs.power, None)
        feature_maximum, _, alike = split_maximum(maximum, inputs.samples)
        if may_read_values() and bool(alike.all()):
            feature_maximum = feature_maximum[..., :1, :]
        log = cast(Tensor, log)[..., None, :] + feature_maximum[:, :, None]
        return x, q, map_input, scaled(log, None, largest(log, -1))

    def read(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, denominators: Tensor
    ) -> None:
        values, weights = self._split_sums(sums)
        for nodes in chunks:
            feature = self.features(nodes, maximum)[-1]
            if feature.size(-2) == 1:
                denominator = feature.squeeze(-2) @ weights.transpose(2, 3)
            else:
                denominator = (feature * weights[:, :, None]).sum(-1)
            scaled_feature = feature * self._inverse(denominator)
            out[nodes] = join(scaled_feature.flatten(-2) @ values).to(out.dtype)
            denominators[nodes] = join(denominator)

    def _split_sums(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        r"""Splits the sums ``[G, H, K * M, D + 1]`` of a state (over all keys of a graph) into the
        value sums ``[G, H, K * M, D]`` and the weights ``[G, H, K, M]``."""
        return sums[..., :-1].contiguous(), sums[..., -1].unflatten(-1, (self.inputs.samples, -1))

    def _inverse(self, denominator: Tensor) -> Tensor:
        r"""Returns the reciprocal of :math:`K` times :obj:`denominator` ``[G, H, n, K]``,
        ``[G, H, n, K, 1]``; 0 for a graph without keys."""
        return inverse_of(self.inputs.samples * denominator)[..., None]


class SampledQueryGrads(QueryGrads, SampledQueries):
    r"""Accumulates the gradients of queries that read keys with :math:`K` random weightings
    (samples)."""

    def add(
        self,
        sums: Tensor,
        maximum: Tensor,
        chunks: list[Nodes],
        denominators: Tensor,
        grad_out: Tensor,
    ) -> Tensor:
        inputs = self.inputs
        num_graphs = sums.size(0)
        values, weights = self._split_sums(sums)
        transposed = values.transpose(2, 3).contiguous()
        grad_values, grad_weights = torch.zeros_like(transposed), torch.zeros_like(weights)
        for nodes in chunks:
            x, q, map_input, feature = self.features(nodes, maximum)
            denominator, grad_rows = (
                split(take(rows, nodes), num_graphs, inputs.heads)
                for rows in (denominators, grad_out)
            )
            scaled_feature = feature * self._inverse(denominator)
            grad_feature = (grad_rows @ transposed).unflatten(-1, (inputs.samples, -1))
            inner_product = (scaled_feature * grad_feature).sum(-1, keepdim=True) * inputs.samples
            grad_values += grad_rows.transpose(2, 3) @ scaled_feature.flatten(-2)
            grad_weights -= (scaled_feature * inner_product).sum(2)
            grad_feature.addcmul_(inner_product, weights[:, :, None], value=-1)
            grad_log = grad_feature.mul_(scaled_feature).sum(-2)
            grad_map_input = inputs.map.vjp(
                map_input, inputs.projection, inputs.power, False, grad_log.new_ones(()), grad_log
            )
            self.collect(nodes, x, q, grad_map_input)
        return torch.cat([grad_values.transpose(2, 3), grad_weights.flatten(-2)[..., None]], -1)
