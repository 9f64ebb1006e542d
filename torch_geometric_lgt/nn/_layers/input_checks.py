# N nodes, F input width.
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn import Linear
from torch.nn.modules.lazy import LazyModuleMixin
from torch_geometric.data import HeteroData

from torch_geometric_lgt._arguments import check_number, check_whole, is_whole
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import check_edge_shape, check_edge_type
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.typing import PairTensor


def check_sizes(**sizes: int) -> None:
    r"""Raises a ValueError unless each keyword is a whole number of at least 1; the message names
    the first that is not."""
    for name, size in sizes.items():
        check_whole(name, size, 1)


def check_not_negative(**numbers: int) -> None:
    r"""Raises a ValueError unless each keyword is a whole number of at least 0; the message names
    the first that is not."""
    for name, number in numbers.items():
        check_whole(name, number, 0)


def check_rates(**rates: float) -> None:
    r"""Raises a ValueError unless each keyword, a dropout probability, is at least 0 and below
    1."""
    for name, rate in rates.items():
        check_number(name, rate)
        if not 0 <= rate < 1:
            raise ValueError(f"'{name}' must be at least 0 and below 1 (got {rate})")


def check_width(in_channels: int) -> None:
    r"""Raises a ValueError unless :obj:`in_channels`, the input channels of a model, is a positive
    whole number or -1 (read from the first input)."""
    if not _is_width(in_channels):
        raise ValueError(
            "'in_channels' must be a positive whole number, or -1 for the size of the first input "
            f'(got {in_channels!r})'
        )


def check_channels(in_channels: int | tuple[int, int]) -> tuple[int, int]:
    r"""Returns the input channels as a pair (sources, targets); a single number stands for both.

    Raises:
        ValueError: If there are not two sizes, or a size is neither positive nor -1.
    """
    is_pair = isinstance(in_channels, Sequence)
    pair = tuple(in_channels) if is_pair else (in_channels, in_channels)
    if len(pair) != 2 or not all(_is_width(size) for size in pair):
        raise ValueError(
            "'in_channels' must be a positive whole number or -1, or a pair of these for sources "
            f'and targets (got {in_channels!r})'
        )
    return pair


def _is_width(size: Any) -> bool:
    return is_whole(size, -1) and size != 0


def check_tensor(x: Any, name: str = 'x') -> None:
    r"""Checks that features, which messages call :obj:`name`, are a tensor.

    Raises:
        TypeError: If they are not.
        ValueError: If they are a nested tensor.
    """
    if not isinstance(x, Tensor):
        raise _type_error(x, name, 'a torch.Tensor')
    if x.is_nested:
        raise ValueError(
            f"'{name}' must have the nodes of all graphs below each other (got a nested tensor); "
            f"give torch.cat({name}.unbind()), and the graph of each node as 'batch'"
        )


def feature_pair(x: Tensor | PairTensor) -> PairTensor:
    r"""Returns the features of sources and targets of a layer; one tensor stands for both.

    Raises:
        TypeError: If :obj:`x` is neither a tensor nor a pair of tensors.
    """
    if isinstance(x, Tensor):
        return x, x
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        expected = 'a torch.Tensor, or a pair of them for sources and targets'
        raise _type_error(x, 'x', expected, takes_pair=True)
    for part in x:
        check_tensor(part)
    return x[0], x[1]


def _type_error(x: Any, name: str, expected: str, takes_pair: bool = False) -> TypeError:
    if isinstance(x, Proxy):  # has every attribute
        fix = "trace it with a torch.fx.Tracer whose 'is_leaf_module' is true for the layer"
    elif hasattr(x, 'edge_index'):
        fix = 'give data.x and data.edge_index'
    elif isinstance(x, (dict, HeteroData)):
        fix = 'for several types of nodes use to_homogeneous() of the data'
        fix += ', or to_hetero' if takes_pair else ''
    elif isinstance(x, tuple) and not takes_pair:
        fix = 'only attention layers take a pair (sources, targets), which to_hetero passes'
    else:
        fix = f'convert it with torch.as_tensor({name})'
    return TypeError(f"'{name}' must be {expected} (got {type(x).__name__}); {fix}")


