r"""Measures of the attention of a trained model, layer by layer, and searches for errors in its
input."""

# N nodes, S sampled rows, H heads, C channels per head.

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.nn.models._streaming.stream import evaluation

__all__ = ['AttentionReport', 'attention_report', 'check_finite', 'check_fresh']
INERT_ENTROPY = 0.999


class AttentionReport(list[dict[str, Any]]):
    r"""Lists the measures of each layer, one dictionary a layer, and prints them as a table.

    :meth:`attention_report` builds the report and describes the measures.

    Example:
        >>> from torch_geometric_lgt.diagnostics import AttentionReport
        >>> report = AttentionReport([{'layer': 1, 'entropy': 0.5}, {'layer': 2, 'entropy': 0.25}])
        >>> print(report)
        layer  entropy
            1      0.5
            2     0.25
        >>> report[1]['entropy']
        0.25
    """

    def __str__(self) -> str:
        r"""Formats the report as a table: a line with the names of the measures, then a line for
        each layer."""
        names = list(self[0]) if self else []
        cells = [names, *([_text(row[name]) for name in names] for row in self)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        return '\n'.join(
            '  '.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in cells
        )


@torch.no_grad()
def attention_report(
    model: Any,
    x: Tensor,
    edge_index: Any,
    batch: Tensor | None = None,
    num_rows: int = 64,
    generator: torch.Generator | None = None,
) -> AttentionReport:
    r"""Measures on sampled nodes what each attention layer of a model contributes, in evaluation
    mode.

    ===================  ===========================================================================
    measure              meaning
    ===================  ===========================================================================
    ``others``           mean share of a node's attention weight on other nodes
    ``beyond mean``      norm of the attention's output minus the plain mean of the values, divided
                         by the output's norm
    ``entropy``          entropy of the weights above 0, divided by the entropy of uniform weights:
                         1 for uniform weights
    ``inert heads``      share of the heads with an entropy of at least 0.999
    ``query``, ``key``   mean norm of the scaled queries and keys, the inputs of the feature map
    ``feature error``    relative error of the output against exact softmax weights, None for
                         feature maps of other types
    ===================  ===========================================================================

    Args:
        model (torch.nn.Module): :class:`~torch_geometric_lgt.nn.NodeFormer`,
            :class:`~torch_geometric_lgt.nn.DIFFormer` or :class:`~torch_geometric_lgt.nn.SGFormer`.
        x (torch.Tensor): Node features ``[N, F]``.
        edge_index (torch.Tensor): The edges, in any format that the model's :meth:`forward` takes.
        batch (torch.Tensor, optional): The graph id of each node, ``[N]``. (default: :obj:`None`,
            one graph)
        num_rows (int, optional): Number of sampled nodes, whose attention to all nodes of their
            graphs is measured. (default: :obj:`64`)
        generator (torch.Generator, optional): Draws the nodes. (default: :obj:`None`, torch's
            global generator)

    Raises:
        ValueError: If the model has no attention layers of this package.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.diagnostics import attention_report
        >>> from torch_geometric_lgt.nn import DIFFormer
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> model = DIFFormer(in_channels=4, hidden_channels=8, out_channels=2, num_layers=2)
        >>> report = attention_report(model, torch.eye(4), ring)
        >>> print(report)
        layer  others  beyond mean  entropy  inert heads  query  key  feature error
            1     ...
            2     ...
        >>> [row['entropy'] > 0.5 for row in report]
        [True, True]
    """
    outputs = layer_outputs(model, x, edge_index, batch)
    rows = torch.randperm(x.size(0), generator=generator)[:num_rows].to(x.device)
    pairs = zip(model.convs, outputs, strict=False)
    return AttentionReport(
        _measure(number, conv, z, rows, batch) for number, (conv, z) in enumerate(pairs)
    )


def layer_outputs(model: Any, x: Tensor, edge_index: Any, batch: Tensor | None) -> list[Tensor]:
    r"""Runs the attention layers of a model in evaluation mode and returns the input
    ``[N, hidden channels]`` of each layer, then the output of the last layer.

    Args:
        model: NodeFormer, DIFFormer or SGFormer.
        x: Node features ``[N, F]``.
        edge_index: The edges, in any format that the model takes.
        batch: The graph id of each node, ``[N]``, or :obj:`None` for one graph.

    Raises:
        ValueError: If the model has no attention layers of this package.
    """
    if not hasattr(model, 'convs') or not hasattr(model, 'layers'):
        raise ValueError(
            f"'model' must be NodeFormer, DIFFormer or SGFormer (got {type(model).__name__})"
        )
    with evaluation(model):
        return model.layers(x, GraphContext(model._edges(edge_index, x.size(0)), batch))


def attention_rows(conv: Any, z: Tensor, rows: Tensor, batch: Tensor | None = None) -> Tensor:
    r"""Computes the attention weights ``[S, N, H]`` of the nodes :obj:`rows` ``[S]`` to all nodes,
    in each head of layer :obj:`conv`.

    :obj:`z` ``[N, F]`` is the input of the layer. Weights are 0 between nodes of different graphs
    in :obj:`batch` ``[N]``.
    """
    pairs = torch.cartesian_prod(rows, torch.arange(z.size(0), device=z.device)).flip(1).t()
    return conv.attention_scores(z, pairs, batch).view(rows.numel(), z.size(0), conv.heads)


@contextlib.contextmanager
def check_finite(model: torch.nn.Module) -> Iterator[None]:
    r"""Checks the inputs and outputs of each module of a model for NaN and infinity within this
    context manager.

    Each check reads the whole tensor. Use the context manager to find the module that produces NaN.

    Args:
        model (torch.nn.Module): Any model.

    Raises:
        ValueError: If an input of a module has NaN or infinity, or an output of finite inputs has.
            The error names the first such module.

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

    handles = []
    for name, module in model.named_modules():
        where = f'{name or "the model"} ({type(module).__name__})'
        handles.append(
            module.register_forward_pre_hook(
                lambda _, values, where=where: _require_finite(f'input of {where}', *values)
            )
        )
        handles.append(
            module.register_forward_hook(
                lambda _, values, out, where=where: _require_finite(f'output of {where}', out)
            )
        )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _require_finite(what: str, *values: Any) -> None:
    r"""Checks that tensors, dense or sparse, and tuples and lists of tensors have neither NaN nor
    infinity. Other values are ignored. :obj:`what` names the values in the error.

    Raises:
        ValueError: If a value is not finite. The error has the first such row.
    """
    for value in values:
        if isinstance(value, (tuple, list)):
            _require_finite(what, *value)
        elif isinstance(value, Tensor):
            entries, rows = value, None
            if value.layout != torch.strided:
                matrix = value.to_sparse_coo().coalesce()
                entries, rows = matrix.values(), matrix.indices()[0]
            if not bool(entries.isfinite().all()):
                first = (~entries.isfinite()).nonzero()[0, 0]
                raise ValueError(
                    f'the {what} is not finite, first in row '
                    f'{int(first if rows is None else rows[first])}'
                )


def check_fresh(data: Data | HeteroData, transforms: Sequence[Callable]) -> None:
    r"""Checks that the attributes that transforms added to a graph still fit the graph, by applying
    the transforms to a copy again.

    Scores and encodings do not change when edges are added, removed or sorted later. If an
    attribute keeps its length, nothing else shows that it is outdated. The check takes as long as
    the transforms.

    Args:
        data (torch_geometric.data.Data or torch_geometric.data.HeteroData): The graph with the
            attributes. The check leaves the graph unchanged.
        transforms (list): The transforms that added attributes. They must not draw random numbers.

    Raises:
        ValueError: If an attribute is missing or differs. The error names the first such attribute.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.diagnostics import check_fresh
        >>> from torch_geometric_lgt.transforms import NodeDegree
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = NodeDegree()(Data(edge_index=ring, num_nodes=4))
        >>> check_fresh(data, [NodeDegree()])
        >>> data.edge_index = ring[:, :2]
        >>> check_fresh(data, [NodeDegree()])
        Traceback (most recent call last):
        ...
        ValueError: 'degree' is not what NodeDegree('degree') adds to this graph, which may...
    """
    for transform in transforms:
        transformed = transform(copy.copy(data))
        for store, new in zip(data.stores, transformed.stores, strict=True):
            for name, value in new.items():
                is_new = (
                    isinstance(value, Tensor)
                    and value.layout == torch.strided
                    and store.get(name) is not value
                )
                if is_new and not (name in store and _alike(store[name], value)):
                    raise ValueError(
                        f'{name!r} is not what {transform} adds to this graph, which may have '
                        'changed since; apply it again'
                    )


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


def _measure(
    number: int, conv: Any, z: Tensor, rows: Tensor, batch: Tensor | None
) -> dict[str, Any]:
    r"""Measures one attention layer and returns the dictionary of measures, see
    :meth:`attention_report`.

    Args:
        number: The index of the layer, from 0.
        conv: The layer.
        z: The input of the layer ``[N, F]``.
        rows: The sampled nodes ``[S]``.
        batch: The graph id of each node, ``[N]``, or :obj:`None` for one graph.
    """
    num_nodes, heads = z.size(0), conv.heads
    weight = attention_rows(conv, z, rows, batch).double()
    graph = torch.zeros(num_nodes, dtype=torch.long, device=z.device) if batch is None else batch
    same = graph[rows][:, None] == graph[None]
    value = conv._value(z).double().unflatten(1, (heads, -1))
    out = torch.einsum('ijh,jhd->ihd', weight, value)
    mean = torch.einsum('ij,jhd->ihd', same.double() / same.sum(1, keepdim=True), value)
    positive = weight.clamp(min=0)
    positive = positive / positive.sum(1, keepdim=True).clamp(min=1e-300)
    uniform = (
        same.sum(1, keepdim=True).double().log()
    )  # 0 for a graph of one node, which attends to all alike
    entropy = torch.where(
        uniform > 0, -torch.xlogy(positive, positive).sum(1) / uniform.clamp(min=1e-300), 1.0
    )
    q, k = (
        lin(z).double().unflatten(1, (heads, -1)) * _scale(conv)
        for lin in (conv.lin_query, conv.lin_key)
    )
    itself = weight[torch.arange(rows.numel()), rows]
    return {
        'layer': number + 1,
        'others': float((1 - itself).mean()),
        'beyond mean': float((out - mean).norm() / out.norm()),
        'entropy': float(entropy.mean()),
        'inert heads': float((entropy.mean(0) >= INERT_ENTROPY).double().mean()),
        'query': float(q.norm(dim=2).mean()),
        'key': float(k.norm(dim=2).mean()),
        'feature error': _feature_error(conv, q[rows], k, value, out, same),
    }


def _scale(conv: Any) -> float:
    r"""Returns the factor by which layer :obj:`conv` scales its queries and keys, 1 if it does not
    scale."""
    return conv._scale(False) if hasattr(conv, '_scale') else 1.0


def _feature_error(
    conv: Any, q: Tensor, k: Tensor, value: Tensor, out: Tensor, same: Tensor
) -> float | None:
    r"""Computes the relative error of an output against exact softmax attention. Returns
    :obj:`None` for a layer whose feature map does not approximate the softmax.

    Args:
        conv: The layer.
        q: Scaled queries of the sampled nodes, ``[S, H, C]``.
        k: Scaled keys ``[N, H, C]``.
        value: Values ``[N, H, D]``.
        out: The output of the layer's attention for the sampled nodes, ``[S, H, D]``.
        same: Whether a sampled node and a node are in one graph, ``[S, N]``.
    """
    if getattr(getattr(conv, 'feature_map', None), 'kind', None) != 'softmax':
        return None
    logits = torch.einsum('ihc,jhc->ijh', q, k).masked_fill(~same[..., None], -torch.inf)
    exact = torch.einsum('ijh,jhd->ihd', logits.softmax(1), value)
    return float((out - exact).norm() / exact.norm())


def _text(value: Any) -> str:
    r"""Formats one cell of a report's table: :obj:`None` is empty, integers are printed in full,
    other numbers with three significant digits."""
    return '' if value is None else str(value) if isinstance(value, int) else f'{value:.3g}'
