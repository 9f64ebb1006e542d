r"""Pictures of the attention of a trained network of benchmarks/sbm.py or benchmarks/tsp.py, and
how far from uniform it is for the nodes that are sampled."""

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

from benchmarks.common.figures import save_figure, subplots
from benchmarks.common.tables import as_csv
from benchmarks.many_graphs.models import Transformer
from torch_geometric_lgt._io import write_atomically
from torch_geometric_lgt.functional.neighbors.node_sampling import (
    attention_distance,
    largest_per_graph,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTOR, LAYER = 5, 4


@torch.no_grad()
def draw(model: Transformer, graphs: Sequence[Data], path: Path) -> None:
    r"""Writes pictures and a table beside :obj:`path`, from its name on: the attention map of the
    first graph, the entropies of all layers, and those of sampled nodes."""
    model.eval()
    batch, name = Batch.from_data_list(list(graphs)), path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(map_figure(model, graphs[0]), path.with_name(f'{name}-map.png'))
    weights = model.attention_scores(batch, None)
    save_figure(
        entropy_figure(weights, batch, model.model.kernel), path.with_name(f'{name}-entropy.png')
    )
    deficits = [deficit(weight[:, : weight.size(1) // 2], batch) for weight in weights]
    chosen = choices(batch, drawn(deficits))
    save_figure(sampling_figure(drawn(deficits), chosen), path.with_name(f'{name}-sampling.png'))
    write_atomically(
        path.with_name(f'{name}-sampling.csv'), as_csv(sampling_rows(deficits, chosen)).encode()
    )


def drawn(layers: Sequence[Tensor]) -> Tensor:
    r"""That of the layer that is drawn, ``LAYER`` or the last."""
    return layers[min(LAYER, len(layers)) - 1]


def entropy(weight: Tensor, data: Data) -> tuple[Tensor, Tensor]:
    r"""Of the weights of each node and head ``[N, H]``, and of equal weights ``[N]``."""
    target = data.edge_index[1]
    total = scatter(weight, target, 0, data.num_nodes, 'sum').clamp(min=1e-12)[target]
    share = weight / total
    degree = torch.bincount(target, minlength=data.num_nodes)
    return -scatter(torch.xlogy(share, share), target, 0, data.num_nodes, 'sum'), degree.clamp(
        min=1
    ).log()


def deficit(weight: Tensor, data: Data) -> Tensor:
    r"""By how much the entropy of each node falls short of that of equal weights, over the latter,
    as a mean over the heads: 0 for a plain mean, 1 for a single neighbour that takes all; 0 for a
    node with fewer than two neighbours."""
    found, uniform = entropy(weight, data)
    return torch.where(uniform > 0, 1 - found.mean(1) / uniform.clamp(min=1e-12), 0)


def choices(batch: Batch, true: Tensor) -> dict[str, Tensor]:
    r"""Masks of equally many nodes in each graph, by what they are chosen by; the best possible
    choice is that by the true deficits."""
    degree = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
    by = {
        'Eq. 10': attention_distance(batch.edge_index, batch.num_nodes),
        'log-sum-exp': attention_distance(batch.edge_index, batch.num_nodes, 'lse'),
        'random': torch.rand(batch.num_nodes, generator=torch.Generator().manual_seed(0)),
        'smallest degree': -degree,
        'largest degree': degree,
        'true entropy': true,
    }
    return {name: largest_per_graph(score, batch.batch, FACTOR) for name, score in by.items()}


def sampling_rows(deficits: Sequence[Tensor], chosen: dict[str, Tensor]) -> list[dict[str, str]]:
    r"""The mean deficit of the chosen nodes in each layer, in per cent."""
    every = {**chosen, 'all nodes': torch.ones_like(next(iter(chosen.values())))}
    return [
        {
            'chosen by': name,
            **{
                f'layer {layer}': f'{100 * float(value[mask].mean()):.2f}'
                for layer, value in enumerate(deficits, 1)
            },
        }
        for name, mask in every.items()
    ]


def map_figure(model: Transformer, data: Data) -> 'Figure':
    r"""The mean of the first half of the heads, the nodes in the order of their labels or of the
    tour, where all attend and where the sampled ones do."""
    order = data.y.argsort(stable=True) if data.y.numel() == data.num_nodes else tour_order(data)
    figure, panels = subplots(1, 2, figsize=(9, 4.2))
    for axes, title, mask in zip(
        panels,
        ('all nodes attend', 'sampled nodes attend'),
        (None, data.attention_mask),
        strict=True,
    ):
        weight = drawn(model.attention_scores(data, mask))
        dense = to_dense_adj(
            data.edge_index.flip(0),
            edge_attr=weight[:, : weight.size(1) // 2].mean(1),
            max_num_nodes=data.num_nodes,
        )[0]
        shown = axes.imshow(
            dense[order][:, order].numpy(), cmap='magma', vmin=0, vmax=float(dense.quantile(0.999))
        )
        axes.set(title=title, xlabel='neighbour', ylabel='node')
    figure.colorbar(shown, ax=panels, label='weight')
    return figure


def tour_order(data: Data) -> Tensor:
    r"""The nodes along the tour whose edges are labelled, one after the other the paths that it
    falls into where edges are missing."""
    graph = to_scipy_sparse_matrix(data.edge_index[:, data.y > 0], num_nodes=data.num_nodes).tocsr()
    ends, left, order = (
        np.diff((graph + graph.T).indptr).argsort(kind='stable'),
        np.ones(data.num_nodes, bool),
        [],
    )
    for start in ends:
        if left[start]:
            path = depth_first_order(graph, start, directed=False, return_predecessors=False)
            left[path] = False
            order.extend(path)
    return torch.as_tensor(np.array(order))


def entropy_figure(
    weights: Sequence[Tensor], data: Data, kernel: str | tuple[str, str]
) -> 'Figure':
    r"""Histograms of the entropies of both halves of the heads, over those of equal weights."""
    kernels = ('softmax', kernel) if isinstance(kernel, str) else kernel
    columns = min(4, len(weights))
    rows = -(-len(weights) // columns)
    figure, panels = subplots(
        rows, columns, figsize=(2.8 * columns, 2.2 * rows + 0.8), sharex=True, squeeze=False
    )
    for layer, (axes, weight) in enumerate(zip(panels.flat, weights, strict=False), 1):
        found, uniform = entropy(weight, data)
        bins = np.linspace(0, float(uniform.max()) * 1.02, 60)
        axes.hist(uniform.numpy(), bins, density=True, color='0.75', label='equal weights')
        for name, of, half, color in zip(
            kernels, ('first', 'second'), found.chunk(2, 1), ('C0', 'C1'), strict=True
        ):
            axes.hist(
                half.flatten().numpy(),
                bins,
                density=True,
                histtype='step',
                color=color,
                label=f'{name} ({of} half of the heads)',
            )
        axes.set_title(f'layer {layer}', fontsize='medium')
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        fontsize='small',
        loc='outside upper center',
        ncols=3,
    )
    figure.supxlabel('entropy of the weights of a node (nats)', fontsize='medium')
    return figure


def sampling_figure(value: Tensor, chosen: dict[str, Tensor]) -> 'Figure':
    r"""Histograms of the deficits ``[N]`` of chosen nodes in one layer."""
    names = 'random', 'Eq. 10', 'log-sum-exp', 'true entropy'
    figure, panels = subplots(
        1, len(names), figsize=(3 * len(names), 2.6), sharex=True, sharey=True
    )
    bins = np.linspace(0, float(value.quantile(0.995)), 50)
    for axes, name in zip(panels, names, strict=True):
        axes.hist(value.numpy(), bins, density=True, color='0.75', label='all nodes')
        axes.hist(
            value[chosen[name]].numpy(),
            bins,
            density=True,
            histtype='step',
            color='C0',
            label='chosen',
        )
        axes.set_title(f'by {name}', fontsize='medium')
    panels[0].legend(fontsize='small')
    figure.supxlabel('entropy below that of equal weights, as a share of it', fontsize='medium')
    return figure
