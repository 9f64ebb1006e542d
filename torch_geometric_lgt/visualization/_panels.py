# N nodes, S sampled rows, E edges, K classes.
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from torch_geometric_lgt.visualization._figure import COLORS

MAX_HOPS = 6
MAX_NAMED = 20
MAX_ABOVE = 3000  # nodes that are drawn above edges
UNLABELLED = '0.75'


def draw_classes(figure: Any, axis: Any, mass: Tensor) -> None:
    r"""Draws the attention between classes, :obj:`mass` as :meth:`class_mass` returns it, as an
    image with a colour bar."""
    image = axis.imshow(mass.numpy(), vmin=0, aspect='auto')
    figure.colorbar(image, ax=axis, label='share of the attention')
    axis.set(title='attention between classes', xlabel='class attended to', ylabel='class')
    num_classes, columns = mass.shape
    if num_classes <= MAX_NAMED:
        axis.set(yticks=range(num_classes), xticks=range(num_classes))
    if columns > num_classes:
        ticks = (
            [*axis.get_xticks(), num_classes]
            if num_classes <= MAX_NAMED
            else [0, num_classes - 1, num_classes]
        )
        axis.set_xticks(ticks, [*(f'{tick:g}' for tick in ticks[:-1]), 'none'])


def _palette(num_classes: int) -> tuple[Any, float]:
    r"""Returns the colours of classes, and the upper limit of their scale, which starts at -0.5."""
    from matplotlib.colors import ListedColormap

    if num_classes <= len(COLORS):
        return ListedColormap(COLORS), len(COLORS) - 0.5
    return ('tab20', 19.5) if num_classes <= MAX_NAMED else ('turbo', num_classes - 0.5)


def draw_nodes(figure: Any, axis: Any, positions: np.ndarray, y: Tensor) -> None:
    r"""Draws the nodes at their :obj:`positions` ``[N, 2]`` in the colours of their classes
    :obj:`y` ``[N]``, grey for -1.

    If :obj:`figure` is not :obj:`None`, a legend is added to the figure, or a colour bar if there
    are more than ``MAX_NAMED`` classes.
    """
    num_classes, size = int(y.max()) + 1, min(12.0, max(1.5, 12_000 / y.numel()))
    palette, limit = _palette(num_classes)
    has_label = (y >= 0).numpy()
    if not has_label.all():
        axis.scatter(*positions[~has_label].T, color=UNLABELLED, s=size, linewidths=0, zorder=2)
    style = {'cmap': palette, 'vmin': -0.5, 'vmax': limit, 's': size, 'linewidths': 0, 'zorder': 3}
    points = axis.scatter(*positions[has_label].T, c=y.numpy()[has_label], **style)
    axis.set(
        xlabel='first direction of the output', ylabel='second direction', xticks=[], yticks=[]
    )
    if figure is None:
        return
    if num_classes > MAX_NAMED:
        figure.colorbar(points, ax=axis, label='class')
        return
    marks = [
        axis.scatter([], [], color=points.cmap(points.norm(label)), s=30, label=f'class {label}')
        for label in range(num_classes)
    ]
    if not has_label.all():
        marks.append(axis.scatter([], [], color=UNLABELLED, s=30, label='no label'))
    figure.legend(
        handles=marks,
        loc='outside lower center',
        ncols=min(len(marks), 7),
        frameon=False,
        handletextpad=0.1,
    )


def draw_edges(axis: Any, positions: np.ndarray, edges: Tensor) -> None:
    r"""Draws edges of the graph ``[2, E]`` below the nodes, or above so many nodes that they would
    hide the edges, and their number as the title."""
    zorder = 1 if len(positions) <= MAX_ABOVE else 4
    _draw_lines(axis, positions, edges, color='0.3', linewidth=0.5, alpha=0.6, zorder=zorder)
    axis.set(title=f'{edges.size(1)} given edges')


def draw_learned(axis: Any, positions: np.ndarray, learned: Tensor, multiples: Tensor) -> None:
    r"""Draws the learned edges ``[2, E]`` above the nodes, with a ring around each of their end
    nodes. The title has the mean of their weights ``[E]``, in multiples of the uniform weight.

    A ring grows with the number of learned edges of its node. Rings also show edges between nodes
    that nearly coincide.
    """
    _draw_lines(axis, positions, learned, color='black', linewidth=0.6, alpha=0.45, zorder=4)
    ends, number = learned.unique(return_counts=True)
    sizes = 12 + 4 * number.sqrt().numpy()
    axis.scatter(
        *positions[ends.numpy()].T,
        s=sizes,
        facecolors='none',
        edgecolors='black',
        linewidths=0.6,
        alpha=0.6,
        zorder=5,
    )
    title = f'{learned.size(1)} strongest edges'
    if multiples.numel() > 0:
        title += f': {float(multiples.mean()):.2g} x uniform'
    axis.set_title(title)


