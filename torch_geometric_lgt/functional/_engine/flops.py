# W = R * (D + 1) columns of a state.
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput


def build_flops(
    keys: KernelInput,
    values: LinearInput,
    backward: bool = False,
    nodes: int | None = None,
    deferred: tuple[int, int] = (0, 0),
) -> int:
    r"""Returns the flops of the matrix products that build the states of :obj:`nodes` keys and
    values (default: all). A state has the sums over all keys of a graph. The backward pass
    evaluates keys and values again, and has two more products for each. Features with unit sums
    add a column to one of them. :obj:`deferred` are the numbers of graphs and of their nodes whose
    values are never evaluated in the forward pass (:meth:`fewest_deferred`)."""
    nodes = keys.x.shape[0] if nodes is None else nodes
    linear = _linear(keys) + _linear(values)
    channels = values.channels(keys.heads)
    if backward:
        state = _state(keys, keys.rank() * (channels + 1))
        return nodes * (3 * linear + 2 * (_features(keys) + state) + _unit_sums(keys))
    last = 0 if keys.mask is None else 1  # the sums of the features are a product under a mask only
    state, (num_graphs, num_nodes) = _state(keys, keys.rank() * (channels + last)), deferred
    if num_graphs > 0:
        sums = _state(keys, keys.rank() * (values.x.shape[1] + last))
        saved = num_nodes * (_linear(values) + state - sums)
        state_linear = keys.num_features() * keys.rank() * _linear(values)
        return nodes * (linear + _features(keys) + state) - saved + num_graphs * state_linear
    return nodes * (linear + _features(keys) + state)


def read_flops(
    queries: KernelInput, width: int, backward: bool = False, nodes: int | None = None
) -> int:
    r"""Returns the flops of the matrix products by which :obj:`nodes` queries (default: all) read
    states (sums over all keys of a graph) of :obj:`width` columns.

    The backward pass has one product for the gradient of the features and one for the gradient of
    the state. Without a mask the first product has the columns of the values only, and so has the
    second with several samples. With a mask both have all columns, and the state is read again.
    """
    nodes = queries.x.shape[0] if nodes is None else nodes
    linear, state = _linear(queries), _state(queries, width)
    if not backward:
        return nodes * (linear + _features(queries) + state)
    values = _state(queries, width - 1)
    grad_sums = values if queries.samples > 1 else state
    products = values + grad_sums if queries.mask is None else 3 * state
    return nodes * (3 * linear + 2 * _features(queries) + products)


def pair_flops(
    queries: KernelInput,
    keys: KernelInput,
    values: LinearInput,
    backward: bool,
    targets: int,
    sources: int,
    pairs: int,
) -> int:
    r"""Returns the flops of the matrix products if weights are computed for all pairs of targets
    and sources. :obj:`targets`, :obj:`sources` and :obj:`pairs` are their numbers in all graphs
    together."""
    key_linear = _linear(keys) + _linear(values)
    linear = targets * _linear(queries) + sources * key_linear
    features = targets * _features(queries) + sources * _features(keys)
    num_masks = (queries.mask is not None) + (keys.mask is not None)
    masks = 2 * pairs * queries.rank() if num_masks > 0 else 0
    weights = 2 * pairs * keys.heads * keys.num_features()
    sums = 2 * pairs * keys.heads * values.channels(keys.heads)
    if backward:
        products = 3 * weights + 2 * sums + (2 + num_masks) * masks
        return 3 * linear + 2 * features + products + sources * _unit_sums(keys)
    return linear + features + weights + sums + masks


def _linear(inputs: KernelInput | LinearInput) -> int:
    weights = [inputs.weight, inputs.head_projection if isinstance(inputs, KernelInput) else None]
    return 2 * sum(weight.numel() for weight in weights if weight is not None)


def _features(inputs: KernelInput) -> int:
    return 0 if inputs.projection is None else 2 * inputs.heads * inputs.projection.numel()


def _unit_sums(keys: KernelInput) -> int:
    return _state(keys, 1) if keys.map.has_unit_sums else 0


def _state(inputs: KernelInput, width: int) -> int:
    return 2 * inputs.heads * inputs.num_features() * width
