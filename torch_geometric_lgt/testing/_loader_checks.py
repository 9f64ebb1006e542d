# N nodes, n nodes of a batch, E edges.
import multiprocessing
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch_geometric.typing
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Data

from torch_geometric_lgt.functional.neighbors.edges import sparse_entries
from torch_geometric_lgt.testing._promises import promise
from torch_geometric_lgt.testing._samples import sample
from torch_geometric_lgt.typing import SparseTensor

MakeLoader = Callable[..., Iterable[Any]]


def check_loader(make: MakeLoader, num_nodes: int = 60) -> None:
    r"""Checks that a loader of parts of one graph keeps every promise of this package's loaders.

    * Every node is a seed in exactly one batch of an epoch. If batches have no seeds, every node
      belongs to exactly one batch.
    * Batches have the ids of their nodes and edges in the graph, :obj:`n_id` and :obj:`e_id`.
    * Seeds come first in a batch, and no node is in a batch twice.
    * Attributes of nodes and edges equal the attributes of the full graph, those added by a
      transform too. Each edge of a batch is an edge of the graph.
    * With one random seed an epoch is the same again, and with another seed it differs.
    * Worker processes return the same batches of the graph, whether they are forked, spawned or
      from a fork server. Loaders of the parent process work as before.
    * The graph does not change, and a graph without edges has batches too.
    * The loader may refuse a graph with an :obj:`adj_t`, by a ValueError that names :obj:`adj_t` or
      :obj:`edge_index`. If it accepts the graph, each edge of a batch has the attributes of the
      same edge in the graph.

    Args:
        make (callable): Makes the loader from the graph, a :class:`~torch_geometric.data.Data`, and
            the keywords :obj:`shuffle`, :obj:`num_workers` and :obj:`multiprocessing_context`.
        num_nodes (int, optional): Number of nodes of the graph. (default: :obj:`60`)

    Raises:
        AssertionError: If the loader breaks a promise; the message names it. An error of the loader
            is its cause.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.loader import NeighborLoader
        >>> from torch_geometric_lgt.testing.checks import check_loader
        >>> def make(data, **options):  # leaves nodes out
        ...     nodes = torch.arange(10)
        ...     return NeighborLoader(data, [2], nodes, batch_size=5, **options)
        >>> check_loader(make)
        Traceback (most recent call last):
        AssertionError: not each node comes up once as a seed: ...
    """
    data = _graph(num_nodes)
    original = data.clone()
    for workers in (0, 2):
        with promise(f'an epoch with {workers} workers'):
            _check_epoch(
                make(data, shuffle=True, num_workers=workers, multiprocessing_context=None), data
            )
    for name, value in original.items():
        assert_close(
            data[name],
            value,
            rtol=0,
            atol=0,
            msg=lambda text, name=name: f'{name!r} of the graph was written to: {text}',
        )
    _check_seeds(make, data)
    empty = Data(x=torch.zeros(5, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    _check_adjacency(make, data)
    with promise('a graph without edges'):
        seeds = [
            _seeds(batch).numel()
            for batch in make(empty, shuffle=False, num_workers=0, multiprocessing_context=None)
        ]
    if sum(seeds) != 5:
        raise AssertionError('the nodes of a graph without edges are not served')
    _check_processes(make, data)


def _graph(num_nodes: int) -> Data:
    _, edge_index, _ = sample(num_nodes, 1)
    number, edge = torch.arange(num_nodes), torch.arange(edge_index.size(1))
    return Data(
        x=number[:, None].float(),
        edge_index=edge_index,
        edge_attr=edge[:, None].float(),
        degree=number * 7,
        edge_jaccard=edge * 3,
    )


def _seeds(batch: Any) -> Tensor:
    return batch.n_id[: batch.batch_size] if 'batch_size' in batch else batch.n_id


def _check_part(batch: Any, data: Any) -> Tensor:
    r"""Asserts that the batch agrees with the full graph :obj:`data`, and returns the ids of its
    seeds in the graph.

    No node may occur twice. Attributes of nodes and edges must equal those of the graph, each edge
    must exist there, and seeds must come first."""
    if 'n_id' not in batch or 'e_id' not in batch:
        raise AssertionError(f"a batch lacks 'n_id' or 'e_id' (got {batch})")
    if batch.n_id.unique().numel() != batch.n_id.numel():
        raise AssertionError('a node is in a batch twice')
    for name, ids in (
        ('x', batch.n_id),
        ('degree', batch.n_id),
        ('edge_attr', batch.e_id),
        ('edge_jaccard', batch.e_id),
    ):
        assert_close(
            batch[name],
            data[name][ids],
            rtol=0,
            atol=0,
            msg=lambda text, name=name: f"{name!r} is not the full graph's: {text}",
        )
    edges = batch.n_id[batch.edge_index]
    assert_close(
        edges,
        data.edge_index[:, batch.e_id],
        msg=lambda text: f'an edge of a batch is not that of the graph: {text}',
    )
    seeds = _seeds(batch)
    if 'input_id' in batch:
        assert_close(
            seeds, batch.input_id, msg=lambda text: f'the seeds are not the first nodes: {text}'
        )
    return seeds


def _check_epoch(loader: Iterable[Any], data: Data) -> None:
    seeds = torch.cat([_check_part(batch, data) for batch in loader])
    num_nodes = data.num_nodes or 0
    assert_close(
        seeds.sort().values,
        torch.arange(num_nodes),
        msg=lambda text: f'not each node comes up once as a seed: {text}',
    )


def _check_processes(make: MakeLoader, data: Data) -> None:
    r"""Asserts that an epoch of a loader with one worker process agrees with the graph, and so does
    a later epoch in the parent process.

    Sharing a tensor with another process moves the tensor's memory: a NumPy array of that memory is
    invalid afterwards."""
    in_parent = make(data, shuffle=False, num_workers=0, multiprocessing_context=None)
    for method in ('spawn', 'forkserver'):
        if method in multiprocessing.get_all_start_methods():
            with promise(f'an epoch with a worker by {method!r}', names_failures=True):
                _check_epoch(
                    make(data, shuffle=True, num_workers=1, multiprocessing_context=method), data
                )
                _check_epoch(in_parent, data)


def _check_seeds(make: MakeLoader, data: Data) -> None:
    epochs = []
    for seed in (0, 0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            batches = [*make(data, shuffle=True, num_workers=0, multiprocessing_context=None)]
        epochs.append(
            [torch.cat([batch[name] for batch in batches]).tolist() for name in ('n_id', 'e_id')]
        )
    if epochs[0] != epochs[1]:
        raise AssertionError('one seed makes two epochs')
    if epochs[0] == epochs[2]:
        raise AssertionError('two seeds make one epoch')


def _check_adjacency(make: MakeLoader, data: Any) -> None:
    r"""Asserts that a loader of a graph with an :obj:`adj_t` returns the right edge attributes and
    ids, or raises a ValueError that names the argument.

    An edge is identified by its source and target, so that the order of the edges in a batch does
    not matter."""
    num_nodes = data.num_nodes or 0
    order = data.edge_index[1].argsort(stable=True)  # the sources are sorted
    source, target = data.edge_index[:, order]
    ones = torch.ones(order.numel())
    formats: dict[str, Any] = {
        'a CSR tensor': torch.sparse_coo_tensor(
            torch.stack([target, source]), ones, (num_nodes, num_nodes)
        ).to_sparse_csr(),
        'a CSC tensor': torch.sparse_coo_tensor(
            torch.stack([target, source]), ones, (num_nodes, num_nodes)
        ).to_sparse_csc(),
    }
    if torch_geometric.typing.WITH_TORCH_SPARSE:
        formats['a SparseTensor'] = SparseTensor(
            row=target, col=source, sparse_sizes=(num_nodes, num_nodes)
        )
    expected = torch.zeros(num_nodes, num_nodes)
    for name, adj_t in formats.items():
        graph = Data(
            x=data.x,
            edge_attr=data.edge_attr[order],
            edge_jaccard=data.edge_jaccard[order],
            adj_t=adj_t,
        )
        try:
            batches = [*make(graph, shuffle=False, num_workers=0, multiprocessing_context=None)]
        except Exception as error:
            if isinstance(error, ValueError) and (
                "'adj_t'" in str(error) or "'edge_index'" in str(error)
            ):
                continue
            raise AssertionError(
                f"{name} as 'adj_t' ends in {error!r}, no ValueError that names it"
            ) from error
        for batch in batches:
            target_ids, source_ids, _ = cast(tuple, sparse_entries(batch.adj_t))
            ends = batch.n_id[torch.stack([source_ids, target_ids])]
            for attribute in ('edge_attr', 'edge_jaccard'):
                expected[source, target] = graph[attribute].flatten().float()
                if not torch.equal(batch[attribute].flatten().float(), expected[tuple(ends)]):
                    raise AssertionError(
                        f"{attribute!r} of a batch is another edge's where 'adj_t' is {name}"
                    )
            if not torch.equal(torch.stack([source, target])[:, batch.e_id], ends):
                raise AssertionError(f"'e_id' of a batch names other edges where 'adj_t' is {name}")
