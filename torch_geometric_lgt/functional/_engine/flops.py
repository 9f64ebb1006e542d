# N nodes, H heads, C channels of a key, D of a value, M features, R rank of the mask, W = R * (D +
# 1).
from torch import Tensor

from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput


def build_flops(
    side: KernelInput, values: ValueInput, backward: bool = False, nodes: int | None = None
) -> int:
    r"""Of the matrix products that build the states of :obj:`nodes` keys and values (default: all);
    backward evaluates them again and passes two products for each."""
    nodes = side.x.shape[0] if nodes is None else nodes
    linear = _linear(side.weight) + _linear(values.weight)
    state = _state(side, side.rank() * (values.channels(side.heads) + 1))
    return nodes * (
        3 * linear + 2 * (_features(side) + state) if backward else linear + _features(side) + state
    )


def read_flops(
    side: KernelInput, width: int, backward: bool = False, nodes: int | None = None
) -> int:
    r"""Of the matrix products that read states of :obj:`width` columns. Backward the values alone
    meet the gradient, and the weights with one sample; with a mask both do, and the state is read
    once more."""
    nodes = side.x.shape[0] if nodes is None else nodes
    linear, state, values = _linear(side.weight), _state(side, width), _state(side, width - 1)
    if not backward:
        return nodes * (linear + _features(side) + state)
    products = (
        3 * state if side.mask is not None else values + (values if side.samples > 1 else state)
    )
    return nodes * (3 * linear + 2 * _features(side) + products)


def pair_flops(
    queries: KernelInput,
    keys: KernelInput,
    values: ValueInput,
    backward: bool,
    targets: int,
    sources: int,
    pairs: int,
) -> int:
    r"""Of the matrix products over all :obj:`pairs` of nodes of graphs that have so many together,
    forward the weights and the sums."""
    linear = targets * _linear(queries.weight) + sources * (
        _linear(keys.weight) + _linear(values.weight)
    )
    features = targets * _features(queries) + sources * _features(keys)
    masked = queries.mask is not None, keys.mask is not None
    masks = 2 * pairs * queries.rank() if any(masked) else 0
    weights, sums = (
        2 * pairs * keys.heads * width
        for width in (keys.num_features(), values.channels(keys.heads))
    )
    if backward:
        return 3 * linear + 2 * features + 3 * weights + 2 * sums + (2 + sum(masked)) * masks
    return linear + features + weights + sums + masks


def _linear(weight: Tensor | None) -> int:
    return 0 if weight is None else 2 * weight.numel()


def _features(side: KernelInput) -> int:
    return 0 if side.projection is None else 2 * side.heads * side.projection.numel()


def _state(side: KernelInput, width: int) -> int:
    return 2 * side.heads * side.num_features() * width
