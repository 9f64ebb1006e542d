# N nodes, E edges, S sampled rows.
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import degree

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt._attention_calls import permutation, recorded_calls
from torch_geometric_lgt.visualization._figure import check_path, new_figure, saved
from torch_geometric_lgt.visualization._panels import (
    draw_classes,
    draw_concentration,
    draw_distance,
    draw_edges,
    draw_learned,
    draw_nodes,
    draw_received,
)
from torch_geometric_lgt.visualization._structure import (
    Structure,
    check_one_graph,
    labelled_graph,
    projection,
)
from torch_geometric_lgt.visualization._weights import class_mass, mean_weight, strongest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@torch.no_grad()
def plot_latent_structure(
    model: torch.nn.Module,
    data: Data,
    path: str | os.PathLike[str] | None = None,
    layer: int = -1,
    num_rows: int = 256,
    num_edges: int = 400,
    generator: torch.Generator | None = None,
    title: str | None = None,
    args: Sequence[Any] | None = None,
    **kwargs: Any,
) -> tuple['Figure', dict[str, float]]:
    r"""Plots the attention between sampled nodes and all nodes of a labelled graph in six panels.

    The first three panels show the attention between classes, the edges of the graph, and the
    strongest learned edges: the pairs of different nodes with the largest attention weights. The
    others show the attention that a node receives by its degree, the attention by distance in hops,
    and the concentration of the attention. In the panels with edges, the position of a node is its
    projection on the two main directions of the model's output. If the model's output does not have
    a row for each node, the layer's output takes its place. Nodes without a label are grey.
    Attention is averaged over the heads.

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
        num_edges (int, optional): Number of drawn edges of each kind, those of the graph and
            learned ones. (default: :obj:`400`)
        generator (torch.Generator, optional): Draws the samples. (default: :obj:`None`, torch's
            global generator)
        title (str, optional): The title of the figure, for example the names of the model and of
            the data. (default: :obj:`None`, the class of the model and the size of the graph)
        args (list, optional): The positional arguments of the model's :meth:`forward`. (default:
            :obj:`None`, :obj:`x` and :obj:`edge_index` of the data)
        **kwargs: The keyword arguments of the model's :meth:`forward`, such as encodings that the
            data have: ``laplacian_pe=data.laplacian_pe``.

    Returns:
        A pair ``figure, values``: the :class:`matplotlib.figure.Figure`, which a notebook shows
        where a cell ends in ``figure``, and a dictionary of five numbers. ``edge mass`` is the
        share of the attention of a node on its neighbours along edges in either direction. ``same
        class`` is the share of the attention within classes. ``same class by chance`` is the share
        of pairs within classes among all pairs of a sampled node and a node, which may be the same.
        Both count nodes with a label, and are NaN if no sampled node has one. ``components`` is the
        number of connected components of the graph. ``components with learned edges`` is their
        number after adding the strongest :obj:`num_edges` learned edges.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If :obj:`data` is no graph of one type.
        ValueError: If :obj:`path` does not end in ``.png``. If :obj:`x`, :obj:`edge_index` or
            :obj:`y` is missing, a label is neither a class nor -1, or no node has a label. If
            :obj:`data` is a batch of several graphs, whose vector the model does not get. If the
            model has no attention layer of this package, the layer does not exist or has other
            nodes than the data, or a number is out of range. If the attention or the outputs are
            not finite.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.nn import SGFormer
        >>> from torch_geometric_lgt.visualization import plot_latent_structure
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(x=torch.eye(4), edge_index=ring, y=torch.tensor([0, 0, 1, 1]))
        >>> model = SGFormer(in_channels=4, hidden_channels=8, out_channels=2)
        >>> figure, values = plot_latent_structure(model, data)
        >>> values['components'], values['same class by chance']
        (1.0, 0.5)
        >>> figure.get_suptitle()
        'SGFormer on a graph of 4 nodes and 4 edges'
    """
    check_path(path)
    check_whole('num_rows', num_rows, 1)
    check_whole('num_edges', num_edges, 0)
    edges, y = labelled_graph(data, needs_x=args is None)
    num_nodes = y.numel()
    if args is None:
        if 'batch' not in kwargs:
            check_one_graph(data)
        args = data.x, edges
    with recorded_calls(model, args, kwargs) as (calls, output):
        if not -len(calls) <= layer < len(calls):
            raise ValueError(f"'layer' must be one of {len(calls)} (got {layer})")
        call = calls[layer]
        rows = permutation(num_nodes, generator)[:num_rows]
        rows, weight = mean_weight(call, rows, num_nodes)
    if not (isinstance(output, Tensor) and output.dim() > 0 and output.size(0) == num_nodes):
        output = call.output
    hidden = output.detach().cpu().double().reshape(num_nodes, -1)
    if not (weight.isfinite().all() and hidden.isfinite().all()):
        raise ValueError(
            "'model' must have finite attention and outputs on 'data' (got NaN or infinity); check "
            "'x' and the weights"
        )
    learned, multiples = strongest(weight, rows, num_edges)
    structure = Structure(
        y=y.cpu(),
        edges=edges.cpu(),
        positions=projection(hidden),
        rows=rows,
        weight=weight,
        learned=learned,
        multiples=multiples,
    )
    figure, axes = new_figure(3, 2, (7.5, 9.4))
    size = f'{num_nodes:,} nodes and {edges.size(1):,} edges'
    title = title or f'{type(model).__name__} on a graph of {size}'
    figure.suptitle(title, fontsize='large', wrap=True)
    drawn_edges = structure.edges[:, permutation(edges.size(1), generator)[:num_edges]]
    _draw(figure, axes.flat, structure, drawn_edges)
    return saved(figure, path), structure.numbers()


def _draw(figure: Any, panels: Any, structure: Structure, drawn_edges: Tensor) -> None:
    r"""Draws the six panels, with the edges ``[2, E]`` of the graph in :obj:`drawn_edges`."""
    y, positions = structure.y, structure.positions
    rows, weight = structure.rows, structure.weight
    draw_classes(figure, panels[0], class_mass(weight, y, rows))
    draw_nodes(figure, panels[1], positions, y)
    draw_edges(panels[1], positions, drawn_edges)
    draw_nodes(None, panels[2], positions, y)
    draw_learned(panels[2], positions, structure.learned, structure.multiples)
    draw_received(panels[3], weight, degree(structure.edges[1], y.numel()))
    draw_distance(panels[4], weight, rows, structure.adjacency())
    draw_concentration(panels[5], weight)
