# G graphs of n targets and m sources each, H heads, C channels of a key, D of a value, M features.
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked import Keys, Queries, largest, scaled
from torch_geometric_lgt.functional._engine.layout import Nodes, mask_of, self_value_of


class OneChunk:
    r"""Computes the features of all queries and keys of :math:`G` graphs of equal size at once.

    Args:
        queries (Queries): Computes queries.
        keys (Keys): Computes keys and values.
        targets (torch.Tensor or slice): The positions of the :math:`G n` queries, graph by graph.
        sources (torch.Tensor or slice): The positions of the :math:`G m` keys, graph by graph.
        graphs (int): :math:`G`.

    Attributes:
        k, v (torch.Tensor): Keys ``[G, H, m, C]`` and values ``[G, H, m, D]``.
        q (torch.Tensor): Queries ``[G, H, n, C]``.
        key_input, query_input (torch.Tensor): The inputs of the feature map.
        key_feature, query_feature (torch.Tensor): Features ``[G, H, m, M]`` and ``[G, H, n, M]``.
        maximum (torch.Tensor): ``[G, H, 1, M]``; the features of keys are divided by its
            exponential.
        masks (tuple, optional): The mask weights of queries ``[G, 1, n, R]`` and keys
            ``[G, 1, m, R]``, 1 on a side without mask. :obj:`None` if no side has one.
        self_value (torch.Tensor, optional): The values ``[G, H, n, D]`` that queries include with
            weight 1.
    """

    def __init__(
        self, queries: Queries, keys: Keys, targets: Nodes, sources: Nodes, graphs: int
    ) -> None:
        inputs = keys.inputs
        self.key_x, self.k, self.value_x, self.v = keys.evaluate(sources, graphs)
        self.key_input, _, log, value = keys.log_features(self.k, inputs.map.is_exponential)
        shape = (graphs, inputs.heads, 1, inputs.num_features())
        maximum = self.k.new_zeros(()) if log is None else largest(log, 2)
        self.key_feature = scaled(log, value, maximum)
        self.maximum: Tensor = maximum.expand(shape)
        self.query_x, self.q, self.query_input, self.query_feature = queries.features(
            targets, self.maximum[:, :, 0]
        )
        self.masks = self._both_masks(
            mask_of(queries.inputs, targets, graphs), mask_of(inputs, sources, graphs)
        )
        self.self_value = self_value_of(queries.inputs, targets, graphs)

    def _both_masks(
        self, query_mask: Tensor | None, key_mask: Tensor | None
    ) -> tuple[Tensor, Tensor] | None:
        if query_mask is None and key_mask is None:
            return None
        (graphs, _, num_targets, _), num_sources = self.q.shape, self.k.size(2)
        one = self.k.new_ones(1)
        if query_mask is None:
            query_mask = one.expand(graphs, 1, num_targets, 1)
        if key_mask is None:
            key_mask = one.expand(graphs, 1, num_sources, 1)
        return query_mask, key_mask