def check_dense(x: Tensor) -> None:
    r"""Checks that the input of an attention layer is a dense tensor.

    Raises:
        TypeError: If :obj:`x` is no tensor.
        ValueError: If :obj:`x` is a sparse or nested tensor.
    """
    check_tensor(x)
    if x.layout != torch.strided:
        raise ValueError(
            f"'x' must be dense for an attention layer (got {x.layout}); give x.to_dense(), or put "
            'a Linear layer before it, which takes sparse features'
        )


def check_heads(heads: int, channels: int, name: str = 'hidden_channels') -> None:
    r"""Raises a ValueError unless the number of heads divides the :obj:`channels`, the argument
    :obj:`name` of a model or layer, and both are positive whole numbers."""
    check_sizes(heads=heads, **{name: channels})
    if channels % heads != 0:
        raise ValueError(f"'heads' must divide {name!r} (got {heads} and {channels})")


def check_features(x: Tensor, part: torch.nn.Module, in_channels: int, name: str = 'x') -> None:
    r"""Checks the features that a layer passes to :obj:`part`, one of its submodules. Layers of
    this package call it first in :meth:`forward`, so that an error names the argument.

    It reads dtype and device from the parameters of :obj:`part`, which may be any module: a user
    may put an adapter in the place of a Linear layer, without an attribute :obj:`weight`.

    Args:
        x (torch.Tensor): The features ``[N, in_channels]``, dense or sparse.
        part (torch.nn.Module): The module that gets :obj:`x`, such as a Linear layer.
        in_channels (int): The width of :obj:`x`, or -1 for that of the first input.
        name (str, optional): What messages call :obj:`x`. (default: :obj:`"x"`)

    Raises:
        TypeError: If :obj:`x` is no tensor.
        ValueError: If :obj:`x` does not have the shape ``[N, in_channels]``. If :obj:`in_channels`
            is -1, a Linear layer that has seen an input fixes the width, and any other module
            accepts every width. Also if :obj:`x` has another device than the parameters, or another
            dtype outside of autocast. If the parameters were made in
            :class:`torch.inference_mode`, and gradients are enabled.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import check_features
        >>> lin = torch.nn.Linear(16, 8)
        >>> check_features(torch.randn(5, 16), lin, in_channels=16)
        >>> check_features(torch.randn(5, 4), lin, in_channels=16)
        Traceback (most recent call last):
        ValueError: 'x' must have shape [N, 16] (got (5, 4))
    """
    check_tensor(x, name)
    is_lazy = isinstance(part, LazyModuleMixin)
    is_known = in_channels == -1 and isinstance(part, Linear) and not is_lazy
    width = part.in_features if is_known else in_channels
    if x.dim() != 2 or (width != -1 and x.size(1) != width):
        raise ValueError(
            f"'{name}' must have shape [N, {'F' if width == -1 else width}] (got {tuple(x.shape)})"
        )
    weight = reference(part)
    if not is_lazy and weight.numel() == 0:
        return
    if not is_lazy:
        _check_recorded(weight)
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        hint = '' if x.is_floating_point() else ', or numbers of kinds with one_hot or an Embedding'
        raise ValueError(
            f"'{name}' must have the dtype of the parameters, {weight.dtype} (got {x.dtype}); "
            f'convert it with {name}.to({weight.dtype}){hint}'
        )
    if x.device != weight.device:
        check_devices(weight.device, **{name: x})


def _check_recorded(weight: Tensor) -> None:
    r"""Raises a ValueError if autograd would record some operations of a parameter only: it
    records no views of parameters that were made in inference mode."""
    is_recorded = torch.is_grad_enabled() and weight.requires_grad
    if is_recorded and not torch.compiler.is_compiling() and weight.is_inference():
        raise ValueError(
            'the parameters must be made outside of torch.inference_mode() to have gradients (got '
            'some that were made inside); make the model outside, or call it in torch.no_grad()'
        )


def check_edge_index(edge_index: Any, hint: str = '') -> None:
    r"""Checks the format of :obj:`edge_index`, which may be :obj:`None` or a list with the edges of
    each order. Layers and models check it also where they do not read the edges, so that
    ``layer(x, batch)`` is an error. Messages end in the :obj:`hint`, or ask for the batch vector.

    Raises:
        TypeError: If it is in no format of edges.
        ValueError: If it is a dense tensor that is not ``[2, E]``.
    """
    for edges in edge_index if is_hop_list(edge_index) else [edge_index]:
        if edges is not None:
            check_edge_type(edges, 'edge_index', hint)
    if isinstance(edge_index, Tensor) and edge_index.layout == torch.strided:
        check_edge_shape(edge_index, 'edge_index', hint or '; give the batch vector as batch=batch')


