import json

import pytest
import torch

from benchmarks.runtime import models
from benchmarks.runtime.scaling import slope
from torch_geometric_lgt.convert import from_pyg_sgformer


@pytest.mark.parametrize('model', models.MODELS)
def test_a_step_of_each_model(model):
    metrics = models.work(model, 300, 'cpu')
    assert metrics.keys() == {'seconds', 'peak_memory_mib'}
    assert metrics['seconds'][0] > 0


def test_the_model_as_pyg_computes_what_pyg_computes():
    ours = models.sgformer_as_pyg(models.SIZES, 2, 0.0).eval()
    theirs = models.PyGSGFormer(*models.SIZES, **models.PYG)
    ours.load_state_dict(from_pyg_sgformer(theirs.eval().state_dict()))
    data = models.graph(50)
    expected = theirs(data.x, data.edge_index, torch.zeros(50, dtype=torch.long))
    torch.testing.assert_close(ours(data.x, data.edge_index).log_softmax(1), expected)


def test_a_model_that_takes_too_long_is_not_run_again(tmp_path, monkeypatch):
    calls = []

    def fresh(module, work, limit):
        calls.append((work['model'], work['num_nodes']))
        late = work['model'] == 'quadratic' and work['num_nodes'] == 20
        return (
            {}
            if late
            else {'seconds': [work['num_nodes'] / 10], 'peak_memory_mib': [work['num_nodes'] ** 2]}
        )

    (tmp_path / 'runtime').mkdir()
    monkeypatch.setattr(models, 'fresh', fresh)
    models.measure(['quadratic', 'sgformer'], [5, 10, 20, 40], 2, 'cpu', tmp_path)
    models.measure(['sgformer'], [5], 1, 'cuda', tmp_path)
    assert calls.count(('sgformer', 40)) == 2
    assert calls.count(('quadratic', 20)) == 1
    assert ('quadratic', 40) not in calls
    metrics = models.records(tmp_path / 'runtime')
    assert list(metrics) == ['sgformer', 'quadratic', 'sgformer-cuda']
    assert models.curve(metrics['quadratic'], 'seconds') == {5: 0.5, 10: 1.0}
    fast, slow, _ = models.table(metrics)
    assert fast == {
        'model': 'sgformer',
        **{str(n): f'{n / 10:.3g} s, {n**2} MiB' for n in (5, 10, 20, 40)},
        'slope of time': '1.00',
        'slope of memory': '2.00',
    }
    assert slow['20'] == ''
    assert len(models.figure(metrics).axes) == 2
    assert slope({10: 1.0}) == ''
    assert (
        json.loads((tmp_path / 'runtime' / 'models-random-quadratic.json').read_text())['config'][
            'rounds'
        ]
        == 2
    )
