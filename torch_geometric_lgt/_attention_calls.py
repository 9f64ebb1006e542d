r"""Records the calls of the attention layers in a model, and reads the attention weights of a
call."""

# N nodes (N_s source, N_t target), S sampled targets, P candidates of all of them, H heads, C
# channels of a key, D of a value.

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, MultiheadAttention

from torch_geometric_lgt import nn
from torch_geometric_lgt._multihead_calls import self_attention_call
from torch_geometric_lgt.functional.attention.kernel import node_pair
from torch_geometric_lgt.functional.neighbors.edges import edge_list, weighted_edges
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.functional.numerics import widest_dtype
from torch_geometric_lgt.functional.segment import node_to_graph
from torch_geometric_lgt.nn import DegreeMaskedAttention
from torch_geometric_lgt.nn._layers.attention_layer import AttentionLayer, position_pair
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._evaluation import evaluation

LAYERS = [
    *(
        name
        for name in nn.__all__
        if isinstance(layer := getattr(nn, name), type) and issubclass(layer, AttentionLayer)
    ),
    MultiheadAttention.__name__,
]


class AttentionRows(NamedTuple):
    r"""Stores the attention weights of sampled targets. A candidate is a value that a target may
    attend to: each node for attention to all nodes, each edge for attention over edges.

    Attributes:
        targets (torch.Tensor): The ids of the targets ``[S]``, which all have a candidate.
        sources (torch.Tensor): The id of the source of each candidate ``[P]``.
        is_candidate (torch.Tensor): Bools ``[S, P]``, whose candidate each is.
        weight (torch.Tensor): The weights ``[S, P, H]``, 0 for candidates of other targets.
        value (torch.Tensor): The values ``[P, H, D]``.
        is_self (torch.Tensor, optional): Bools ``[S, P]``, :obj:`True` for a target's own value;
            :obj:`None` if sources and targets are a pair, in which own values are not known.
        mask (torch.Tensor, optional): Factors ``[S, P]`` of the exponentials of a softmax.
    """

    targets: Tensor
    sources: Tensor
    is_candidate: Tensor
    weight: Tensor
    value: Tensor
    is_self: Tensor | None = None
    mask: Tensor | None = None