def is_hop_list(edge_index: Any) -> bool:
    r"""Tells whether :obj:`edge_index` is a list with the edges of each order, not one graph."""
    return isinstance(edge_index, (list, tuple)) and not isinstance(edge_index, SortedEdges)


def require_edges(edge_index: Any, fix: str) -> Any:
    r"""Returns :obj:`edge_index`. Raises a ValueError, which ends in the :obj:`fix`, if it is
    :obj:`None`."""
    if edge_index is None:
        raise ValueError(f"'edge_index' must be given; {fix}")
    return edge_index


def check_edge_attr(
    edge_attr: Tensor | None, num_edges: int, edge_channels: int, kind: str = 'model'
) -> None:
    r"""Raises an error unless :obj:`edge_attr` is a tensor ``[E, F_e]`` of floating point, or is
    :obj:`None` for a layer or model, whose :obj:`kind` the message names, with
    :obj:`edge_channels` 0."""
    if edge_attr is not None:
        check_tensor(edge_attr, 'edge_attr')
    shape = None if edge_attr is None else tuple(edge_attr.shape)
    if edge_channels == 0:
        if edge_attr is not None:
            raise ValueError(
                f"'edge_attr' must be None for a {kind} with 'edge_channels' = 0 (got {shape})"
            )
        return
    expected = (num_edges, edge_channels)
    if edge_attr is None or shape != expected:
        hint = _edge_attr_hint(edge_attr, expected)
        raise ValueError(f"'edge_attr' must have shape {expected} (got {shape}){hint}")
    if not edge_attr.is_floating_point():
        raise ValueError(
            f"'edge_attr' must be of floating point (got {edge_attr.dtype}); convert it with "
            'edge_attr.float(), or numbers of kinds with one_hot or an Embedding'
        )


def _edge_attr_hint(edge_attr: Tensor | None, expected: tuple[int, int]) -> str:
    r"""Returns the end of a message about :obj:`edge_attr` of another shape than :obj:`expected`,
    ``(E, F_e)``."""
    if edge_attr is None:
        return '; pass edge_attr=data.edge_attr'
    shape, num_edges = tuple(edge_attr.shape), expected[0]
    if not edge_attr.is_floating_point():
        is_kind = shape in ((num_edges,), (num_edges, 1))
        return '; encode numbers of kinds with one_hot or an Embedding' if is_kind else ''
    return '; give edge_attr[:, None]' if (*shape, 1) == expected else ''


def check_laplacian_pe(laplacian_pe: Tensor | None, num_nodes: int, pe_channels: int) -> None:
    r"""Raises an error unless :obj:`laplacian_pe` is a tensor ``[N, pe_channels]``, or is
    :obj:`None` for a model with :obj:`pe_channels` 0."""
    if laplacian_pe is not None:
        check_tensor(laplacian_pe, 'laplacian_pe')
    shape = None if laplacian_pe is None else tuple(laplacian_pe.shape)
    if pe_channels == 0 and shape is not None:
        raise ValueError(
            f"'laplacian_pe' must be None for a model with 'pe_channels' = 0 (got {shape})"
        )
    expected = (num_nodes, pe_channels)
    if pe_channels > 0 and shape != expected:
        raise ValueError(
            f"'laplacian_pe' must have shape {expected} (got {shape}); add it to the data with "
            f'LaplacianPE({pe_channels})'
        )


def check_devices(device: torch.device, **inputs: Any) -> None:
    r"""Raises a ValueError if a tensor or sorted edges among :obj:`inputs` lie on another device
    than :obj:`device`. The message names the first such keyword; values of other types are
    accepted."""
    for name, value in inputs.items():
        tensor = value.edge_index if isinstance(value, SortedEdges) else value
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(
                f"'{name}' must be on the device of the parameters, {device} (got "
                f'{tensor.device}); move it with {name}.to({str(device)!r})'
            )


def check_unused(edge_weight: Tensor | None, reason: str) -> None:
    r"""Raises a ValueError unless :obj:`edge_weight` is :obj:`None`, for a layer that would ignore
    the weights. The :obj:`reason`, such as ``'with use_graph=False'``, completes the message."""
    if edge_weight is not None:
        raise ValueError(f"'edge_weight' must be None {reason} (got {tuple(edge_weight.shape)})")
