# N nodes, E edges.
import copy
import pickle
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from torch_geometric_lgt.testing._promises import promise
from torch_geometric_lgt.testing._samples import DOUBLE, sample, subgraph

Make = Callable[..., BaseTransform]
Graph = Any  # a Data or a Batch, whose attributes are there


def check_transform(
    make: Make,
    attr_name: str,
    per_graph: bool = True,
    cached: bool = False,
    tolerance: float = 1e-6,
) -> None:
    r"""Checks the promises of this package's transforms, on random graphs.

    The transform must add an attribute with one row for each node or for each edge, and draw no
    random numbers. The number of rows tells which of both it is. What is checked:

    * The input graph and the global random state do not change.
    * Two runs give equal values. So do a deep copy and an unpickled copy of the transform.
    * A permutation of the nodes permutes the values in the same way. Graphs with repeated
      eigenvalues, where :class:`~torch_geometric_lgt.transforms.LaplacianPE` depends on the order,
      are not drawn.
    * Repeated edges, self loops, isolated nodes and edges of int32 give finite values, and so do
      an empty :obj:`edge_index` and a graph without nodes. There is one row for each node or edge.
    * The values of a graph do not depend on the rest of the batch, if :obj:`per_graph`.
    * Ids outside the nodes, and ids that are not whole numbers, raise a ValueError or TypeError
      that names :obj:`edge_index`.
    * The transform replaces a cache file that was cut off, changed or replaced by a pickle, and
      runs no code from it, if :obj:`cached`.

    Args:
        make (callable): Makes the transform, with the keyword :obj:`cache_dir` if :obj:`cached` is
            :obj:`True`.
        attr_name (str): Name of the attribute that the transform adds.
        per_graph (bool, optional): If :obj:`False`, the transform treats a batch as one graph.
            (default: :obj:`True`)
        cached (bool, optional): If :obj:`True`, the transform can store results in files.
            (default: :obj:`False`)
        tolerance (float, optional): Largest difference between equal results. (default:
            :obj:`1e-6`)

    Raises:
        AssertionError: If the transform breaks a promise; the message names it. An error of the
            transform is its cause.

    Example:
        >>> from torch_geometric_lgt.testing.checks import check_transform
        >>> from torch_geometric_lgt.transforms import JaccardScores
        >>> check_transform(JaccardScores, 'edge_jaccard')
    """
    transform, graph = make(), _graph(0)
    expected = _check_side_effects(transform, graph, attr_name)
    _check_permutation(transform, graph, attr_name, expected, tolerance)
    _check_edges(transform, graph, attr_name, expected, tolerance)
    if per_graph:
        graphs = [graph, _graph(1), Data(edge_index=graph.edge_index[:, :0], num_nodes=2)]
        together = _added(transform, Batch.from_data_list(cast(Any, graphs)), attr_name)
        alone = torch.cat([_added(transform, each, attr_name) for each in graphs])
        assert_close(
            together,
            alone,
            rtol=0,
            atol=tolerance,
            msg=lambda text: f'a graph depends on the batch: {text}',
        )
    if cached:
        _check_cache(make, graph, attr_name, expected)


def _graph(seed: int) -> Graph:
    r"""Draws a graph of ``30 + seed`` nodes with a connected part, an isolated node, a self loop
    and a repeated edge."""
    num_nodes = 30 + seed
    _, edges, _ = sample(num_nodes - 1, 1, seed)
    path = torch.stack([torch.arange(num_nodes - 2), torch.arange(1, num_nodes - 1)])
    extra = torch.tensor([[3, 0, 1], [3, 1, 0]])
    return Data(edge_index=torch.cat([edges, path, path.flip(0), extra], 1), num_nodes=num_nodes)


