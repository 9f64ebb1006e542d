r"""Plots of what attention has learned; needs the ``visualization`` extra (matplotlib)."""

# N nodes, S sampled rows, E edges, K classes.
import io
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Data
from torch_geometric.utils import degree

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt._attention_calls import AttentionCall, recorded_calls
from torch_geometric_lgt._io import write_atomically
from torch_geometric_lgt.diagnostics import AttentionReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ['plot_attention_report', 'plot_latent_structure']
MAX_HOPS = 6
MAX_NAMED = 20
UNLABELLED = '0.75'
# Colours that stay apart without red or green cones (Okabe and Ito).
COLORS = '#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9', '#D55E00', '#000000', '#F0E442'


def plot_attention_report(
    report: AttentionReport, path: str | os.PathLike | None = None, title: str | None = None
) -> 'Figure':
    r"""Plots three measures of a report against the layers: ``others``, ``beyond mean`` and
    ``entropy``.

    Args:
        report (AttentionReport): The report of
            :meth:`~torch_geometric_lgt.diagnostics.attention_report`, which describes the measures.
        path (str, optional): The PNG file to write. (default: :obj:`None`, none)
        title (str, optional): The title, for example the names of the model and of the data.
            (default: :obj:`None`)

    Returns:
        The :class:`matplotlib.figure.Figure`. Notebooks show it.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the report is empty.

    Example:
        >>> from pathlib import Path
        >>> from torch_geometric_lgt.diagnostics import AttentionReport
        >>> from torch_geometric_lgt.visualization import plot_attention_report
        >>> row = {'layer': 'convs.0', 'others': 0.9, 'beyond mean': 0.2, 'entropy': 0.7}
        >>> figure = plot_attention_report(AttentionReport([row]), 'report.png')
        >>> Path('report.png').exists()
        True
    """
    if not report:
        raise ValueError("'report' must have a layer at least (got none)")
    figure, axes = _figure(1, 1, (max(5.0, 0.5 * len(report)), 3.5))
    layers = range(len(report))
    names = 'others', 'beyond mean', 'entropy'
    for name, color, marker in zip(names, COLORS, 'os^', strict=False):
        shares = [np.nan if row[name] is None else row[name] for row in report]
        axes[0, 0].plot(layers, shares, color=color, marker=marker, label=name)
    axes[0, 0].set(xlabel='layer', ylabel='share', ylim=(-0.02, 1.05), title=title)
    axes[0, 0].set_xticks(layers, [str(row['layer']) for row in report], rotation=30, ha='right')
    axes[0, 0].legend(fontsize='small')
    return _saved(figure, path)


