import json

import pytest

from benchmarks.node_classification import plots
from benchmarks.node_classification import settings as node_classification_settings
from benchmarks.node_classification.models import (
    OURS,
)


def test_a_study_with_its_picture(write_graph, run, monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    monkeypatch.setitem(node_classification_settings.COMMON, 'epochs', 3)
    run(monkeypatch, tmp_path, '--model', 'sgformer', '--seeds', '0')
    run(monkeypatch, tmp_path, '--model', 'sgformer', '--seeds', '0', '--study', 'depth')
    folder = tmp_path / 'node_classification'
    records = [json.loads(path.read_text()) for path in folder.glob('*.json')]
    assert sorted(record['config']['options'].get('num_layers', 1) for record in records) == [
        1,
        2,
        3,
    ]
    line = plots.lines('sgformer', records)
    assert [value for value, _ in line['num_layers']] == [1, 2, 3]
    assert (folder / 'sgformer-toy-sweeps.png').read_bytes().startswith(b'\x89PNG')
    tables = [
        (folder / f'{name}.csv').read_text().splitlines()[1:] for name in ('accuracy', 'variants')
    ]
    assert [sorted(line.split(',')[2] for line in table) for table in tables] == [
        ['sgformer'],
        ['sgformer (num_layers-2)', 'sgformer (num_layers-3)'],
    ]


@pytest.mark.parametrize('model', OURS)
def test_pictures_of_the_attention(write_graph, run, model, monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    run(
        monkeypatch,
        tmp_path,
        '--model',
        model,
        '--seeds',
        '0',
        '--pictures',
        '--variant',
        'short',
        '--set',
        'epochs=2',
    )
    name = f'{model}-toy-random-60-20-20-short'
    ends = ('attention.csv', 'attention.png', 'structure.csv', 'structure.png')
    assert sorted(path.name for path in (tmp_path / 'node_classification').glob(f'{name}-*')) == [
        f'{name}-{end}' for end in ends
    ]
    layers = (tmp_path / 'node_classification' / f'{name}-attention.csv').read_text().splitlines()
    assert len(layers) == 1 + (1 if model in ('sgformer', 'graphtransformer') else 2)
