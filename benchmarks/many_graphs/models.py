r"""Builds the networks for many graphs, which all map a batch of graphs to scores."""

# N nodes, E edges.
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from benchmarks.common.attentions import GRAPH_TRANSFORMER, with_attention
from torch_geometric_lgt.nn import GraphTransformer, LiteGT

KERNELS = {
    'gt': ('softmax', 'softmax'),
    'litegt-jaccard': 'jaccard',
    'litegt-subtractor': 'subtractor',
    'jaccard-alone': ('jaccard', 'jaccard'),
    'subtractor-alone': ('subtractor', 'subtractor'),
    'mean-alone': ('mean', 'mean'),
}
STEPS = ('', '-sampling', '-sampling-reduced')
TRANSFORMERS = {
    f'{name}{step}': (kernel, step)
    for name, kernel in KERNELS.items()
    for step in (STEPS if 'litegt' in name else [''])
}
# Networks whose attention has scores, which features of edges can multiply.
WITH_EDGE_FEATURES = tuple(
    name for name in TRANSFORMERS if not name.startswith(('jaccard-alone', 'mean-alone'))
)
CONVOLUTIONS = ('gcn', 'sage', 'monet', 'gat', 'gin', 'gatedgcn')
NETWORKS = (GRAPH_TRANSFORMER, *TRANSFORMERS, *CONVOLUTIONS)


class Transformer(torch.nn.Module):
    r"""Applies LiteGT to a batch, which has the encodings, Jaccard scores and sampled nodes."""

    def __init__(self, model: LiteGT, sampled: bool) -> None:
        super().__init__()
        self.model, self.sampled = model, sampled

    def forward(self, data: Data) -> Tensor:
        return self.model(
            data.x,
            data.edge_index,
            data.batch,
            **self._inputs(data, data.attention_mask if self.sampled else None),
        )

    def attention_scores(self, data: Data, mask: Tensor | None) -> list[Tensor]:
        r"""Returns the weights ``[E, H]`` of the edges in each layer, with softmax attention at the
        nodes of the mask."""
        return self.model.attention_scores(data.x, data.edge_index, **self._inputs(data, mask))

    def _inputs(self, data: Data, mask: Tensor | None) -> dict[str, Tensor | None]:
        return {
            'laplacian_pe': None if self.model.lin_pe is None else data.laplacian_pe,
            'edge_jaccard': data.edge_jaccard,
            'sampled_mask': mask,
            'edge_attr': None if self.model.lin_edge is None else data.edge_attr,
        }


class LocalAndGlobal(torch.nn.Module):
    r"""Applies GraphTransformer, message passing beside all-pair attention, to a batch, which has
    the encodings."""

    def __init__(self, model: GraphTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: Data) -> Tensor:
        encodings = {name: data[name] for name in self.model.encodings}
        return self.model(data.x, data.edge_index, data.batch, data.num_graphs, **encodings)


class Stack(torch.nn.Module):
    r"""Stacks convolutions of PyG, with batch normalisation and residuals, between linear maps. The
    networks of these names in "Benchmarking Graph Neural Networks" have other operators, outputs
    and widths."""

    def __init__(
        self, name: str, sizes: tuple[int, int, int], num_layers: int, pe_channels: int, level: str
    ) -> None:
        super().__init__()
        width = sizes[1]
        make = {
            'gcn': lambda: pyg.GCNConv(width, width),
            'sage': lambda: pyg.SAGEConv(width, width),
            'monet': lambda: pyg.GMMConv(width, width, dim=2, kernel_size=3),
            'gat': lambda: pyg.GATConv(width, width // 8, 8),
            'gin': lambda: pyg.GINConv(pyg.MLP([width, width, width]), train_eps=True),
            'gatedgcn': lambda: pyg.ResGatedGraphConv(width, width),
        }[name]
        self.name, self.level = name, level
        self.lin_in = torch.nn.Linear(sizes[0], width)
        self.lin_pe = torch.nn.Linear(pe_channels, width) if pe_channels > 0 else None
        self.convs = torch.nn.ModuleList(make() for _ in range(num_layers))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(width) for _ in range(num_layers))
        in_channels = 2 * width if level == 'edge' else width
        self.lin_out = pyg.MLP(
            [in_channels, in_channels // 2, in_channels // 4, sizes[2]], norm=None
        )

    def forward(self, data: Data) -> Tensor:
        x = self.lin_in(data.x)
        if self.lin_pe is not None:
            x = x + self.lin_pe(data.laplacian_pe)
        arguments = [_pseudo_coordinates(data)] if self.name == 'monet' else []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + norm(conv(x, data.edge_index, *arguments)).relu()
        return self.lin_out(
            x[data.edge_index].transpose(0, 1).flatten(1) if self.level == 'edge' else x
        )


def _pseudo_coordinates(data: Data) -> Tensor:
    r"""Computes :math:`(d_i^{-1/2}, d_j^{-1/2})` of each edge ``[E, 2]``."""
    return degree(data.edge_index[1], data.num_nodes).clamp(min=1).rsqrt()[data.edge_index].t()


def network(
    name: str, sizes: tuple[int, int, int], level: str, pe_channels: int, options: dict[str, Any]
) -> torch.nn.Module:
    r"""Builds the network :obj:`name`; :obj:`sizes` are its input, hidden and output channels."""
    if name == GRAPH_TRANSFORMER:
        return LocalAndGlobal(
            GraphTransformer(
                *sizes,
                conv='ResGatedGraphConv',
                encodings={'laplacian_pe': pe_channels} if pe_channels > 0 else None,
                level=level,
                **{'dropout': 0.0, 'input_norm': False, **with_attention(options)},
            )
        )
    if name in CONVOLUTIONS:
        return Stack(name, sizes, options['num_layers'], pe_channels, level)
    kernel, step = TRANSFORMERS[name]
    model = LiteGT(
        *sizes,
        kernel=kernel,
        reduce='reduced' in step,
        pe_channels=pe_channels,
        level=level,
        **options,
    )
    return Transformer(model, 'sampling' in step)
