r"""Pictures of what attention has learned; needs the ``visualization`` extra (matplotlib)."""

# N nodes, S sampled rows, E edges, K classes.
import io
import os
from typing import Any, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from torch_geometric_lgt._io import write_atomically
from torch_geometric_lgt.diagnostics import AttentionReport, attention_rows, layer_outputs

__all__ = ['plot_attention_report', 'plot_latent_structure']
MAX_HOPS = 6


def plot_attention_report(report: AttentionReport, path: str | os.PathLike) -> None:
    r"""Draws the shares of a report over the layers: attention to others, beyond the plain mean, and entropy.

    Raises:
        ValueError: If the report is empty.
    """
    if not report:
        raise ValueError("'report' must have a layer at least (got none)")
    figure, axes = _figure(1, 1, (5, 3))
    layers = [row['layer'] for row in report]
    for name in ('others', 'beyond mean', 'entropy'):
        axes[0, 0].plot(layers, [row[name] for row in report], marker='o', label=name)
    axes[0, 0].set(xlabel='layer', ylim=(-0.02, 1.05), xticks=layers)
    axes[0, 0].legend(fontsize='small')
    _save(figure, path)


@torch.no_grad()
def plot_latent_structure(
    model: Any,
    data: Data,
    path: str | os.PathLike,
    layer: int = -1,
    num_rows: int = 256,
    num_edges: int = 400,
    generator: torch.Generator | None = None,
) -> dict[str, float]:
    r"""Draws the graph that a model's attention makes of a graph with labels :obj:`y`, from sampled nodes: the attention mass between
    classes, the strongest learned edges beside given edges (nodes lie at the two main directions of the last layer), attention received
    against degree, and attention paid against the distance in hops.

    Args:
        model (torch.nn.Module): :class:`~torch_geometric_lgt.nn.NodeFormer`, :class:`~torch_geometric_lgt.nn.DIFFormer` or
            :class:`~torch_geometric_lgt.nn.SGFormer`.
        data (torch_geometric.data.Data): :obj:`x`, :obj:`edge_index` and :obj:`y` of one graph.
        path (str): The PNG.
        layer (int, optional): The attention layer. (default: :obj:`-1`, the last)
        num_rows (int, optional): Sampled nodes, whose attention to all nodes is drawn. (default: :obj:`256`)
        num_edges (int, optional): Edges drawn of each kind. (default: :obj:`400`)
        generator (torch.Generator, optional): To sample from. (default: :obj:`None`, the global one)

    Returns:
        ``edge mass``, the share of the attention on given edges; ``same class``, that within classes, and ``same class by chance``;
        ``components`` of the given graph and ``components with learned edges``, the strongest :obj:`num_edges` added.

    Raises:
        ImportError: Without matplotlib.
        ValueError: If :obj:`x`, :obj:`edge_index` or :obj:`y` is missing, a label is no class, or there is no such layer.
    """
    for name in ('x', 'edge_index', 'y'):
        if not isinstance(getattr(data, name), Tensor):
            raise ValueError(f"'data' must have {name!r} as a tensor (got {type(getattr(data, name)).__name__})")
    x, edges, y = (cast(Tensor, part) for part in (data.x, data.edge_index, data.y))
    if y.numel() != x.size(0) or x.size(0) < 2 or int(y.min()) < 0:
        raise ValueError(f"'data' must have a class from 0 on in 'y' for each of at least two nodes (got {tuple(y.shape)} for {x.size(0)})")
    y = y.view(-1)
    num_nodes, outputs = x.size(0), layer_outputs(model, x, edges, None)
    rows = torch.randperm(num_nodes, generator=generator)[:num_rows].to(x.device)
    if not -len(model.convs) <= layer < len(model.convs):
        raise ValueError(f"'layer' must be one of {len(model.convs)} (got {layer})")
    weight = attention_rows(model.convs[layer], outputs[:-1][layer], rows).mean(2).cpu()
    hidden = outputs[-1].cpu().double()
    rows, y, edges = rows.cpu(), y.cpu(), edges.cpu()
    hidden = hidden - hidden.mean(0)
    places = (hidden @ torch.linalg.svd(hidden, full_matrices=False)[2][:2].t()).numpy()
    learned = _strongest(weight, rows, num_edges)
    matrix = csr_array((np.ones(edges.size(1)), tuple(edges.numpy())), shape=(num_nodes, num_nodes))
    figure, axes = _figure(2, 3, (13, 8))
    mass = _class_mass(weight, y, rows)
    image = axes[0, 0].imshow(mass.numpy(), vmin=0)
    axes[0, 0].set(title='attention mass between classes', xlabel='class attended to', ylabel='class')
    figure.colorbar(image, ax=axes[0, 0])
    shown = edges[:, torch.randperm(edges.size(1), generator=generator)[:num_edges]]
    for axis, (title, some) in zip(axes[0, 1:], (('given edges', shown), ('strongest learned edges', learned)), strict=True):
        axis.plot(*(places[some.numpy(), side] for side in (0, 1)), color='0.6', linewidth=0.4, zorder=1)
        axis.scatter(*places.T, c=y.numpy(), s=4, cmap='tab10', zorder=2)
        axis.set(title=title, xticks=[], yticks=[])
    _draw_received(axes[1, 0], weight, degree(edges[1], num_nodes))
    _draw_distance(axes[1, 1], weight, rows, matrix)
    _draw_concentration(axes[1, 2], weight)
    _save(figure, path)
    same, total = y[rows][:, None] == y[None], weight.sum()
    given = torch.from_numpy((matrix[rows.numpy()] + matrix.T.tocsr()[rows.numpy()]).toarray() > 0)
    more = csr_array((np.ones(learned.size(1)), tuple(learned.numpy())), shape=matrix.shape)
    return {
        'edge mass': float((weight * given).sum() / total),
        'same class': float((weight * same).sum() / total),
        'same class by chance': float(same.double().mean()),
        'components': float(connected_components(matrix, directed=False)[0]),
        'components with learned edges': float(connected_components(matrix + more, directed=False)[0]),
    }


