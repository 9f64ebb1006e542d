r"""Reads the calls of :class:`torch.nn.MultiheadAttention` on the nodes of graphs, as in
:class:`~torch_geometric_lgt.nn.GPSConv` and PyG's layer."""

# N nodes, B graphs, L padded length, E pairs, T targets, H heads, C channels over all heads.
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, MultiheadAttention
from torch.nn.functional import linear


class SelfAttention(Module):
    r"""Gives a :class:`torch.nn.MultiheadAttention` without biases as keys the projections and
    scores of the attention layers of this package.

    The softmax is exact: scores take time and memory of the number of targets times the number of
    nodes."""

    attends_to_neighbors = False

    def __init__(self, module: MultiheadAttention) -> None:
        super().__init__()
        self.module, self.heads = module, module.num_heads
        self.scale = module.head_dim**-0.25

    def lin_query(self, x: Tensor) -> Tensor:
        return self._project(0, x)

    def lin_key(self, x: Tensor) -> Tensor:
        return self._project(1, x)

    def project_values(self, x: Tensor) -> Tensor:
        return self._project(2, x)

    def _project(self, part: int, x: Tensor) -> Tensor:
        weight, bias = self.module.in_proj_weight, self.module.in_proj_bias
        bias = None if bias is None else bias.chunk(3)[part]
        return linear(x, weight.chunk(3)[part], bias)

    def query_scales(self) -> list[float]:
        return [self.scale] * self.heads

    def attention_scores(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        r"""Computes the weight ``[E, H]`` of each pair of nodes in :obj:`edge_index`."""
        targets, row = edge_index[1].unique(return_inverse=True)
        q, k = (
            part.unflatten(1, (self.heads, -1)) * self.scale
            for part in (self.lin_query(x[targets]), self.lin_key(x))
        )
        logits = torch.einsum('ihc,jhc->ijh', q, k)
        is_other = batch[targets][:, None] != batch
        weight = logits.masked_fill(is_other[..., None], -torch.inf).softmax(1)
        return weight[row, edge_index[0]]


def self_attention_call(
    module: MultiheadAttention, arguments: dict[str, Any], output: Tensor
) -> tuple[SelfAttention, dict[str, Any], Tensor] | None:
    r"""Returns the layer, the arguments :obj:`x` ``[N, C]`` and :obj:`batch` ``[N]``, and the
    output ``[N, C]`` of a call of :obj:`module` on graphs that are padded ``[B, L, C]`` or nested.
    The nodes are numbered graph by graph.

    Returns :obj:`None` for a call that is no attention between all nodes of each graph: with keys
    of another input, or with a mask other than that of the padding."""
    x, padding = arguments['query'], _as_bool(arguments.get('key_padding_mask'))
    if (
        arguments['key'] is not x
        or arguments['value'] is not x
        or arguments.get('attn_mask') is not None
        or (padding is not None and padding.dtype != torch.bool)
        or module.bias_k is not None
        or module.add_zero_attn
    ):
        return None
    if x.is_nested:  # as TransformerEncoder makes it of padded graphs
        graphs, outputs = x.unbind(), output.unbind()
        sizes = torch.tensor([len(graph) for graph in graphs], device=x.device)
        batch = torch.arange(len(graphs), device=x.device).repeat_interleave(sizes)
        nodes = {'x': torch.cat(graphs), 'batch': batch}
        return SelfAttention(module), nodes, torch.cat(outputs)
    if x.dim() == 2:
        x, output = x[None], output[None]
        padding = None if padding is None else padding[None]
    elif not module.batch_first:
        x, output = x.transpose(0, 1), output.transpose(0, 1)
    is_node = x.new_ones(x.shape[:2], dtype=torch.bool) if padding is None else ~padding
    nodes = {'x': x[is_node], 'batch': is_node.nonzero()[:, 0]}
    return SelfAttention(module), nodes, output[is_node]


def _as_bool(padding: Tensor | None) -> Tensor | None:
    r"""Returns a mask of 0 and minus infinity as bools, and any other mask unchanged."""
    if padding is None or padding.dtype == torch.bool:
        return padding
    is_padding = padding == -torch.inf
    return is_padding if bool((is_padding | (padding == 0)).all()) else padding
