import re

import pytest
import torch

from torch_geometric_lgt.functional.segment import (
    check_pair,
    iterate_groups,
    node_to_graph,
    segments,
)


@pytest.mark.parametrize('rows', [1, 3, 8, 100])
@pytest.mark.parametrize('max_graphs', [1, 2, 50])
def test_groups_visit_each_node_once_beside_its_graph(rows, max_graphs):
    batch = torch.tensor([4, 0, 4, 4, 7, 0, 2, 2, 4, 7, 4, 3])
    nodes = segments(batch, 12, 9)
    seen = []
    for group in iterate_groups(rows, max_graphs, [12], nodes):
        assert group.graphs.numel() <= max_graphs
        for chunk in group.chunks[0]:
            ids = torch.arange(12)[chunk]
            assert ids.numel() <= max(rows, 1)
            assert torch.equal(
                batch[ids].view(group.graphs.numel(), -1),
                group.graphs[:, None].expand(-1, ids.numel() // group.graphs.numel()),
            )
            seen += ids.tolist()
    assert sorted(seen) == list(range(12))


def test_groups_of_many_small_graphs_beside_a_large_one_stay_few():
    nodes = segments(
        torch.cat([torch.arange(10_000).repeat_interleave(10), torch.full((100_000,), 10_000)]),
        200_000,
    )
    walked = list(iterate_groups(1000, 100, [200_000], nodes))
    assert len(walked) == 101
    assert sum(len(group.chunks[0]) for group in walked) == 200


def test_two_axes_are_walked_together():
    sources = segments(torch.tensor([0, 0, 2]), 3, 3)
    targets = segments(torch.tensor([1, 2, 2]), 3, 3)
    walked = {
        int(group.graphs[0]): group.chunks
        for group in iterate_groups(10, 1, [3, 3], sources, targets)
    }
    assert set(walked) == {0, 1, 2}
    assert walked[0][1] == []
    assert walked[1][0] == []
    assert walked[2] == ([slice(2, 3)], [slice(1, 3)])


def test_neighbouring_graphs_of_one_size_are_one_slice():
    """Rows that lie together are not gathered."""
    (walked,) = iterate_groups(10, 10, [6], segments(torch.tensor([1, 1, 2, 2, 3, 3]), 6, 5))
    assert walked.graphs.tolist() == [1, 2, 3]
    assert walked.chunks == ([slice(0, 6)],)
    small, large = iterate_groups(
        10, 10, [10], segments(torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 3, 3]), 10)
    )
    assert small.chunks == ([slice(3, 7)],)
    assert large.chunks[0][0].tolist() == [0, 1, 2, 7, 8, 9]
    assert [
        group.chunks
        for group in iterate_groups(4, 10, [6], segments(torch.tensor([0, 0, 1, 1, 2, 2]), 6))
    ] == [
        ([slice(0, 4)],),
        ([slice(4, 6)],),
    ]


def test_node_to_graph_inverts():
    batch = torch.tensor([2, 0, 2, 5, 0])
    nodes = segments(batch, 5, 7)
    assert torch.equal(nodes.sizes, torch.tensor([2, 0, 2, 0, 0, 1, 0]))
    assert torch.equal(node_to_graph(nodes, 5), batch)
    assert segments(batch.sort()[0], 5).order is None


def test_one_graph_without_a_batch_vector():
    for size in (None, 1):
        sizes, order = segments(None, 5, size)
        torch.testing.assert_close(sizes, torch.tensor([5]))
        assert order is None
    assert segments(None, 5, device=torch.device('meta')).sizes.device.type == 'meta'


@pytest.mark.parametrize(
    ('batch', 'size', 'sizes', 'order'),
    [
        ([], None, [], None),
        ([], 3, [0, 0, 0], None),
        ([2], None, [0, 0, 1], None),
        ([0, 0], None, [2], None),
        ([1, 0], None, [1, 1], [1, 0]),
        ([1, 0, 1, 0], 2, [2, 2], [1, 3, 0, 2]),
    ],
)
def test_sizes_and_order_of_few_nodes(batch, size, sizes, order):
    actual = segments(torch.tensor(batch, dtype=torch.long), len(batch), size)
    assert actual.sizes.tolist() == sizes
    assert actual.sizes.dtype == torch.long
    assert (None if actual.order is None else actual.order.tolist()) == order


def test_equal_ids_keep_the_order_of_the_nodes():
    batch = torch.randint(3, (1000,))
    order = segments(batch, 1000).order
    assert torch.equal(
        order, torch.cat([(batch == graph).nonzero().flatten() for graph in range(3)])
    )
    # graphs of one node each
    walked = iterate_groups(100, 1000, [1000], segments(torch.arange(1000).flip(0), 1000))
    assert torch.equal(torch.cat([group.graphs for group in walked]), torch.arange(1000))


