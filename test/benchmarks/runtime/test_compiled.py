from functools import partial

import pytest
import torch

from benchmarks.runtime import compiled


@pytest.mark.parametrize('case', compiled.CASES)
def test_one_graph_for_all_sizes(case, monkeypatch, constants):
    constants(compiled_nodes=600, compiled_other_nodes=(450, 700))
    monkeypatch.setattr(torch, 'compile', partial(torch.compile, backend='eager'))
    metrics = compiled.work(case, 1)
    assert metrics['graph_breaks'] == [0.0]
    assert metrics['recompilations'] == [0.0]
    assert len(metrics['eager']) == len(metrics['compiled']) == len(metrics['first']) == 1


def test_table(tmp_path, monkeypatch, capsys):
    metrics = {
        'eager': [0.2, 0.4],
        'compiled': [0.3, 0.1],
        'first': [20.0],
        'graph_breaks': [0.0],
        'recompilations': [0.0],
    }
    monkeypatch.setattr(compiled, 'fresh', lambda module, work: metrics)
    monkeypatch.setattr(
        'sys.argv', ['x', '--cases', 'MGFormer', 'SGFormer', '--output', str(tmp_path)]
    )
    compiled.main()
    *_, first, second, _ = capsys.readouterr().out.splitlines()
    assert first == '| SGFormer | 0 | 0 | 20.0 | 300 | 200 | 0.67 | 0.50 |'
    assert second == '| MGFormer | 0 |  | 20.0 | 300 | 200 | 0.67 | 0.50 |'
