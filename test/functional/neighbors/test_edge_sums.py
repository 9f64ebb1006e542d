import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch

from torch_geometric_lgt.functional.neighbors.edge_rows import Rows
from torch_geometric_lgt.functional.neighbors.edge_sums import (
    distance_grads,
    distances,
    hide_csr_warning,
    sums,
)


def test_matrices_of_edges_warn_of_nothing(monkeypatch):
    """Torch warns of their format, once for each process, and of checks that nobody asked for;
    other warnings reach the user."""
    make = torch.sparse_csr_tensor
    hide_csr_warning()  # torch warns once, but not of what it warned of always

    def making(*args, **kwargs):
        warnings.warn('of another kind', UserWarning, stacklevel=2)
        return make(*args, **kwargs)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        hide_csr_warning.cache_clear()
        torch.set_warn_always(True)  # as if no matrix of this process had been warned of
        try:
            hide_csr_warning()
        finally:
            torch.set_warn_always(False)
        monkeypatch.setattr(torch, 'sparse_csr_tensor', making)
        rows = Rows(torch.tensor([0, 2]), torch.tensor([0, 1]), None)
        out = sums(torch.ones(2, 1), rows, torch.ones(2, 1))
    assert out.tolist() == [[2]]
    assert [str(warning.message) for warning in caught] == ['of another kind']


def test_warnings_of_others_are_shown_as_often_as_without_sums():
    """Each call caught warnings, after which Python shows again what it has shown."""
    rows = Rows(torch.tensor([0, 2]), torch.tensor([0, 1]), None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('default')
        for _ in range(3):
            sums(torch.ones(2, 1), rows, torch.ones(2, 1))
            warnings.warn('once for each place', UserWarning, stacklevel=1)
    assert len(caught) == 1


def test_threads_leave_the_filters_of_warnings():
    rows = Rows(torch.tensor([0, 2]), torch.tensor([0, 1]), None)
    x, weight, interval = torch.ones(2, 1), torch.ones(2, 1), sys.getswitchinterval()
    sums(x, rows, weight)
    with warnings.catch_warnings():
        before = list(warnings.filters)
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: sums(x, rows, weight), range(1000)))
        finally:
            sys.setswitchinterval(interval)
        assert list(warnings.filters) == before


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
