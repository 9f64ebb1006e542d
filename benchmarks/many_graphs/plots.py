r"""Draws the attention of a trained transformer and its entropy at sampled nodes."""

# N nodes, E edges, H heads.
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse.csgraph import depth_first_order
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import scatter, to_dense_adj, to_scipy_sparse_matrix

from benchmarks.common.figures import COLORS, WIDTH, save_figure, subplots
from benchmarks.common.files import write_file
from benchmarks.common.tables import as_csv
from benchmarks.many_graphs.models import Transformer
from torch_geometric_lgt.functional.neighbors.node_sampling import (
    attention_distance,
    largest_per_graph,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTOR, LAYER = 5, 4
CHOSEN_BY = {  # the scores that are drawn, in words
    'random': 'at random',
    'Eq. 10': 'by Eq. 10',
    'log-sum-exp': 'by log-sum-exp',
    'true entropy': 'by the true entropy',
}


@torch.no_grad()
def draw(model: Transformer, graphs: Sequence[Data], path: Path) -> None:
    r"""Writes pictures of the attention of the first graph, of the entropies in all layers and at
    sampled nodes, and a table of the latter. All file names start with :obj:`path`."""
    model.eval()
    batch, name = Batch.from_data_list(list(graphs)), path.name
    save_figure(map_figure(model, graphs[0]), path.with_name(f'{name}-map.png'))
    weights = model.attention_scores(batch, None)
    save_figure(
        entropy_figure(weights, batch, model.model.kernel), path.with_name(f'{name}-entropy.png')
    )
    deficits = [deficit(weight[:, : weight.size(1) // 2], batch) for weight in weights]
    chosen = sampled_masks(batch, drawn_layer(deficits))
    save_figure(
        sampling_figure(drawn_layer(deficits), chosen), path.with_name(f'{name}-sampling.png')
    )
    table = as_csv(sampling_rows(deficits, chosen))
    write_file(path.with_name(f'{name}-sampling.csv'), table.encode(), 'tables')


def drawn_layer(layers: Sequence[Tensor]) -> Tensor:
    r"""Selects the layer that is drawn: layer ``LAYER``, or the last of fewer."""
    return layers[min(LAYER, len(layers)) - 1]


def entropy(weight: Tensor, data: Data) -> tuple[Tensor, Tensor]:
    r"""Computes the entropy of the weights of each node and head ``[N, H]``, and of equal weights
    ``[N]``."""
    target = data.edge_index[1]
    total = scatter(weight, target, 0, data.num_nodes, 'sum').clamp(min=1e-12)[target]
    share = weight / total
    degree = torch.bincount(target, minlength=data.num_nodes)
    return -scatter(torch.xlogy(share, share), target, 0, data.num_nodes, 'sum'), degree.clamp(
        min=1
    ).log()


def deficit(weight: Tensor, data: Data) -> Tensor:
    r"""Computes how far the entropy of each node falls below that of equal weights.

    The deficit is a share of the entropy of equal weights and a mean over the heads. A plain mean
    has the deficit 0; a single neighbour with all the weight has 1. Nodes with fewer than two
    neighbours have 0.
    """
    entropies, uniform = entropy(weight, data)
    return torch.where(uniform > 0, 1 - entropies.mean(1) / uniform.clamp(min=1e-12), 0)


def sampled_masks(batch: Batch, true: Tensor) -> dict[str, Tensor]:
    r"""Samples equally many nodes of each graph by several scores, and returns a mask per score.
    The score with the true deficits is the best possible one."""
    degree = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
    scores = {
        'Eq. 10': attention_distance(batch.edge_index, batch.num_nodes),
        'log-sum-exp': attention_distance(batch.edge_index, batch.num_nodes, 'lse'),
        'random': torch.rand(batch.num_nodes, generator=torch.Generator().manual_seed(0)),
        'smallest degree': -degree,
        'largest degree': degree,
        'true entropy': true,
    }
    return {name: largest_per_graph(score, batch.batch, FACTOR) for name, score in scores.items()}


def sampling_rows(deficits: Sequence[Tensor], chosen: dict[str, Tensor]) -> list[dict[str, str]]:
    r"""Formats the mean deficit of the chosen nodes in each layer, in per cent."""
    masks = {**chosen, 'all nodes': torch.ones_like(next(iter(chosen.values())))}
    return [
        {
            'chosen by': name,
            **{
                f'layer {layer}': f'{100 * float(value[mask].mean()):.2f}'
                for layer, value in enumerate(deficits, 1)
            },
        }
        for name, mask in masks.items()
    ]


def map_figure(model: Transformer, data: Data) -> 'Figure':
    r"""Draws the mean attention of the first half of the heads if all nodes attend, and if sampled
    nodes attend. Nodes are sorted by label or along the tour."""
    order = data.y.argsort(stable=True) if data.y.numel() == data.num_nodes else tour_order(data)
    figure, panels = subplots(1, 2, figsize=(WIDTH, 3.6))
    for axes, title, mask in zip(
        panels,
        ('all nodes attend', 'sampled nodes attend'),
        (None, data.attention_mask),
        strict=True,
    ):
        weight = drawn_layer(model.attention_scores(data, mask))
        dense = to_dense_adj(
            data.edge_index.flip(0),
            edge_attr=weight[:, : weight.size(1) // 2].mean(1),
            max_num_nodes=data.num_nodes,
        )[0]
        image = axes.imshow(
            dense[order][:, order].numpy(), cmap='magma', vmin=0, vmax=float(dense.quantile(0.999))
        )
        axes.set(title=title, xlabel='neighbour', ylabel='node')
    figure.colorbar(image, ax=panels, label='weight')
    return figure


def tour_order(data: Data) -> Tensor:
    r"""Sorts the nodes along the tour of labelled edges. If edges are missing, the tour falls into
    paths, which follow each other."""
    graph = to_scipy_sparse_matrix(data.edge_index[:, data.y > 0], num_nodes=data.num_nodes).tocsr()
    degree = np.diff((graph + graph.T).indptr)
    is_left = np.ones(data.num_nodes, bool)
    order: list[int] = []
    for start in degree.argsort(kind='stable'):
        if is_left[start]:
            path = depth_first_order(graph, start, directed=False, return_predecessors=False)
            is_left[path] = False
            order.extend(path)
    return torch.as_tensor(np.array(order))


def entropy_figure(
    weights: Sequence[Tensor], data: Data, kernel: str | tuple[str, str]
) -> 'Figure':
    r"""Draws histograms of the entropies of both halves of the heads and of equal weights."""
    kernels = ('softmax', kernel) if isinstance(kernel, str) else kernel
    columns = min(2, len(weights))
    rows = -(-len(weights) // columns)
    figure, panels = subplots(
        rows, columns, figsize=(WIDTH, 2.0 * rows + 0.8), sharex=True, squeeze=False
    )
    for layer, (axes, weight) in enumerate(zip(panels.flat, weights, strict=False), 1):
        entropies, uniform = entropy(weight, data)
        bins = np.linspace(0, float(uniform.max()) * 1.02, 60)
        axes.hist(uniform.numpy(), bins, density=True, color='0.75', label='equal weights')
        for name, half, values, color in zip(
            kernels, ('first', 'second'), entropies.chunk(2, 1), COLORS[:2], strict=True
        ):
            axes.hist(
                values.flatten().numpy(),
                bins,
                density=True,
                histtype='step',
                color=color,
                label=f'{name} ({half} half of the heads)',
            )
        axes.set_title(f'layer {layer}', fontsize='medium')
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        fontsize='small',
        loc='outside upper center',
        ncols=3,
    )
    figure.supxlabel('entropy of the weights of a node (nats)', fontsize='medium')
    figure.supylabel('density', fontsize='medium')
    return figure


def sampling_figure(value: Tensor, chosen: dict[str, Tensor]) -> 'Figure':
    r"""Draws histograms of the deficits ``[N]`` of chosen nodes in one layer."""
    figure, panels = subplots(2, 2, figsize=(WIDTH, 4.2), sharex=True, sharey=True)
    bins = np.linspace(0, float(value.quantile(0.995)), 50)
    for axes, name in zip(panels.flat, CHOSEN_BY, strict=True):
        axes.hist(value.numpy(), bins, density=True, color='0.75', label='all nodes')
        axes.hist(
            value[chosen[name]].numpy(),
            bins,
            density=True,
            histtype='step',
            color=COLORS[0],
            label='chosen nodes',
        )
        axes.set_title(f'nodes chosen {CHOSEN_BY[name]}', fontsize='medium')
    panels[0, 0].legend(fontsize='small')
    figure.supxlabel('entropy below that of equal weights, as a share of it', fontsize='medium')
    figure.supylabel('density', fontsize='medium')
    return figure
