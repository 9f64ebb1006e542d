# N nodes, S sampled rows.
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Data
from torch_geometric.utils import degree

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt._attention_calls import permutation, recorded_calls
from torch_geometric_lgt.visualization._figure import new_figure, saved
from torch_geometric_lgt.visualization._panels import (
    draw_classes,
    draw_concentration,
    draw_distance,
    draw_learned,
    draw_nodes,
    draw_received,
)
from torch_geometric_lgt.visualization._weights import class_mass, mean_weight, strongest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    y, edges = y.cpu(), edges.cpu()
    hidden = hidden - hidden.mean(0)
    positions = hidden @ torch.linalg.svd(hidden, full_matrices=False)[2][:2].t()
    positions = pad(positions, (0, 2 - positions.size(1))).numpy()
    learned, multiples = strongest(weight, rows, num_edges)
    matrix = csr_array((np.ones(edges.size(1)), tuple(edges.numpy())), shape=(num_nodes, num_nodes))
    figure, axes = new_figure(3, 2, (7.5, 9.4))
    panels = axes.flat
    title = (
        title
        or f'{type(model).__name__} on a graph of {num_nodes:,} nodes and {edges.size(1):,} edges'
    )
    figure.suptitle(title, fontsize='large')
    draw_classes(figure, panels[0], class_mass(weight, y, rows))
    drawn_edges = edges[:, permutation(edges.size(1), generator)[:num_edges]]
    draw_nodes(figure, panels[1], positions, y)
    panels[1].plot(
        *(positions[drawn_edges.numpy(), side] for side in (0, 1)),
        color='0.3',
        linewidth=0.5,
        alpha=0.6,
        zorder=1,
    )
    panels[1].set(title=f'{drawn_edges.size(1)} given edges')
    draw_nodes(None, panels[2], positions, y)
    draw_learned(panels[2], positions, learned, multiples)
    draw_received(panels[3], weight, degree(edges[1], num_nodes))
    draw_distance(panels[4], weight, rows, matrix)
    draw_concentration(panels[5], weight)
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
    return saved(figure, path), numbers
