import csv
import sys

import pytest
import torch

from benchmarks.runtime import small_graphs


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    """Takes seconds for each case; the cases of compiled layers are tested elsewhere."""
    monkeypatch.setattr(torch, 'compile', lambda layer, **_: layer)


@pytest.mark.parametrize('case', small_graphs.CASES)
def test_methods_have_one_shape_and_gradients(case):
    methods = small_graphs.CASES[case]()
    outputs = {name: forward() for name, forward in methods.items()}
    assert len({out.shape for out in outputs.values()}) == 1
    for name, out in outputs.items():
        out.sum().backward()
        assert torch.isfinite(out).all(), name


def test_from_the_measurement_to_the_table(monkeypatch, tmp_path, constants):
    constants(small_graph_calls=1, small_graph_warm_calls=1)
    monkeypatch.setattr(small_graphs, 'fresh', lambda _, work: small_graphs.work(**work))
    place = ['--cases', 'molecules', '--output', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['x', *place, '--rounds', '2'])
    small_graphs.main()
    path = tmp_path / 'runtime' / 'small-graphs.csv'
    rows = list(csv.DictReader(path.read_text().splitlines()))
    methods = ['ours', 'ours compiled', 'pyg multihead', 'pyg performer']
    assert [row['method'] for row in rows] == methods
    assert rows[2]['forward / peer'] == rows[2]['forward and backward / peer'] == '1.00'

    path.unlink()
    monkeypatch.delattr(small_graphs, 'fresh')
    monkeypatch.setattr(sys, 'argv', ['x', *place, '--table'])
    small_graphs.main()
    assert list(csv.DictReader(path.read_text().splitlines())) == rows
