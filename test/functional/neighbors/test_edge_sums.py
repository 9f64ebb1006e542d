import warnings

import torch

from torch_geometric_lgt.functional.neighbors.edge_rows import Rows
from torch_geometric_lgt.functional.neighbors.edge_sums import distance_grads, distances, sums


def test_matrices_of_edges_warn_of_nothing(monkeypatch):
    """Torch warns of their format, once for each process, and of checks that nobody asked for;
    other warnings reach the user."""
    make = torch.sparse_csr_tensor

    def making(*args, **kwargs):
        warnings.warn('of another kind', UserWarning, stacklevel=2)
        return make(*args, **kwargs)

    monkeypatch.setattr(torch, 'sparse_csr_tensor', making)
    rows = Rows(torch.tensor([0, 2]), torch.tensor([0, 1]), None)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            out = sums(torch.ones(2, 1), rows, torch.ones(2, 1))
    finally:
        torch.set_warn_always(False)
    assert out.tolist() == [[2]]
    assert [str(warning.message) for warning in caught] == ['of another kind']


def test_distances_of_half_precision_are_summed_in_single():
    """4096 edges from one node: a sum in bfloat16 would stay at 256. The differences of 1 + 2 ** -7
    and 2 ** -9 are no bfloat16."""
    edges = torch.stack([torch.zeros(4096, dtype=torch.long), torch.arange(4096)])
    x, y = torch.ones(1, 2, dtype=torch.bfloat16), torch.zeros(4096, 2, dtype=torch.bfloat16)
    grad_x, grad_y = distance_grads(torch.ones(4096, 1), x, y, edges)
    assert grad_x.tolist() == [[4096, 4096]]
    assert (grad_x.dtype, grad_y.dtype) == (torch.bfloat16, torch.bfloat16)
    assert grad_y.unique().tolist() == [-1]
    one, other = torch.tensor([[1 + 2**-7]]).bfloat16(), torch.tensor([[2**-9]]).bfloat16()
    assert distances(one, other, torch.zeros(2, 1, dtype=torch.long), 1).tolist() == [
        [1 + 2**-7 - 2**-9]
    ]
