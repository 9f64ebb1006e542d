r"""Measures of the attention of a trained model, layer by layer, and searches for errors in its
input."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import Compose

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt._attention_calls import permutation, recorded_calls
from torch_geometric_lgt._attention_measures import measure_call
from torch_geometric_lgt.functional.neighbors.edges import sparse_entries

__all__ = ['AttentionReport', 'attention_report', 'check_finite', 'check_fresh']


class AttentionReport(list[dict[str, Any]]):
    r"""Lists one dictionary of measures for each call of a layer. ``print`` shows the list as a
    table, with the keys of the first dictionary as columns.

    :meth:`attention_report` builds the report and describes the measures.

    Example:
        >>> from torch_geometric_lgt.diagnostics import AttentionReport
        >>> rows = [{'layer': 'convs.0', 'entropy': 0.5}, {'layer': 'convs.1', 'entropy': 0.25}]
        >>> report = AttentionReport(rows)
        >>> print(report)
        layer    entropy
        convs.0      0.5
        convs.1     0.25
        >>> report[1]['entropy']
        0.25
    """

    def __str__(self) -> str:
        r"""Formats the report as a table: a line with the names of the measures, then a line for
        each layer."""
        names = list(self[0]) if self else []
        cells = [names, *([_text(row[name]) for name in names] for row in self)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        sides = ['<' if name == 'layer' else '>' for name in names]
        return '\n'.join('  '.join(map('{:{}{}}'.format, line, sides, widths)) for line in cells)


def attention_report(
    model: torch.nn.Module,
    *args: Any,
    num_rows: int = 64,
    generator: torch.Generator | None = None,
    **kwargs: Any,
) -> AttentionReport:
    r"""Measures on sampled nodes what each attention layer of a model contributes, in one forward
    pass in evaluation mode.

    The model may be any module with these attention layers:
    :class:`~torch_geometric_lgt.nn.KernelAttentionConv`,
    :class:`~torch_geometric_lgt.nn.DIFFormerConv`, :class:`~torch_geometric_lgt.nn.SGFormerConv`,
    :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`,
    :class:`~torch_geometric_lgt.nn.DegreeMaskedAttention`,
    :class:`~torch_geometric_lgt.nn.AdjacencyMaskedAttention`,
    :class:`~torch_geometric_lgt.nn.MeanAttention`, and :class:`torch.nn.MultiheadAttention` where
    the nodes of a graph attend to each other, as with ``attn_type='multihead'`` and in PyG's
    ``GPSConv``. The report has a row for each call of such a layer.

    ===================  ===========================================================================
    measure              meaning
    ===================  ===========================================================================
    ``layer``            path of the layer in the model
    ``others``           mean share of a node's attention weight on other nodes; below 0 if their
                         weights, which have signs in SGFormer and with ``'fourier'``, sum to less
                         than 0; None for a pair of sources and targets, as in MGFormer, except
                         in SGFormer's layer
    ``beyond mean``      norm of the difference between the attention's output and the plain mean of
                         the values, divided by the norm of the output
    ``entropy``          entropy of the weights above 0, divided by that of uniform weights (over
                         the graph, or over the neighbours): from 0 to 1
    ``inert heads``      share of the heads with an entropy of at least 0.999
    ``query``, ``key``   mean norm of the scaled queries and keys, the inputs of the feature map;
                         None without any
    ``feature error``    relative error of the output against the output with the exact softmax that
                         random features estimate; None for feature maps that estimate no softmax
    ===================  ===========================================================================

    Args:
        model (torch.nn.Module): A model with attention layers.
        *args: The positional arguments of the model's :meth:`forward`, for example :obj:`x`,
            :obj:`edge_index` and :obj:`batch`.
        num_rows (int, optional): Number of sampled nodes, whose attention to all nodes of their
            graphs is measured. (default: :obj:`64`)
        generator (torch.Generator, optional): Draws the nodes. (default: :obj:`None`, torch's
            global generator)
        **kwargs: The keyword arguments of the model's :meth:`forward`.

    Returns:
        AttentionReport: A list with a dictionary for each call of a layer.

    Raises:
        ValueError: If the model has none of these attention layers, or calls none. If a layer
            reads a state, or :obj:`num_rows` is not positive.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.diagnostics import attention_report
        >>> from torch_geometric_lgt.nn import DIFFormer, KernelAttentionConv
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> model = DIFFormer(in_channels=4, hidden_channels=8, out_channels=2, num_layers=2)
        >>> report = attention_report(model, torch.eye(4), ring)
        >>> print(report)
        layer    others  beyond mean  entropy  inert heads  query  key  feature error
        convs.0     ...
        convs.1     ...
        >>> [row['entropy'] > 0.5 for row in report]
        [True, True]
        >>> with torch.no_grad():  # with queries of 0 all weights 1 + q^T k are 1
        ...     for parameter in model.convs[0].lin_query.parameters():
        ...         _ = parameter.zero_()
        >>> row = attention_report(model, torch.eye(4), ring)[0]
        >>> {name: round(row[name], 4) for name in ('others', 'beyond mean', 'entropy')}
        {'others': 0.75, 'beyond mean': 0.0, 'entropy': 1.0}

        A model of your own is measured alike:

        >>> class Model(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.lin = torch.nn.Linear(4, 8)
        ...         self.attn = KernelAttentionConv(8, 8, heads=2)
        ...
        ...     def forward(self, x, batch):
        ...         return self.attn(self.lin(x).relu(), batch=batch)
        >>> report = attention_report(Model(), torch.eye(4), batch=torch.tensor([0, 0, 1, 1]))
        >>> report[0]['layer']
        'attn'
    """
    check_whole('num_rows', num_rows, 1)
    rows: dict[int, Tensor] = {}
    report = AttentionReport()
    with recorded_calls(model, args, kwargs) as (calls, _):
        for call in calls:
            size = call.num_targets
            if size not in rows:
                rows[size] = permutation(size, generator)[:num_rows]
            report.append(measure_call(call, rows[size]))
    return report


@contextlib.contextmanager
def check_finite(model: torch.nn.Module) -> Iterator[None]:
    r"""Checks the inputs and outputs of each module of a model for NaN and infinity within this
    context manager, in the forward pass.

    Each check reads the whole tensor. Use the context manager to find the module that produces NaN;
    gradients are not checked. Layers of this package usually apply several of their linear maps in
    one product. While they are checked, they call their linear maps one after the other, so results
    are rounded differently, and inputs above about :math:`10^{18}` may overflow earlier. Modules of
    ``torch.jit.script`` take no checks and are left out.

    Args:
        model (torch.nn.Module): Any model.

    Raises:
        ValueError: If an input of a module has NaN or infinity, or finite inputs give a non-finite
            output. The error names the first such module.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.diagnostics import check_finite
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        >>> x = torch.tensor([[1.0, 2.0], [1.0, float('nan')]])
        >>> with check_finite(model):
        ...     out = model(x)
        Traceback (most recent call last):
        ...
        ValueError: the input of the model (Sequential) is not finite, first in row 1
    """
    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):  # takes no hooks
                continue
            where = f'{name or "the model"} ({type(module).__name__})'
            hooks.enter_context(
                module.register_forward_pre_hook(
                    lambda _, values, named, where=where: _require_finite(
                        f'input of {where}', *values, *named.values()
                    ),
                    with_kwargs=True,
                )
            )
            hooks.enter_context(
                module.register_forward_hook(
                    lambda _, values, out, where=where: _require_finite(f'output of {where}', out)
                )
            )
        # compiled code calls no new hooks
        hooks.enter_context(torch.compiler.set_stance('force_eager'))
        yield


def _require_finite(what: str, *values: Any) -> None:
    r"""Checks that tensors, dense or sparse, have neither NaN nor infinity, also in tuples, lists
    and dictionaries. Other values are ignored. :obj:`what` names the values in the error.

    Raises:
        ValueError: If a value is not finite. The error has the first such row.
    """
    for value in values:
        if isinstance(value, (tuple, list)):
            _require_finite(what, *value)
        elif isinstance(value, Mapping):  # by node or edge type
            for key, part in value.items():
                _require_finite(f'{what} at {key!r}', part)
        elif isinstance(value, Tensor):
            entries = value
            rows = None
            if value.layout != torch.strided:
                matrix = value.to_sparse_coo().coalesce()
                entries, rows = matrix.values(), matrix.indices()[0]
            if not bool(entries.isfinite().all()):
                if value.dim() == 0:
                    raise ValueError(f'the {what} is not finite (got {float(value)})')
                first = (~entries.isfinite()).nonzero()[0, 0]
                raise ValueError(
                    f'the {what} is not finite, first in row '
                    f'{int(first if rows is None else rows[first])}'
                )


def check_fresh(
    data: Data | HeteroData, transforms: Callable[..., Any] | Sequence[Callable[..., Any]]
) -> None:
    r"""Checks that the attributes that transforms added to a graph still fit the graph, by applying
    the transforms to a copy again.

    Stored Jaccard indices, degrees and encodings are not updated if edges are added, removed or
    sorted later. If an attribute keeps its length, nothing else shows that it is outdated. If a
    transform appends columns to :obj:`x` (``attr_name=None``), the check looks for equal columns in
    :obj:`x`. The check takes as long as the transforms.

    Args:
        data (torch_geometric.data.Data or torch_geometric.data.HeteroData): The graph with the
            attributes. The check leaves the graph unchanged.
        transforms (callable or list): The transform that added attributes, a
            :class:`~torch_geometric.transforms.Compose`, or a list of transforms. They must not
            draw random numbers, as :class:`~torch_geometric_lgt.transforms.RandomSignFlip` does:
            its result would differ.

    Raises:
        TypeError: If :obj:`data` is not a graph.
        ValueError: If an attribute is missing or differs. The error names the first such attribute.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.diagnostics import check_fresh
        >>> from torch_geometric_lgt.transforms import NodeDegree
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = NodeDegree()(Data(edge_index=ring, num_nodes=4))
        >>> check_fresh(data, NodeDegree())
        >>> data.edge_index = ring[:, :2]
        >>> check_fresh(data, NodeDegree())
        Traceback (most recent call last):
        ...
        ValueError: 'degree' is not what NodeDegree('degree') adds to this graph...
    """
    if not isinstance(data, Data | HeteroData):
        raise TypeError(
            f"'data' must be a Data or HeteroData object (got {type(data).__name__}); transforms "
            'are the second argument'
        )
    if isinstance(transforms, Compose):
        transforms = transforms.transforms
    for transform in [transforms] if callable(transforms) else transforms:
        transformed = transform(copy.copy(data))
        for store, new in zip(data.stores, transformed.stores, strict=True):
            for name, value in new.items():
                old, value = _dense(store.get(name)), _dense(value)
                is_new = isinstance(value, Tensor) and old is not value
                if is_new and old is None:
                    raise ValueError(f'{name!r} is not in the data; {transform} adds it')
                if is_new and not (_alike(old, value) or _appended(old, value)):
                    raise ValueError(
                        f'{name!r} is not what {transform} adds to this graph, which may have '
                        'changed since; apply it again'
                    )


def _dense(value: Any) -> Any:
    r"""Returns the entries of a sparse matrix as the rows ``[E, 3]`` of a dense one: row, column
    and value. Returns any other value unchanged."""
    entries = sparse_entries(value)
    if entries is None:
        return value
    row, column, weight = entries
    weight = torch.ones_like(row) if weight is None else weight
    places = torch.stack([row, column], 1)
    return torch.cat([places.double(), weight.double().view(len(row), -1)], 1)


def _alike(one: Tensor, other: Tensor) -> bool:
    r"""Returns whether two tensors have the same shape, dtype, layout and values. Floating-point
    values may differ by rounding, and NaN equals NaN."""
    if (one.shape, one.dtype, one.layout) != (other.shape, other.dtype, other.layout):
        return False
    return (
        torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
        if one.is_floating_point()
        else torch.equal(one, other)
    )


def _appended(old: Tensor, new: Tensor) -> bool:
    r"""Returns whether :obj:`new` is :obj:`old` ``[N, K]`` with more columns, which :obj:`old` has
    already: a transform that appends columns was applied again."""
    number = new.size(1) - old.size(1) if old.dim() == new.dim() == 2 else 0
    if number < 1 or not _alike(old, new[:, :-number]):
        return False
    starts = range(old.size(1) - number + 1)
    return any(_alike(old[:, start : start + number], new[:, -number:]) for start in starts)


def _text(value: Any) -> str:
    r"""Formats one cell of a report's table: :obj:`None` is empty, names and integers are printed
    in full, other numbers with three significant digits."""
    if value is None:
        return ''
    return str(value) if isinstance(value, (int, str)) else f'{value:.3g}'
