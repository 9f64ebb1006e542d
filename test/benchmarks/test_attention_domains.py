import csv
import json
import sys

import pytest
import torch
from torch_geometric.data import Data

from benchmarks import attention_domains
from benchmarks.large_graphs.settings import DOMAINS


def test_one_result_for_each_domain(monkeypatch, constants, tmp_path, capsys):
    edges = torch.randint(60, (2, 200))
    data = Data(
        x=torch.randn(60, 5),
        edge_index=torch.cat([edges, edges.flip(0)], 1),
        y=torch.arange(60) % 3,
    )
    monkeypatch.setattr(attention_domains, 'load', lambda *_: data.clone())
    constants(checkpoints=tmp_path / 'checkpoints')
    argv = [
        'x',
        '--dataset',
        'toy.npz',
        '--model',
        'sgformer',
        '--batch-size',
        '12',
        '--epochs',
        '2',
        '--seeds',
        '0',
        '1',
    ]
    argv += ['--output', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', argv)
    attention_domains.main()
    rows = list(csv.DictReader((tmp_path / 'domains' / 'domains.csv').read_text().splitlines()))
    assert [row['attention in training over'] for row in rows] == [*DOMAINS.values()]
    assert (tmp_path / 'domains' / 'domains.md').read_text() in capsys.readouterr().out
    configs = {
        path: json.loads(path.read_text())['config']
        for path in (tmp_path / 'domains').glob('*.json')
    }
    assert {config['domain']: config['epochs'] for config in configs.values()} == {
        'graph': 6,
        'partition': 2,
        'training': 2,
        'batch': 2,
        'memory': 2,
    }


def test_steps_between_two_updates_are_no_negative_number(monkeypatch, capsys):
    """They counted as positive ones, and the result had the negative one."""
    monkeypatch.setattr(sys, 'argv', ['x', '--refresh', '-4'])
    with pytest.raises(SystemExit):
        attention_domains.main()
    message = "argument --refresh: '-4' must be an integer of at least 0"
    assert message in capsys.readouterr().err
