import pytest
import torch

from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors import edge_rows
from torch_geometric_lgt.functional.neighbors.edge_rows import EdgeOrders
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.functional.neighbors.subgraph import (
    Subgraph,
    expand_rows,
    linear_flops,
    linear_grads,
)


def test_half_precision_is_projected_in_single_and_expanded_in_half():
    """1 + 2 ** -9 is no bfloat16."""
    x, weight, bias = (
        torch.tensor(part).bfloat16() for part in ([[1, 2**-9]], [[1.0, 1.0]], [2**-12])
    )
    assert LinearInput(x=x, weight=weight, bias=bias).output().tolist() == [[1 + 2**-9 + 2**-12]]
    assert LinearInput(x=x, weight=weight).output().dtype == torch.float32
    back = expand_rows(torch.tensor([[3.0]]), torch.tensor([1]), x.new_empty(2, 0))
    assert (back.tolist(), back.dtype) == ([[0], [3]], torch.bfloat16)
    assert expand_rows(torch.ones(1, 1), None, x).dtype == torch.bfloat16


def test_gradients_of_values_without_a_weight_are_those_of_the_chosen_rows():
    x, nodes = torch.ones(3, 1), torch.tensor([2, 0])
    grads = linear_grads(torch.tensor([[5.0], [7.0]]), LinearInput(x=x[nodes]), nodes, x)
    assert {name: grad.tolist() for name, grad in grads.items()} == {'x': [[7], [0], [5]]}


def test_flops_of_rows_with_and_without_a_weight():
    x = torch.ones(5, 3)
    assert linear_flops(LinearInput(x=x), None) == 0
    weighted = LinearInput(x=x, weight=torch.ones(4, 3))
    assert linear_flops(weighted, None) == 2 * 5 * 4 * 3
    assert linear_flops(weighted, torch.tensor([0, 2])) == 2 * 2 * 4 * 3


@pytest.mark.parametrize('by_source', [False, True], ids=['by target', 'by source'])
def test_some_of_the_edges_that_are_sorted_are_sorted(by_source, monkeypatch):
    """Nothing is read to see it: on a GPU that would wait for the device."""
    edges = torch.tensor([[2, 4, 0, 1, 2, 3], [0, 0, 2, 3, 3, 4]])
    edges = edges.flip(0) if by_source else edges
    mask = torch.tensor([True, False, True, True, True])
    orders, part = sorted_edges(edges, 5, 5).orders(), Subgraph.into(edges, mask, 5)
    num = len(part.sources if by_source else part.targets)
    expected = part.rows(EdgeOrders(), num, by_source)
    monkeypatch.setattr(edge_rows, 'may_read_values', lambda: pytest.fail('edges are read'))
    actual = part.rows(orders, num, by_source)
    assert actual.order is None
    assert torch.equal(actual.pointer, expected.pointer)
    assert torch.equal(actual.source, expected.source)