def _draw_lines(axis: Any, positions: np.ndarray, edges: Tensor, **style: Any) -> None:
    r"""Draws edges ``[2, E]`` as lines between the :obj:`positions` ``[N, 2]`` of their nodes."""
    axis.plot(*(positions[edges.numpy(), side] for side in (0, 1)), **style)


def draw_received(axis: Any, weight: Tensor, degrees: Tensor) -> None:
    r"""Draws the attention that each node receives, relative to uniform attention, against its
    degree ``[N]``.

    :obj:`weight` ``[S, N]`` has the weights of the sampled nodes. Nodes that receive none have no
    place on the logarithmic scale; the title has their number.
    """
    received = weight.sum(0) * weight.size(1) / weight.size(0)
    receives = received > 0
    axis.plot(degrees[receives].numpy(), received[receives].numpy(), '.', markersize=3)
    axis.axhline(1, color='0.6', linewidth=0.8, label='uniform')
    if (degrees == 0).any():
        axis.set_xscale('symlog', linthresh=1)
        axis.set_xlim(-0.4, 2 * max(1, int(degrees.max())))
    else:
        axis.set_xscale('log')
    if bool(receives.any()) and received[receives].max() > 10 * received[receives].min():
        axis.set_yscale('log')
    else:
        axis.set_ylim(0, 1.1 * max(1.0, float(received.max())))
    _name_plainly(axis.xaxis, axis.yaxis)
    num_without = int((~receives).sum())
    title = 'attention by degree'
    if num_without > 0:  # a second line, because one would be wider than the panel
        title += f'\n({num_without} {"nodes get" if num_without > 1 else "node gets"} none)'
    axis.set(title=title, xlabel='degree', ylabel='attention received / uniform')
    axis.legend(fontsize='small')


def draw_distance(axis: Any, weight: Tensor, rows: Tensor, matrix: csr_array) -> None:
    r"""Draws the mean attention weight by distance in hops, relative to the uniform weight, as
    bars.

    :obj:`weight` ``[S, N]`` has the weights of the sampled nodes :obj:`rows` ``[S]``, and
    :obj:`matrix` is the adjacency matrix. Distances above ``MAX_HOPS`` share one bar.
    """
    hops = torch.from_numpy(
        dijkstra(matrix, directed=False, indices=rows.numpy(), unweighted=True, limit=MAX_HOPS)
    )
    names = [*map(str, range(MAX_HOPS + 1)), 'more']
    masks = [hops == number for number in range(MAX_HOPS + 1)] + [hops.isinf()]
    values = {
        name: float(weight[mask].mean()) * weight.size(1)
        for name, mask in zip(names, masks, strict=True)
        if mask.any()
    }
    axis.bar(list(values), list(values.values()))
    axis.axhline(1, color='0.6', linewidth=0.8, label='uniform')
    axis.set(title='attention by distance', xlabel='hops', ylabel='attention to a node / uniform')
    axis.legend(fontsize='small')


def draw_concentration(axis: Any, weight: Tensor) -> None:
    r"""Draws which share of a node's attention goes to which share of the nodes with the largest
    weights, beside a curve for uniform weights.

    :obj:`weight` ``[S, N]`` has the weights of the sampled nodes; the curve is their mean.
    """
    mass = weight.sort(1, descending=True).values.cumsum(1).mean(0)
    share = np.arange(1, mass.numel() + 1) / mass.numel()
    axis.semilogx(share, mass.numpy(), label='learned')
    axis.semilogx(share, share, color='0.6', linewidth=0.8, label='uniform')
    _name_plainly(axis.xaxis)
    axis.set(
        title='concentration of attention',
        xlabel='share of the nodes, strongest first',
        ylabel='share of the attention',
    )
    axis.set_ylim(0, 1.02)
    axis.legend(fontsize='small')


def _name_plainly(*axes: Any) -> None:
    r"""Labels logarithmic axes by plain numbers. Other axes stay."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    for axis in axes:
        if isinstance(axis.get_major_formatter(), LogFormatter):
            axis.set_major_formatter(FuncFormatter(partial(_plain_name, axis)))
            axis.set_minor_formatter(FuncFormatter(partial(_plain_name, axis)))


def _plain_name(axis: Any, value: float, _: Any) -> str:
    r"""Returns the label of a value on a logarithmic axis: plain numbers such as 0.01 and 0.1,
    on short axes also 0.02 and 0.05, on long ones every second power of ten."""
    low, high = axis.get_view_interval()
    digits, _, power = f'{value:.0e}'.partition('e')
    is_long = low > 0 and high > 2e4 * low
    if value == 0 or (is_long and digits == '1' and int(power) % 2 == 0):
        return f'{value:g}'
    return f'{value:g}' if not is_long and digits in ('125' if high < 50 * low else '1') else ''
