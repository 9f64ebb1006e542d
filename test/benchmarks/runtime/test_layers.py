import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.runtime import layers
from benchmarks.runtime.cases import CASES, Case
from benchmarks.runtime.roofline import PROBE, Operand, matrix_products, replay
from benchmarks.runtime.scaling import slope

CONFIG = {
    'num_nodes': 300,
    'channels': 16,
    'num_features': 8,
    'heads': 2,
    'repeats': 2,
    'device': 'cpu',
}


@pytest.mark.parametrize('case', CASES)
def test_peers_compute_what_the_layers_compute(case, monkeypatch):
    layers.check(case, CONFIG)
    monkeypatch.setitem(layers.CASES, case, Case(lambda x, config: (lambda: x, lambda: x + 1)))
    with pytest.raises(
        RuntimeError, match=f'the peer of {case} differs from what it should compute by'
    ):
        layers.check(case, CONFIG)


@pytest.mark.parametrize('case', CASES)
def test_times_and_memory_of_each_method(case, monkeypatch):
    monkeypatch.setattr(layers, 'limit_memory', lambda gib: None)
    for method in layers.METHODS:
        metrics = layers.work(case, method, CONFIG)
        assert len(metrics['forward_backward']) == 2
        assert method == 'products' or metrics.keys() == {
            'peak_memory_mib',
            'forward',
            'forward_backward',
        }


def test_a_method_that_does_not_fit_has_no_figures(monkeypatch):
    def too_large(x, config):
        if x.size(0) == 1000:
            return lambda: x, lambda: x
        return lambda: x, lambda: torch.empty(1 << 50)

    monkeypatch.setattr(layers, 'limit_memory', lambda gib: None)
    monkeypatch.setitem(layers.CASES, 'large', Case(too_large))
    assert layers.work('large', 'formula', CONFIG) == {}


def test_a_layer_that_does_not_fit_has_no_result(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(layers, 'check', lambda case, config: None)
    monkeypatch.setattr(layers, 'fresh', lambda module, work, limit: {})
    with layers.tqdm(total=6) as bar:
        layers.measure('sgformer', 2, CONFIG, bar, tmp_path)
    assert (
        'sgformer at 300 nodes has no result: our layer took more than 16 GiB or 300 s\n'
        in capsys.readouterr().err
    )
    assert [*tmp_path.iterdir()] == []


def test_bare_products_are_those_of_the_peer_at_full_size():
    """One linear map forward, and the gradients of its input and of its weight backward."""
    x, weight = torch.randn(PROBE, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    metrics = matrix_products(lambda: x @ weight.t())
    of_input = (Operand((PROBE, 3), False), Operand((3, 4), False))
    assert metrics[0] == (Operand((PROBE, 4), False), Operand((4, 3), True))
    assert of_input in metrics
    assert sorted(a.shape[0] * a.shape[1] * b.shape[1] for a, b in metrics) == [PROBE * 12] * 3
    with FlopCounterMode(display=False) as counter:
        replay(metrics, 2 * PROBE, 4)()
    assert counter.get_total_flops() == 3 * 2 * 2 * PROBE * 12
    metrics = matrix_products(lambda: x[None] @ x[None].mT)
    with FlopCounterMode(display=False) as counter:
        replay(metrics, 3, 4)()
    assert counter.get_total_flops() == 3 * 2 * 3 * 3 * 4


def test_table_of_results(tmp_path):
    summary = {'median': 0.2, 'min': 0.1}
    metrics = {
        f'ours_{name}': summary for name in ('forward_backward', 'forward', 'peak_memory_mib')
    }
    (tmp_path / 'runtime').mkdir()
    for number, peer in enumerate((metrics, {})):
        record = {
            **dict.fromkeys(('dataset', 'variant', 'protocol', 'command'), ''),
            'model': 'sgformer',
            'seeds': [0],
            'config': {'heads': 1, 'channels': 64, 'num_nodes': 1000 + number},
            'metrics': metrics,
        }
        record['metrics'] = metrics | {
            name.replace('ours', 'formula'): {'median': 0.4, 'min': 0.1} for name in peer
        }
        (tmp_path / 'runtime' / f'{number}.json').write_text(json.dumps(record))
    actual = layers.records(tmp_path / 'runtime')
    measured, not_measured = (list(layers.row(record).values()) for record in actual)
    assert measured == [
        'sgformer',
        '1',
        '64',
        'cpu',
        '1,000',
        '200',
        '0',
        '400',
        '0',
        '0.50',
        '1.00',
        '0.50',
        '0.500',
        '',
    ]
    assert not_measured == [
        'sgformer',
        '1',
        '64',
        'cpu',
        '1,001',
        '200',
        '0',
        'more than 16 GiB or 300 s',
        *[''] * 6,
    ]
    picture = layers.figure(actual)
    assert [axis.get_title() for axis in picture.axes] == ['SGFormer, row norms', '']
    lines = {line.get_label(): line.get_xydata().tolist() for line in picture.axes[0].lines}
    assert lines == {'slope 0.00': [[1000, 0.2], [1001, 0.2]], 'slope unknown': [[1000, 0.4]]}
    (legend,) = picture.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *('this package', 'the other program')
    ]
    assert layers.figure(actual[:1]) is None
    title = "SGFormer, row norms beside PyG's layer,\n1,000 nodes"
    assert layers.comparisons(actual) == {
        'forward_backward': [(title, 0.2, 0.4)],
        'peak_memory_mib': [(title, 0.2, 0.4)],
    }
    layers.save_pictures(actual, tmp_path)
    assert sorted(path.name for path in tmp_path.glob('*.png')) == [
        'layers-growth.png',
        'layers-memory.png',
        'layers-time.png',
    ]
    assert slope({10: 0.0, 20: 3.0}) == ''
