import csv
import json
import sys
from itertools import product

import pytest
import torch

from benchmarks.runtime import ogb_shapes, out_of_core, sampled_training
from torch_geometric_lgt.convert import from_pyg_sgformer


def test_out_of_core(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(out_of_core, 'fresh', lambda _, work: out_of_core.work(**work))
    monkeypatch.setattr(
        sys,
        'argv',
        [
            'x',
            '--nodes',
            '500',
            '1000',
            '--folder',
            str(tmp_path / 'scratch'),
            '--output',
            str(tmp_path),
        ],
    )
    out_of_core.main()
    rows = list(csv.DictReader((tmp_path / 'runtime' / 'out-of-core.csv').read_text().splitlines()))
    assert [row['step'] for row in rows] == ['write', 'epoch of training', 'inference'] * 3
    assert [row['nodes'] for row in rows[::3]] == ['500', '1,000', '111,059,956 (estimated)']
    assert list((tmp_path / 'scratch').iterdir()) == []
    record = json.loads((tmp_path / 'runtime' / 'out-of-core-1000.json').read_text())
    assert record['config']['edges'] == 15_000


def test_sampled_training(monkeypatch, tmp_path, capsys):
    """More batches than an epoch has, with the settings of the script for ogbn-papers100M."""
    monkeypatch.setattr(sampled_training, 'fresh', lambda _, work: sampled_training.work(**work))
    monkeypatch.setitem(sampled_training.PAPERS100M['sgformer'], 'hidden_channels', 8)
    options = ['--nodes', '500', '--batches', '3', '--folder', str(tmp_path / 'scratch')]
    monkeypatch.setattr(sys, 'argv', ['x', *options, '--output', str(tmp_path)])
    sampled_training.main()
    path = tmp_path / 'runtime' / 'sampled-training.csv'
    (row,) = csv.DictReader(path.read_text().splitlines())
    assert (row['nodes'], row['model']) == ('500', 'sgformer')
    assert (row['batches measured'], row['batches of an epoch']) == ('3', '1')
    assert list((tmp_path / 'scratch').iterdir()) == []
    record = json.loads((tmp_path / 'runtime' / 'sampled-training-500-sgformer.json').read_text())
    seconds = record['metrics']['seconds']['values']
    assert len(seconds) == 3
    assert float(row['s / batch']) == pytest.approx(sum(seconds) / 3, abs=0.05)
    assert (record['config']['batch_size'], record['config']['fan_out']) == (1000, [15, 10, 5])
    assert max(record['metrics']['nodes']['values']) <= 500


def test_estimate_goes_on_with_the_slope(tmp_path, constants):
    (tmp_path / 'runtime').mkdir()
    for nodes, value in ((10, 2.0), (100, 200.0)):
        metrics = {
            f'{step}_{name}': {'median': value}
            for step in out_of_core.STEPS
            for name in ('seconds', 'gib', 'with_mapped_gib')
        }
        (tmp_path / 'runtime' / f'out-of-core-{nodes}.json').write_text(
            json.dumps(
                {
                    **dict.fromkeys(('dataset', 'model', 'variant', 'protocol', 'command'), ''),
                    'seeds': [0],
                    'config': {'nodes': nodes},
                    'metrics': metrics,
                }
            )
        )
    constants(out_of_core_nodes=1000)
    last = out_of_core.rows(tmp_path / 'runtime')[-1]
    assert (last['seconds'], last['GiB'], last['seconds grow as N to the']) == (
        '20000',
        '20000.00',
        '2.00',
    )


@pytest.mark.parametrize(
    ('shape', 'model'),
    [
        (shape, model)
        for shape, model in product(ogb_shapes.SHAPES, ogb_shapes.OPTIONS)
        if shape == 'arxiv' or model not in ogb_shapes.WHOLE
    ],
)
def test_ogb_shapes(shape, model, monkeypatch, tmp_path, constants):
    small = ogb_shapes.SHAPES[shape]._replace(nodes=50, edges=200)
    constants(ogb_shapes={shape: small})
    monkeypatch.setattr(ogb_shapes, 'fresh', lambda _, work: ogb_shapes.work(**work))
    monkeypatch.setattr(
        sys, 'argv', ['x', '--shapes', shape, '--models', model, '--output', str(tmp_path)]
    )
    ogb_shapes.main()
    (row,) = csv.DictReader((tmp_path / 'runtime' / 'ogb-shapes.csv').read_text().splitlines())
    assert (row['shape of'], row['model']) == (f'ogbn-{shape}', model)
    assert float(row['GiB']) > 0


def test_models_of_whole_graphs_are_refused_for_parts(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['x', '--models', 'sgformer', 'pyg-sgformer'])
    with pytest.raises(SystemExit):
        ogb_shapes.main()
    assert 'train on whole graphs: give --shapes without proteins' in capsys.readouterr().err


def test_our_model_computes_what_pyg_computes():
    torch.manual_seed(0)
    shape = ogb_shapes.SHAPES['arxiv']._replace(nodes=50, edges=200)
    data, config = ogb_shapes.task(shape), {'hidden_channels': 16}
    ours, theirs = (
        ogb_shapes.model_of(data, config | {'model': model}).eval()
        for model in ('sgformer-as-pyg', 'pyg-sgformer')
    )
    ours.load_state_dict(from_pyg_sgformer(theirs.state_dict()))
    arguments = data.data['x'], data.data.edge_index
    torch.testing.assert_close(ours(*arguments).log_softmax(1), theirs(*arguments))