@torch.no_grad()
def plot_latent_structure(
    model: torch.nn.Module,
    data: Data,
    path: str | os.PathLike | None = None,
    layer: int = -1,
    num_rows: int = 256,
    num_edges: int = 400,
    generator: torch.Generator | None = None,
    title: str | None = None,
    args: Sequence[Any] | None = None,
    **kwargs: Any,
) -> tuple['Figure', dict[str, float]]:
    r"""Plots the attention between sampled nodes and all nodes of a labelled graph in six panels.

    The first three panels show the attention between classes, edges of the graph, and the strongest
    learned edges. The others show the attention that a node receives by its degree, the attention
    by distance in hops, and the concentration of the attention. In the panels with edges, the
    position of a node is its projection on the two main directions of the model's output. If the
    model's output does not have a row for each node, the layer's output takes its place. Nodes
    without a label are grey. Attention is averaged over the heads.

    Args:
        model (torch.nn.Module): A model with attention layers, see
            :meth:`~torch_geometric_lgt.diagnostics.attention_report`.
        data (torch_geometric.data.Data): One graph with node features :obj:`x`, :obj:`edge_index`
            and a label :obj:`y` for each node. A label of -1 stands for none.
        path (str, optional): The PNG file to write. (default: :obj:`None`, none)
        layer (int, optional): The index of the attention layer among all calls of such layers, the
            row in a report. (default: :obj:`-1`, the last)
        num_rows (int, optional): Number of sampled nodes, whose attention to all nodes is drawn.
            (default: :obj:`256`)
        num_edges (int, optional): Number of drawn edges of each kind, given and learned. (default:
            :obj:`400`)
        generator (torch.Generator, optional): Draws the samples. (default: :obj:`None`, torch's
            global generator)
        title (str, optional): The title of the figure, for example the names of the model and of
            the data. (default: :obj:`None`, the class of the model and the size of the graph)
        args (list, optional): The positional arguments of the model's :meth:`forward`. (default:
            :obj:`None`, :obj:`x` and :obj:`edge_index` of the data)
        **kwargs: The keyword arguments of the model's :meth:`forward`.

    Returns:
        The :class:`matplotlib.figure.Figure`, which notebooks show, and five numbers by name.
        ``edge mass`` is the share of the attention on edges of the graph.
        ``same class`` is the share of the attention within classes, and ``same class by chance``
        the share of node pairs within classes. Both count nodes with a label, and are NaN if no
        sampled node has one. ``components`` is the number of connected components of the graph.
        ``components with learned edges`` is their number after adding the strongest
        :obj:`num_edges` learned edges.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If :obj:`x`, :obj:`edge_index` or :obj:`y` is missing, a label is neither a
            class nor -1, or no node has a label. If the model has no attention layer of this
            package, the layer does not exist or has other nodes than the data, or a number is out
            of range. If the attention or the outputs are not finite.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.nn import SGFormer
        >>> from torch_geometric_lgt.visualization import plot_latent_structure
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(x=torch.eye(4), edge_index=ring, y=torch.tensor([0, 0, 1, 1]))
        >>> model = SGFormer(in_channels=4, hidden_channels=8, out_channels=2)
        >>> figure, numbers = plot_latent_structure(model, data)
        >>> numbers['components'], numbers['same class by chance']
        (1.0, 0.5)
        >>> figure.get_suptitle()
        'SGFormer on a graph of 4 nodes and 4 edges'
    """
    check_whole('num_rows', num_rows, 1)
    check_whole('num_edges', num_edges, 0)
    for name in ('x', 'edge_index', 'y') if args is None else ('edge_index', 'y'):
        if not isinstance(getattr(data, name), Tensor):
            raise ValueError(
                f"'data' must have {name!r} as a tensor (got {type(getattr(data, name)).__name__})"
            )
    edges, y = (cast(Tensor, part) for part in (data.edge_index, data.y))
    num_nodes = data.x.size(0) if isinstance(data.x, Tensor) else y.numel()
    if (
        y.numel() != num_nodes
        or num_nodes < 2
        or y.is_floating_point()
        or int(y.min()) < -1
        or int(y.max()) < 0
    ):
        got = f'{tuple(y.shape)} {str(y.dtype).removeprefix("torch.")} for {num_nodes} nodes'
        lowest = f', the least {y.min()}' if y.numel() > 0 else ''
        raise ValueError(
            "'data' must have a class from 0 on in 'y' for each of at least two nodes, or -1 "
            f'where there is none (got {got}{lowest})'
        )
    y = y.reshape(-1)
    args = (data.x, edges) if args is None else args
    with recorded_calls(model, args, kwargs) as (calls, output):
        if not -len(calls) <= layer < len(calls):
            raise ValueError(f"'layer' must be one of {len(calls)} (got {layer})")
        call = calls[layer]
        rows = torch.randperm(num_nodes, generator=generator)[:num_rows]
        rows, weight = _mean_weight(call, rows, num_nodes)
    if not (isinstance(output, Tensor) and output.dim() > 0 and output.size(0) == num_nodes):
        output = call.output
    hidden = output.detach().cpu().double().reshape(num_nodes, -1)
    if not (weight.isfinite().all() and hidden.isfinite().all()):
        raise ValueError(
            "'model' must have finite attention and outputs on 'data' (got NaN or infinity); check "
            "'x' and the weights"
        )
    y, edges = y.cpu(), edges.cpu()
    hidden = hidden - hidden.mean(0)
    positions = hidden @ torch.linalg.svd(hidden, full_matrices=False)[2][:2].t()
    positions = pad(positions, (0, 2 - positions.size(1))).numpy()
    learned, multiples = _strongest(weight, rows, num_edges)
    matrix = csr_array((np.ones(edges.size(1)), tuple(edges.numpy())), shape=(num_nodes, num_nodes))
    figure, axes = _figure(3, 2, (7.5, 9.4))
    panels = axes.flat
    title = (
        title
        or f'{type(model).__name__} on a graph of {num_nodes:,} nodes and {edges.size(1):,} edges'
    )
    figure.suptitle(title, fontsize='large')
    _draw_classes(figure, panels[0], _class_mass(weight, y, rows))
    drawn_edges = edges[:, torch.randperm(edges.size(1), generator=generator)[:num_edges]]
    _draw_nodes(figure, panels[1], positions, y)
    panels[1].plot(
        *(positions[drawn_edges.numpy(), side] for side in (0, 1)),
        color='0.3',
        linewidth=0.5,
        alpha=0.6,
        zorder=1,
    )
    panels[1].set(title=f'{drawn_edges.size(1)} given edges')
    _draw_nodes(None, panels[2], positions, y)
    _draw_learned(panels[2], positions, learned, multiples)
    _draw_received(panels[3], weight, degree(edges[1], num_nodes))
    _draw_distance(panels[4], weight, rows, matrix)
    _draw_concentration(panels[5], weight)
    row_has_label, has_label = y[rows] >= 0, y >= 0
    same_class = y[rows][row_has_label][:, None] == y[has_label][None]
    labelled_weight = weight[row_has_label][:, has_label]
    is_edge = torch.from_numpy(
        (matrix[rows.numpy()] + matrix.T.tocsr()[rows.numpy()]).toarray() > 0
    )
    learned_matrix = csr_array(
        (np.ones(learned.size(1)), tuple(learned.numpy())), shape=matrix.shape
    )
    numbers = {
        'edge mass': float((weight * is_edge).sum() / weight.sum()),
        'same class': float((labelled_weight * same_class).sum() / labelled_weight.sum()),
        'same class by chance': float(same_class.double().mean()),
        'components': float(connected_components(matrix, directed=False)[0]),
        'components with learned edges': float(
            connected_components(matrix + learned_matrix, directed=False)[0]
        ),
    }
    return _saved(figure, path), numbers