class AttentionCall:
    r"""Stores one call of an attention layer. Features, positions and the output are copies,
    because the model may change them in place later. Features and positions have the dtype of the
    parameters, which those of a model that enters autocast itself need not have.

    Args:
        name (str): The path of the layer in its model.
        layer (AttentionLayer or SelfAttention): The layer.
        arguments (dict): The arguments of its :meth:`forward` by name.
        output (torch.Tensor): What it returned, ``[N_t, F_out]``.
    """

    def __init__(self, name: str, layer: Any, arguments: dict[str, Any], output: Tensor) -> None:
        dtype = reference(layer).dtype
        inputs = {key: arguments[key] for key in ('x', 'position') if key in arguments}
        inputs = {key: _copied(value, dtype) for key, value in inputs.items()}
        self.name, self.layer, self.output = name, layer, output.clone()
        self.arguments = arguments | inputs
        x = self.arguments['x']
        self.x_src, self.x_dst = (x, x) if isinstance(x, Tensor) else x

    @property
    def num_targets(self) -> int:
        return self.x_dst.size(0)

    @property
    def dtype(self) -> torch.dtype:
        r"""Returns the dtype of weights and values, the widest of the device."""
        return widest_dtype(self.x_dst.device)

    def rows(self, targets: Tensor) -> AttentionRows:
        r"""Reads the attention weights of the nodes :obj:`targets` ``[S]``. Targets without a
        candidate are left out.

        Raises:
            ValueError: If the layer read a state, whose keys are not known.
        """
        if self.arguments.get('state') is not None:
            raise ValueError(
                f"'state' must be None in the call of {self.name}: the weights of the keys in a "
                "state are not known; call the model without 'states', with the whole graph or a "
                'part of it whose nodes are all keys'
            )
        targets = targets.to(self.x_dst.device)
        rows = (self._edge_rows if self.layer.attends_to_neighbors else self._node_rows)(targets)
        has_candidate = rows.is_candidate.any(1)
        names = 'targets', 'is_candidate', 'weight', 'is_self', 'mask'
        parts = {name: getattr(rows, name) for name in names}
        return rows._replace(
            **{name: None if part is None else part[has_candidate] for name, part in parts.items()}
        )

    def queries_and_keys(self) -> tuple[Tensor, Tensor] | None:
        r"""Computes the scaled queries ``[N_t, H', C]`` and keys ``[N_s, H', C]`` of the heads that
        have them. Returns :obj:`None` if no head has."""
        layer = self.layer
        if layer.lin_query is None:
            return None
        scales = layer.query_scales()
        scale = torch.tensor(scales, dtype=self.dtype, device=self.x_dst.device)[:, None]
        p_src, p_dst = position_pair(self.arguments.get('position'))
        q = layer.lin_query(self.x_dst if p_dst is None else p_dst)
        k = layer.lin_key(self.x_src if p_src is None else p_src)
        q, k = (part.to(self.dtype).unflatten(1, (len(scales), -1)) * scale for part in (q, k))
        return q, k

    def _values(self, x: Tensor) -> Tensor:
        return self.layer.project_values(x).to(self.dtype).unflatten(1, (self.layer.heads, -1))

    def _node_rows(self, targets: Tensor) -> AttentionRows:
        r"""Reads the weights of :obj:`targets` ``[S]`` for all nodes.

        If the layer adds the own value of each target, and the targets are not among the sources,
        this value is a candidate more for each target."""
        layer = self.layer
        sources = torch.arange(self.x_src.size(0), device=targets.device)
        batch, batch_size = (self.arguments.get(name) for name in ('batch', 'batch_size'))
        pair = node_pair(
            batch, sources.numel(), self.num_targets, batch_size, device=targets.device
        )
        graph_src, graph_dst = map(node_to_graph, pair, (sources.numel(), self.num_targets))
        is_candidate = graph_dst[targets][:, None] == graph_src
        pairs = torch.cartesian_prod(targets, sources).flip(1).t()
        degree = self._degree()
        mask = None
        weight = self._scores(edge_index=pairs, degree=degree)
        weight = weight.view(*is_candidate.shape, layer.heads).to(self.dtype)
        if isinstance(layer, DegreeMaskedAttention):
            mask_src, mask_dst = layer.mask_weights(self.arguments['x'], degree, None)
            mask = mask_dst[targets].to(self.dtype) @ mask_src.to(self.dtype).t()
        value = self._values(self.x_src)
        is_self = targets[:, None] == sources if self.x_src is self.x_dst else None
        if is_self is None and getattr(layer, 'self_term', False):
            is_self_value = torch.eye(targets.numel(), dtype=torch.bool, device=targets.device)
            self_weight = (1 - weight.sum(1, keepdim=True)) * is_self_value[..., None]
            is_self = torch.cat([torch.zeros_like(is_candidate), is_self_value], 1)
            is_candidate = torch.cat([is_candidate, is_self_value], 1)
            weight = torch.cat([weight, self_weight], 1)
            value = torch.cat([value, self._values(self.x_dst[targets])])
            sources = torch.cat([sources, targets])
        return AttentionRows(targets, sources, is_candidate, weight, value, is_self, mask)

    def _edge_rows(self, targets: Tensor) -> AttentionRows:
        r"""Reads the weights of :obj:`targets` ``[S]`` for the edges into them."""
        edges, edge_weight = weighted_edges(
            self.arguments['edge_index'],
            self.x_src.size(0),
            self.num_targets,
            self.arguments.get('edge_weight'),
        )
        is_sampled = torch.isin(edges[1], targets)
        sources, ends = edges[:, is_sampled]
        is_candidate = targets[:, None] == ends
        is_self = is_candidate & (sources == ends) if self.x_src is self.x_dst else None
        weight = self._scores()[is_sampled].to(self.dtype) * is_candidate[..., None]
        mask = None
        if edge_weight is not None:
            mask = is_candidate * edge_weight[is_sampled].to(self.dtype)
        value = self._values(self.x_src)[sources]
        return AttentionRows(targets, sources, is_candidate, weight, value, is_self, mask)

    def _scores(self, **arguments: Any) -> Tensor:
        r"""Computes the attention scores of the layer with the arguments of the call, of which
        :obj:`arguments` replaces some."""
        function = self.layer.attention_scores
        arguments = self.arguments | arguments
        names = inspect.signature(function).parameters.keys() & arguments.keys()
        return function(**{name: arguments[name] for name in names})

    def _degree(self) -> Any:
        r"""Returns the degrees that a layer with a degree mask used, a tensor or a pair, and
        :obj:`None` for other layers."""
        degree, num_nodes = self.arguments.get('degree'), self.num_targets
        if degree is not None or not isinstance(self.layer, DegreeMaskedAttention):
            return degree
        return degrees(edge_list(self.arguments['edge_index'], num_nodes, num_nodes), num_nodes)