def _strongest(weight: Tensor, rows: Tensor, number: int) -> Tensor:
    r"""``[2, number]``: source and target of the largest weights between different nodes."""
    weight = weight.clone()
    weight[torch.arange(rows.numel()), rows] = -torch.inf
    top = weight.flatten().topk(min(number, weight.numel())).indices
    return torch.stack([top % weight.size(1), rows[top // weight.size(1)]])


def _class_mass(weight: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    r"""``[K, K]``: the mean attention that nodes of one class pay to all nodes of another."""
    of = torch.nn.functional.one_hot(y).to(weight.dtype)
    own = of[rows]
    return own.t() @ (weight @ of) / own.sum(0).clamp(min=1)[:, None]


def _draw_received(axis: Any, weight: Tensor, degrees: Tensor) -> None:
    received = weight.sum(0).clamp(min=1e-12) * weight.size(1) / weight.size(0)
    axis.loglog(degrees.clamp(min=0.7).numpy(), received.numpy(), '.', markersize=2)
    axis.axhline(1, color='0.6', linewidth=0.8)
    axis.set(title='attention received / uniform', xlabel='degree')


def _draw_distance(axis: Any, weight: Tensor, rows: Tensor, matrix: csr_array) -> None:
    r"""Mean weight of a node by its distance, over the uniform weight."""
    hops = torch.from_numpy(dijkstra(matrix, directed=False, indices=rows.numpy(), unweighted=True, limit=MAX_HOPS))
    names = [*map(str, range(MAX_HOPS + 1)), 'more']
    masks = [hops == number for number in range(MAX_HOPS + 1)] + [hops.isinf()]
    values = [float(weight[mask].mean()) * weight.size(1) if mask.any() else 0.0 for mask in masks]
    axis.bar(names, values)
    axis.axhline(1, color='0.6', linewidth=0.8)
    axis.set(title='attention to a node / uniform', xlabel='hops')


def _draw_concentration(axis: Any, weight: Tensor) -> None:
    r"""How many nodes hold how much of a row's attention, against uniform weights."""
    mass = weight.sort(1, descending=True).values.cumsum(1).mean(0)
    share = np.arange(1, mass.numel() + 1) / mass.numel()
    axis.semilogx(share, mass.numpy())
    axis.semilogx(share, share, color='0.6', linewidth=0.8)
    axis.set(title="share of a row's attention", xlabel='share of the nodes, strongest first', ylim=(0, 1.02))


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'torch-geometric-lgt[visualization]'") from error
    figure = Figure(figsize=size, layout='constrained')
    return figure, figure.subplots(rows, columns, squeeze=False)


def _save(figure: Any, path: str | os.PathLike) -> None:
    content = io.BytesIO()
    figure.savefig(content, format='png', dpi=120, metadata={'Software': None})
    write_atomically(path, content.getvalue())