def test_batches_are_not_captured(monkeypatch):
    for name in ('is_initialized', 'is_current_stream_capturing'):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    assert len(list(iterate_groups(10, 10, [4], segments(None, 4)))) == 1
    message = (
        "^a CUDA graph cannot be captured with 'batch', whose graphs have unknown sizes: capture "
        'a step over one graph$'
    )
    with pytest.raises(RuntimeError, match=message):
        segments(torch.tensor([0, 0, 1, 1]), 4)


def test_compiled_segments_need_the_number_of_graphs(monkeypatch):
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    sizes, order = segments(torch.tensor([2, 0, 2, 0, 5]), 5, 7)
    torch.testing.assert_close(sizes, torch.tensor([2, 0, 2, 0, 0, 1, 0]))
    assert order.tolist() == [1, 3, 0, 2, 4]
    batch = torch.randint(3, (1000,))
    assert torch.equal(
        segments(batch, 1000, 3).order,
        torch.cat([(batch == graph).nonzero().flatten() for graph in range(3)]),
    )
    with pytest.raises(
        ValueError,
        match=(
            r"^'batch_size' is needed with 'batch' under torch.compile or torch.jit.trace; pass "
            r'the number of graphs$'
        ),
    ):
        segments(torch.tensor([0]), 1)


def test_one_id_above_the_number_of_graphs():
    with pytest.raises(ValueError, match="'batch' holds the graph id 5 but 'batch_size' is 2"):
        segments(torch.tensor([5]), 1, 2)


@pytest.mark.parametrize(
    ('batch', 'message'),
    [
        (torch.ones(3), '(got torch.float32); convert it with batch.long()'),
        (torch.ones(4), "(got torch.float32); give weights of edges as 'edge_weight'"),
        (torch.ones(4, 2), "(got torch.float32); give features of edges as 'edge_attr'"),
        (torch.ones(4, dtype=torch.int16), '(got torch.int16); convert it with batch.long()'),
    ],
)
def test_graph_ids_of_another_dtype(batch, message):
    message = f"'batch' must hold int64 graph ids {message}"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        segments(batch, 3)


@pytest.mark.parametrize('batch', [None, torch.tensor([0])])
def test_a_fractional_number_of_graphs(batch):
    with pytest.raises(ValueError, match=r"'batch_size' must be a whole number \(got 1.0\)"):
        segments(batch, 1, 1.0)


def test_a_negative_id_alone():
    with pytest.raises(ValueError, match=r'at least 0 \(got -1\)'):
        segments(torch.tensor([-1]), 1)


def test_a_batch_vector_on_another_device():
    batch = torch.zeros(2, dtype=torch.long)
    assert segments(batch, 2, device=torch.device('cpu')).sizes.tolist() == [2]
    with pytest.raises(
        ValueError, match=r"'batch' must be on the device of 'x' \(got cpu and meta\)"
    ):
        segments(batch, 2, device=torch.device('meta'))


@pytest.mark.parametrize(
    ('batch', 'size', 'message'),
    [
        (torch.tensor([0.0, 1.0]), None, "'batch' must hold int64"),
        (torch.tensor([0, 1, 1]), None, 'one graph id per node'),
        (torch.tensor([[0], [1]]), None, 'one graph id per node'),
        (torch.tensor([0, -1]), None, 'at least 0'),
        (
            torch.tensor([0, 3]),
            2,
            "'batch' holds the graph id 3 but 'batch_size' is 2; raise 'batch_size' to at least 4",
        ),
        (None, 2, "'batch_size' must be 1"),
    ],
)
def test_segments_raises(batch, size, message):
    with pytest.raises(ValueError, match=message):
        segments(batch, 2, size)


def test_what_is_no_batch_is_named():
    message = "'batch' must be a tensor of graph ids, or a pair of them for a pair 'x' (got list)"
    with pytest.raises(TypeError, match=f'^{re.escape(message)}$'):
        segments([0], 1)
    message = "'batch' must be one vector, or a pair of sources and targets (got 1 vectors)"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        check_pair((None,))


@pytest.mark.parametrize(
    ('shape', 'hint'), [((2, 5), "; give edges as 'edge_index'"), ((3, 5), ''), ((2,), '')]
)
def test_a_batch_vector_of_another_shape(shape, hint):
    message = f"'batch' must hold one graph id per node (got shape {shape} for 5 nodes){hint}"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        segments(torch.zeros(shape, dtype=torch.long), 5)
