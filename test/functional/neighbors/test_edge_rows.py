import pytest
import torch

from torch_geometric_lgt.functional.neighbors import edge_rows
from torch_geometric_lgt.functional.neighbors.edge_rows import rows_of
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.nn import DIFFormer, LiteGT, NodeFormer, SGFormer


@pytest.mark.parametrize(
    ('target', 'order'),
    [([], None), ([1], None), ([0, 1, 1, 3], None), ([1, 0], [1, 0]), ([2, 0, 2], [1, 0, 2])],
)
def test_rows_sort_only_what_is_not_sorted(target, order):
    source = torch.arange(10, 10 + len(target))
    actual = rows_of(torch.stack([source, torch.tensor(target, dtype=torch.long)]), 4)
    assert actual.pointer.tolist() == [sum(node < end for node in target) for end in range(5)]
    assert (None if actual.order is None else actual.order.tolist()) == order
    assert actual.source.tolist() == (source if order is None else source[order]).tolist()


@pytest.mark.parametrize('name', ['DIFFormer', 'NodeFormer', 'SGFormer', 'LiteGT'])
def test_models_sort_edges_once_or_not_at_all(name, monkeypatch):
    """Forward and backward over three layers look at both directions of a plain list once, an
    evaluation at one; a sorted graph is not looked at."""
    model = {
        'DIFFormer': lambda: DIFFormer(4, 8, 3, num_layers=3),
        'NodeFormer': lambda: NodeFormer(4, 8, 3, num_layers=3),
        'SGFormer': lambda: SGFormer(4, 8, 3, gnn_num_layers=3),
        'LiteGT': lambda: LiteGT(4, 8, 3, num_layers=3, heads=2, kernel='softmax'),
    }[name]().eval()
    x, calls, plain = torch.randn(9, 4), [], torch.randint(9, (2, 40))
    monkeypatch.setattr(
        edge_rows, 'rows_of', lambda edge_index, num: calls.append(1) or rows_of(edge_index, num)
    )
    expected = model(x, plain)
    expected.sum().backward()
    assert len(calls) == 2
    if name != 'NodeFormer':
        calls.clear()
        with torch.no_grad():
            model(x, plain)
        assert len(calls) == 1
    ready = model.hops(plain, 9) if name == 'NodeFormer' else sorted_edges(plain, 9, 9)
    calls.clear()
    out = model(x, ready)
    out.sum().backward()
    assert calls == []
    torch.testing.assert_close(out, expected)


def test_traced_edges_are_sorted_whether_they_are_or_not(monkeypatch):
    """What torch.compile traces does not hang on the edges' order; otherwise edges that are sorted
    have no other order."""
    edges = torch.tensor([[0, 2, 1], [0, 1, 1]])
    assert sorted_edges(edges, 3, 2).orders()[2] is None
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    assert sorted_edges(edges, 3, 2).orders()[2].tolist() == [0, 1, 2]


def test_captured_edges_are_sorted_without_being_read(monkeypatch):
    """A CUDA graph cannot be captured where the processor waits for a value of the device."""
    for name in ('is_initialized', 'is_current_stream_capturing'):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    monkeypatch.setattr(torch.Tensor, '__bool__', lambda _: pytest.fail('a value is read'))
    rows = rows_of(torch.tensor([[0, 2, 1], [0, 1, 1]]), 2)
    assert [part.tolist() for part in rows] == [[0, 1, 3], [0, 2, 1], [0, 1, 2]]
