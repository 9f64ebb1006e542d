# N nodes (N_s source, N_t target), E pairs, H heads, C channels of a key (D of a value), M
# features, F input width, R rank, K samples.
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.kernel import attend, folded, node_pair
from torch_geometric_lgt.functional.attention.scores import attention_scores
from torch_geometric_lgt.functional.attention.state import build_state, read_state
from torch_geometric_lgt.functional.attention.state_checks import check_mode, check_projection
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput, fold_head_projection
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import Segments
from torch_geometric_lgt.functional.tensor_inputs import check_constant
from torch_geometric_lgt.functional.tracing import is_tracing
from torch_geometric_lgt.nn._layers.attention_layer import AttentionLayer, position_pair
from torch_geometric_lgt.nn._layers.input_checks import feature_pair
from torch_geometric_lgt.nn._layers.kernel_options import (
    check_scale,
    check_temperature,
    make_feature_map,
)
from torch_geometric_lgt.nn._layers.linear_parts import has_hooks, linear_part
from torch_geometric_lgt.nn.feature_map import FeatureMap
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class KernelLayer(AttentionLayer):
    r"""Computes states, outputs and scores of all-pair attention with a feature map. Further
    keyword arguments are those of :class:`AttentionLayer`."""

    num_gumbel_samples = 0
    gumbel_evaluation = 'softmax'

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        *,
        feature_map: str | torch.nn.Module,
        num_features: int | None = None,
        heads: int = 1,
        temperature: float = 1.0,
        scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, heads=heads, **kwargs)
        check_temperature(temperature)
        self.temperature = temperature
        channels = self.head_key_channels
        self.feature_map = make_feature_map(feature_map, channels, num_features, heads)
        check_scale(scale, self._has_logits, feature_map)
        self.scale = channels**-0.5 if scale is None else scale

    @property
    def _has_logits(self) -> bool:
        r"""Tells whether the feature map estimates a function of inner products, which
        :obj:`scale` and :obj:`temperature` change."""
        phi = self.feature_map
        return isinstance(phi, FeatureMap) and phi.map.has_projection

    @property
    def _read_feature_map(self) -> FeatureMap | None:
        r"""Returns the feature map if its projection is read without a call of the map. Returns
        :obj:`None` for a map that must be called: a module of another class, a subclass with a
        :obj:`forward` of its own, or a learned map with hooks, such as that of pruning, which
        computes its weight before each call."""
        phi = self.feature_map
        if (
            not isinstance(phi, FeatureMap)
            or type(phi).forward is not FeatureMap.forward
            or 'forward' in phi.__dict__
            or (phi.is_learned and has_hooks(phi))
        ):
            return None
        return phi

    @property
    def _estimates_softmax(self) -> bool:
        r"""Tells whether the layer reads a feature map that estimates the kernel of a softmax."""
        phi = self._read_feature_map
        return phi is not None and phi.estimates_softmax

    @property
    def random_projection(self) -> Tensor | None:
        r"""Returns the random vectors ``[M, C]`` of the feature map, or :obj:`None` for a map that
        has none or must be called."""
        return getattr(self._read_feature_map, 'projection', None)

    @property
    def _sampling(self) -> bool:
        return self.training and self.num_gumbel_samples > 0

    def query_scales(self) -> list[float]:
        r"""Returns the factor of queries and keys before the feature map, for each head, in a call
        without samples."""
        return [self.data_normalizer(sampling=False)] * self.heads

    def data_normalizer(self, sampling: bool) -> float:
        r"""Returns the factor of queries and keys before the feature map, the root of
        :obj:`scale` over :obj:`temperature`, in a call with or without samples (:obj:`sampling`).
        It is 1 for a map without logits."""
        if not self._has_logits:
            return 1.0
        tempered = sampling or self.num_gumbel_samples == 0 or self.gumbel_evaluation == 'tempered'
        return (self.scale / (self.temperature if tempered else 1.0)) ** 0.5

    def _kernel_input(
        self,
        x: Tensor,
        lin: Linear,
        phi: FeatureMap | None,
        mask: Tensor | None,
        sampling: bool,
        noise: Tensor | None = None,
    ) -> KernelInput:
        r"""Describes the queries or keys of the input :obj:`x` ``[N, F]`` for the attention: the
        projection :obj:`lin`, the mask weights :obj:`mask` ``[N, R]`` and the feature map
        :obj:`phi`. That is :attr:`_read_feature_map`, read once for queries and keys: a hook may
        remove itself at its first call.

        With :obj:`sampling` there are as many weightings of the keys as the layer draws samples,
        else one. The log-weights of keys in these samples are :obj:`noise` ``[N, H * K]``. A
        feature map that must be called is evaluated here; everything else is computed later, some
        rows at a time."""
        if phi is None and sampling:
            raise ValueError(
                "'num_gumbel_samples' must be 0 with a module as 'feature_map' (got "
                f'{self.num_gumbel_samples} and {self.feature_map!r})'
            )
        if phi is None:
            features = self._module_features(lin(x).unflatten(-1, (self.heads, -1))).flatten(1)
            if features.dtype != x.dtype:
                features = features.to(compute_dtype(x.dtype))
            return KernelInput(x=features, heads=self.heads, kind='values', mask=mask)
        projection = phi.projection
        samples = self.num_gumbel_samples if sampling else 1
        check_constant('projection', projection)
        part = linear_part(lin, x)
        inputs = KernelInput(
            x=part.x,
            heads=self.heads,
            kind=phi.map.name,
            weight=part.weight,
            bias=part.bias,
            mask=mask,
            head_projection=phi.head_projection(),
            projection=projection,
            data_normalizer=self.data_normalizer(sampling),
            power=phi.power,
            samples=samples,
            noise=noise,
        )
        return fold_head_projection(inputs)

    def _module_features(self, x: Tensor) -> Tensor:
        r"""Computes the features ``[N, H, M]`` of :obj:`x` ``[N, H, C]`` by a call of the feature
        map. One with logits gets :obj:`x` times their factor.

        Raises:
            ValueError: If the module returns something else.
        """
        if self._has_logits:
            x = x * self.data_normalizer(sampling=False)
        out = self.feature_map(x)
        if (
            not isinstance(out, Tensor)
            or not out.is_floating_point()
            or out.dim() != 3
            or out.shape[:2] != x.shape[:2]
        ):
            kind = f'{out.dtype}, {tuple(out.shape)}' if isinstance(out, Tensor) else type(out)
            raise ValueError(
                f"'feature_map' must return floating-point features [{x.size(0)}, {x.size(1)}, M] "
                f'for {x.size(0)} nodes and {x.size(1)} heads (got {kind})'
            )
        return out

    def _queries(
        self, x: Tensor, phi: FeatureMap | None, mask: Tensor | None, sampling: bool
    ) -> KernelInput:
        return folded(self._kernel_input(x, self.lin_query, phi, mask, sampling))

    def key_noise(self, x: Tensor) -> Tensor | None:
        r"""Draws the noise ``[N, H * K]`` for the keys of :obj:`x` ``[N, F]``: the logarithm
        :math:`g / \tau` of the weight of each key in each of the :math:`K` samples, with :math:`g`
        from a Gumbel distribution. The :math:`K` samples of a head are consecutive columns. Returns
        :obj:`None` in evaluation, and for a layer without samples."""
        if not self._sampling:
            return None
        shape, dtype = (x.size(0), self.heads * self.num_gumbel_samples), compute_dtype(x.dtype)
        exponential = x.new_empty(shape, dtype=dtype).exponential_()
        gumbel = exponential.clamp_(min=torch.finfo(dtype).tiny).log_().neg_()
        return gumbel.div_(self.temperature)

    def _keys(
        self, x: Tensor, phi: FeatureMap | None, mask: Tensor | None, noise: Tensor | None
    ) -> KernelInput:
        return self._kernel_input(x, self.lin_key, phi, mask, noise is not None, noise)

    def _state(
        self,
        x: Tensor,
        nodes: Segments,
        *,
        mask: Tensor | None = None,
        noise: Tensor | None = None,
        position: Tensor | None = None,
    ) -> AttentionState:
        phi = self._read_feature_map
        keys = self._keys(self._key_input(x, position), phi, mask, noise)
        state = build_state(keys, self._value_input(x), nodes)
        state.has_noise = noise is not None
        if phi is not None and phi.projection is not None and not is_tracing():
            state.projection = phi.projection.clone()  # it is drawn anew in place
        return state

    def _attend(
        self,
        x: Tensor | PairTensor,
        batch: Batch,
        batch_size: int | None,
        state: AttentionState | None,
        *,
        masks: tuple[Tensor | None, Tensor | None] = (None, None),
        value: Tensor | None = None,
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the outputs ``[N_t, H * D]`` of the targets, before heads are merged.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair (sources, targets).
            batch (torch.Tensor or tuple, optional): The graph id of each node.
            batch_size (int, optional): The number of graphs.
            state (AttentionState, optional): Sums over all keys of each graph. If given, the
                targets read it, and no key of :obj:`x` is computed.
            masks (tuple): The mask weights of sources ``[N_s, R]`` and targets ``[N_t, R]``, or
                :obj:`None` twice.
            value (torch.Tensor, optional): The values ``[N_s, H * D]`` if they are computed
                already.
            position (torch.Tensor or tuple, optional): The inputs of queries and keys of a layer
                with positions.
        """
        x_src, x_dst = feature_pair(x)
        self._check_targets(x_dst)
        p_src, p_dst = position_pair(position)
        phi = self._read_feature_map
        queries = self._queries(self._key_input(x_dst, p_dst), phi, masks[1], self._sampling)
        if state is not None:
            targets = self._targets(state, x_src, x_dst, batch, batch_size)
            check_mode('state', state, self._sampling)
            check_projection('state', state, None if phi is None else phi.projection)
            return read_state(state, queries, targets).to(x_dst.dtype)
        self._check_sources(x_src)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), batch_size, x_dst.device)
        keys = self._keys(self._key_input(x_src, p_src), phi, masks[0], self.key_noise(x_src))
        values = self._value_input(x_src) if value is None else LinearInput(x=value)
        return attend(queries, keys, values, sources, targets).to(x_dst.dtype)

    def _scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj,
        batch: Batch,
        *,
        masks: tuple[Tensor | None, Tensor | None] = (None, None),
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        x_src, x_dst = feature_pair(x)
        self._check_targets(x_dst)
        self._check_sources(x_src)
        p_src, p_dst = position_pair(position)
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), None, x_dst.device)
        pairs = weighted_edges(edge_index, x_src.size(0), x_dst.size(0))[0]
        phi = self._read_feature_map
        keys = self._keys(self._key_input(x_src, p_src), phi, masks[0], noise=None)
        query_input = self._key_input(x_dst, p_dst)
        queries = self._kernel_input(query_input, self.lin_query, phi, masks[1], sampling=False)
        state = build_state(keys, self._value_input(x_src), sources)
        return attention_scores(queries, keys, state, pairs, sources, targets)
