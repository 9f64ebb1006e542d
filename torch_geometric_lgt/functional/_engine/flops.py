# W = R * (D + 1) columns of a state.
from torch import Tensor

from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput


def build_flops(
    keys: KernelInput, values: ValueInput, backward: bool = False, nodes: int | None = None
) -> int:
    r"""Counts the matrix products that build the states of :obj:`nodes` keys and values (default:
    all). The backward pass evaluates them again, and has two more products for each."""
    nodes = keys.x.shape[0] if nodes is None else nodes
    linear = _linear(keys.weight) + _linear(values.weight)
    state = _state(keys, keys.rank() * (values.channels(keys.heads) + 1))
    if backward:
        return nodes * (3 * linear + 2 * (_features(keys) + state))
    return nodes * (linear + _features(keys) + state)


def read_flops(
    queries: KernelInput, width: int, backward: bool = False, nodes: int | None = None
) -> int:
    r"""Counts the matrix products that read states of :obj:`width` columns.

    In the backward pass the product with the gradient has the values alone, and with one sample the
    product for the state has the weights, too. With a mask both have all columns, and the state is
    read again."""
    nodes = queries.x.shape[0] if nodes is None else nodes
    linear, state = _linear(queries.weight), _state(queries, width)
    if not backward:
        return nodes * (linear + _features(queries) + state)
    values = _state(queries, width - 1)
    grad_sums = values if queries.samples > 1 else state
    products = values + grad_sums if queries.mask is None else 3 * state
    return nodes * (3 * linear + 2 * _features(queries) + products)


def pair_flops(
    queries: KernelInput,
    keys: KernelInput,
    values: ValueInput,
    backward: bool,
    targets: int,
    sources: int,
    pairs: int,
) -> int:
    r"""Counts the matrix products of graphs whose pairs are computed, with so many targets, sources
    and pairs in all: weights and sums."""
    key_linear = _linear(keys.weight) + _linear(values.weight)
    linear = targets * _linear(queries.weight) + sources * key_linear
    features = targets * _features(queries) + sources * _features(keys)
    num_masks = (queries.mask is not None) + (keys.mask is not None)
    masks = 2 * pairs * queries.rank() if num_masks > 0 else 0
    weights = 2 * pairs * keys.heads * keys.num_features()
    sums = 2 * pairs * keys.heads * values.channels(keys.heads)
    if backward:
        return 3 * linear + 2 * features + 3 * weights + 2 * sums + (2 + num_masks) * masks
    return linear + features + weights + sums + masks


def _linear(weight: Tensor | None) -> int:
    return 0 if weight is None else 2 * weight.numel()


def _features(inputs: KernelInput) -> int:
    return 0 if inputs.projection is None else 2 * inputs.heads * inputs.projection.numel()


def _state(inputs: KernelInput, width: int) -> int:
    return 2 * inputs.heads * inputs.num_features() * width