def _added(transform: BaseTransform, graph: Graph, attr_name: str) -> Tensor:
    with promise(f'the transform of {graph}'):
        changed: Any = transform(graph)
    out = changed[attr_name] if isinstance(changed, Data) and attr_name in changed else None
    if not isinstance(out, Tensor) or out.dim() == 0:
        raise AssertionError(
            f'{attr_name!r} is not added as a tensor with a row for each node or edge (got '
            f'{changed})'
        )
    if out.size(0) not in (graph.num_nodes, graph.num_edges) or (
        out.is_floating_point() and not bool(out.isfinite().all())
    ):
        raise AssertionError(
            f'{attr_name!r} has the shape {tuple(out.shape)} or values that are not finite for '
            f'{graph}'
        )
    return out.to(DOUBLE)


def _check_side_effects(transform: BaseTransform, graph: Graph, attr_name: str) -> Tensor:
    original, random = graph.clone(), torch.get_rng_state()
    expected = _added(transform, graph, attr_name)
    again = {
        'a second run': transform,
        'a copy': copy.deepcopy(transform),
        'a pickle': pickle.loads(pickle.dumps(transform)),
    }
    for name, other in again.items():
        assert_close(
            _added(other, graph, attr_name),
            expected,
            rtol=0,
            atol=0,
            msg=lambda text, name=name: f'{name} differs: {text}',
        )
    assert_close(
        torch.get_rng_state(), random, msg='the transform draws from the global random state'
    )
    if graph.keys() != original.keys() or not torch.equal(graph.edge_index, original.edge_index):
        raise AssertionError('the graph that was given is changed')
    return expected


def _check_permutation(
    transform: BaseTransform, graph: Graph, attr_name: str, expected: Tensor, tolerance: float
) -> None:
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))
    moved = Data(
        edge_index=subgraph(graph.edge_index, order, graph.num_nodes), num_nodes=graph.num_nodes
    )
    expected = expected if expected.size(0) == graph.num_edges else expected[order]
    actual = _added(transform, moved, attr_name)
    assert_close(
        actual,
        expected,
        rtol=0,
        atol=tolerance,
        msg=lambda text: f'a permutation of the nodes changes the values: {text}',
    )


def _check_edges(
    transform: BaseTransform, graph: Graph, attr_name: str, expected: Tensor, tolerance: float
) -> None:
    short = Data(edge_index=graph.edge_index.int(), num_nodes=graph.num_nodes)
    assert_close(
        _added(transform, short, attr_name),
        expected,
        rtol=0,
        atol=tolerance,
        msg=lambda text: f'edges as int32: {text}',
    )
    for num_nodes in (3, 0):
        _added(
            transform,
            Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=num_nodes),
            attr_name,
        )
    past = graph.edge_index.clone()
    past[0, 0] = graph.num_nodes
    bad = {
        'an id past the nodes': past,
        'negative ids': graph.edge_index - 1,
        'broken numbers': graph.edge_index.double(),
    }
    for what, edges in bad.items():
        try:
            transform(Data(edge_index=edges, num_nodes=graph.num_nodes))
        except Exception as error:
            if "'edge_index'" not in str(error) or not isinstance(error, (ValueError, TypeError)):
                raise AssertionError(
                    f"{what} in 'edge_index' end in {error!r}, no ValueError that names it"
                ) from error
        else:
            raise AssertionError(f"{what} in 'edge_index' end in no error")


class _Planted:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def _check_cache(make: Make, graph: Graph, attr_name: str, expected: Tensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache, mark = Path(folder) / 'cache', Path(folder) / 'ran'
        _added(make(cache_dir=cache), graph, attr_name)
        (path,) = cache.glob('*.safetensors')
        whole = path.read_bytes()
        damaged = {
            'left': whole,
            'cut off': whole[:-9],
            'changed': whole[:-3] + bytes([whole[-3] ^ 4]) + whole[-2:],
            'empty': b'',
        }
        for what, content in {**damaged, 'planted': pickle.dumps(_Planted(mark))}.items():
            path.write_bytes(content)
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')  # that it is made anew
                actual = _added(make(cache_dir=cache), graph, attr_name)
            assert_close(
                actual,
                expected,
                rtol=0,
                atol=0,
                msg=lambda text, what=what: f'a cache that was {what} is read: {text}',
            )
        if mark.exists():
            raise AssertionError('a pickle in the cache was run')