def _copied(value: Any, dtype: torch.dtype) -> Any:
    r"""Copies a tensor, or both of a pair, to :obj:`dtype`, and returns :obj:`None` unchanged. A
    pair of the same tensor twice stays one."""
    if not isinstance(value, (tuple, list)):
        return None if value is None else value.to(dtype, copy=True)
    source, target = value
    copied = _copied(source, dtype)
    return copied, copied if target is source else _copied(target, dtype)


@contextlib.contextmanager
def recorded_calls(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[list[AttentionCall], Any]]:
    r"""Context manager: calls :obj:`model` in evaluation with :obj:`args` and :obj:`kwargs`, and
    yields all calls of its attention layers with its output.

    Within the context the model stays in evaluation. The states of the random number generators are
    as before the call.

    Raises:
        ValueError: If the model has no attention layer that can be measured, or calls none.
    """
    layers = {
        name.replace('_orig_mod.', ''): layer  # torch.compile adds this part
        for name, layer in (model.named_modules() if isinstance(model, Module) else ())
        if isinstance(layer, AttentionLayer | MultiheadAttention)
    }
    if not layers:
        raise ValueError(
            f"'model' must have an attention layer, one of {', '.join(LAYERS)} (got none in "
            f'{type(model).__name__})'
        )
    calls: list[AttentionCall] = []
    tensors = (*model.parameters(), *model.buffers())
    devices = {tensor.device.index for tensor in tensors if tensor.is_cuda}
    with evaluation(model):
        handles = [
            layer.register_forward_hook(_recorder(name, calls), with_kwargs=True)
            for name, layer in layers.items()
        ]
        try:
            with (
                torch.random.fork_rng(sorted(devices)),  # a model may draw in evaluation, too
                torch.compiler.set_stance('force_eager'),  # compiled code calls no new hooks
            ):
                output = model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        if not calls:
            raise ValueError(
                f"'model' must call one of its attention layers, {', '.join(layers)}, in its "
                'forward pass (got none)'
            )
        yield calls, output


def _recorder(name: str, calls: list[AttentionCall]) -> Callable[..., None]:
    r"""Returns a forward hook that appends each call of the layer called :obj:`name` to
    :obj:`calls`, except those of other threads that use the model."""
    thread = threading.get_ident()

    def record(layer: Any, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        if threading.get_ident() != thread:
            return
        bound = inspect.signature(layer.forward).bind(*args, **kwargs)
        arguments = dict(bound.arguments)
        output = output[0] if isinstance(output, tuple) else output  # without the scores of edges
        path = name or type(layer).__name__
        if isinstance(layer, MultiheadAttention):
            call = self_attention_call(layer, arguments, output)
            if call is None:
                return
            layer, arguments, output = call
        calls.append(AttentionCall(path, layer, arguments, output))

    return record


def permutation(size: int, generator: torch.Generator | None) -> Tensor:
    r"""Returns the numbers below :obj:`size` in random order on the CPU, whatever the device of the
    generator."""
    device = None if generator is None else generator.device
    return torch.randperm(size, generator=generator, device=device).cpu()
