from torch import Tensor

from torch_geometric_lgt.functional._sides import Side, Values


def build_flops(side: Side, values: Values, backward: bool = False) -> int:
    r"""Of the matrix products that build the states of keys and values; backward evaluates them again and passes two products for each."""
    linear = _linear(side.x, side.weight) + _linear(side.x if values.x is None else values.x, values.weight)
    state = _state(side, side.rank * (values.channels(side) + 1))
    return 3 * linear + 2 * (_features(side) + state) if backward else linear + _features(side) + state


def read_flops(side: Side, width: int, backward: bool = False) -> int:
    r"""Of the matrix products that read states of :obj:`width` columns; the gradient of a mask needs the read once more.
    With samples the gradient of the weights needs no product."""
    linear, state = _linear(side.x, side.weight), _state(side, width - 1 if backward and side.samples > 1 else width)
    again = 0 if side.mask is None else state
    return 3 * linear + 2 * (_features(side) + state) + again if backward else linear + _features(side) + state


def _linear(x: Tensor, weight: Tensor | None) -> int:
    return 0 if weight is None else 2 * x.shape[0] * weight.numel()


def _features(side: Side) -> int:
    return 0 if side.projection is None else 2 * side.x.shape[0] * side.heads * side.projection.numel()


def _state(side: Side, width: int) -> int:
    return 2 * side.x.shape[0] * side.heads * side.num_features * width