def _mean_weight(call: AttentionCall, rows: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    r"""Reads the attention weights of the sampled nodes :obj:`rows` ``[S]`` to all nodes in a call
    of a layer, their mean over the heads.

    Returns:
        The nodes of :obj:`rows` that attend to any node ``[S']``, and their weights ``[S', N]``, on
        the CPU.

    Raises:
        ValueError: If the call has other nodes than the data, or no node of :obj:`rows` attends to
            any node.
    """
    if call.x_src.size(0) != num_nodes or call.num_targets != num_nodes:
        raise ValueError(
            f"'layer' must be a call over the {num_nodes} nodes of 'data' (got {call.name} with "
            f'{call.x_src.size(0)} sources and {call.num_targets} targets)'
        )
    read = call.rows(rows)
    if read.targets.numel() == 0:
        raise ValueError(
            f"'data' must have an edge into one of the sampled nodes for {call.name}, which "
            "attends to neighbours (got none); raise 'num_rows'"
        )
    weight = read.weight.mean(2)
    weight = weight.new_zeros(weight.size(0), num_nodes).index_add_(1, read.sources, weight)
    return read.targets.cpu(), weight.cpu()


def _strongest(weight: Tensor, rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    r"""Returns source and target ``[2, number]`` of the largest attention weights between different
    nodes, and these weights ``[number]`` in multiples of the uniform weight.

    :obj:`weight` ``[S, N]`` has the weights of the sampled nodes :obj:`rows` ``[S]``, the targets,
    to all nodes, the sources. If there are fewer weights above 0, all of these are returned.
    """
    weight = weight.clone()
    weight[torch.arange(rows.numel()), rows] = 0
    number = min(number, int((weight > 0).sum()))
    values, top = weight.flatten().topk(number)
    pairs = torch.stack([top % weight.size(1), rows[top // weight.size(1)]])
    return pairs, values * weight.size(1)


def _class_mass(weight: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    r"""Computes the share ``[K, K]`` of the attention of each class (row) that goes to each class
    (column), the mean over sampled nodes.

    :obj:`weight` ``[S, N]`` has the weights of the sampled nodes :obj:`rows` ``[S]``, and :obj:`y`
    ``[N]`` the classes, -1 for none. A row is NaN if no node of its class is sampled. If some nodes
    have no label, the result has a last column ``[K, K + 1]`` for these nodes.
    """
    num_classes = int(y.max()) + 1
    one_hot = torch.nn.functional.one_hot(torch.where(y < 0, num_classes, y)).to(weight.dtype)
    row_class = one_hot[rows, :num_classes]
    count = row_class.sum(0)[:, None]
    return (row_class.t() @ (weight @ one_hot) / count).masked_fill(count == 0, torch.nan)


def _draw_classes(figure: Any, axis: Any, mass: Tensor) -> None:
    r"""Draws the attention between classes, :obj:`mass` as :meth:`_class_mass` returns it, as an
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


def _draw_nodes(figure: Any, axis: Any, positions: np.ndarray, y: Tensor) -> None:
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


def _draw_learned(axis: Any, positions: np.ndarray, learned: Tensor, multiples: Tensor) -> None:
    r"""Draws the learned edges ``[2, E]`` above the nodes, with a ring around each of their end
    nodes. The title has the mean of their weights ``[E]``, in multiples of the uniform weight.

    A ring grows with the number of learned edges of its node. Rings also show edges between nodes
    that nearly coincide.
    """
    axis.plot(
        *(positions[learned.numpy(), side] for side in (0, 1)),
        color='black',
        linewidth=0.6,
        alpha=0.45,
        zorder=4,
    )
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


def _draw_received(axis: Any, weight: Tensor, degrees: Tensor) -> None:
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
    title = (
        f'attention by degree ({num_without} nodes get none)'
        if num_without
        else 'attention by degree'
    )
    axis.set(title=title, xlabel='degree', ylabel='attention received / uniform')
    axis.legend(fontsize='small')


def _draw_distance(axis: Any, weight: Tensor, rows: Tensor, matrix: csr_array) -> None:
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


def _draw_concentration(axis: Any, weight: Tensor) -> None:
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
    r"""Labels logarithmic axes by plain numbers such as 0.01 and 0.1, short ones also by 0.02 and
    0.05. Other axes stay."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    def name(axis: Any, value: float, _: Any) -> str:
        low, high = axis.get_view_interval()
        digits = '125' if high < 50 * low else '1'
        return f'{value:g}' if f'{value:e}'[0] in digits else ''

    for axis in axes:
        if isinstance(axis.get_major_formatter(), LogFormatter):
            axis.set_major_formatter(FuncFormatter(partial(name, axis)))
            axis.set_minor_formatter(FuncFormatter(partial(name, axis)))


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    r"""Creates a figure of :obj:`size` (width and height in inches), and returns the figure with
    its grid of axes ``[rows, columns]``.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib: pip install 'torch-geometric-lgt[visualization]'"
        ) from error
    figure: Any = Figure(figsize=size, layout='constrained')
    figure._repr_png_ = partial(_png, figure)  # what notebooks show without pyplot
    return figure, figure.subplots(rows, columns, squeeze=False)


def _png(figure: Any) -> bytes:
    r"""Returns a figure as the content of a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format='png', dpi=150, metadata={'Software': None})
    return content.getvalue()


def _saved(figure: Any, path: str | os.PathLike | None) -> Any:
    r"""Writes a figure to :obj:`path` as PNG, atomically, unless it is :obj:`None`, and returns the
    figure."""
    if path is not None:
        write_atomically(path, _png(figure))
    return figure
