import csv
import sys

import pytest
import torch

from benchmarks.runtime import ranking


def same(score, wanted, seen, at_once):
    scores = score(torch.arange(12))
    scores[tuple(seen[torch.arange(12)])] = -torch.inf
    top = scores.topk(20).indices
    hit = torch.zeros(12, 30)
    hit[tuple(wanted[torch.arange(12)])] = 1
    hit, gain = torch.gather(hit, 1, top), 1 / torch.arange(2, 22).log2()
    return {
        'recall@20': float(hit.sum(1).mean() / 2),
        'ndcg@20': float(((hit * gain).sum(1) / gain[:2].sum()).mean()),
    }


def test_from_a_data_set_to_the_table(root, monkeypatch, tmp_path):
    sizes = []
    monkeypatch.setattr(
        ranking, 'recbole', lambda *arguments: sizes.append(arguments[3]) or same(*arguments)
    )
    monkeypatch.setattr(
        sys,
        'argv',
        [
            'x',
            '--root',
            root,
            '--datasets',
            'own',
            '--rounds',
            '2',
            '--output',
            str(tmp_path / 'results'),
        ],
    )
    ranking.main()
    assert set(sizes) == {4096 // 28, 1024}  # 28 of the items occur
    (row,) = csv.DictReader(
        (tmp_path / 'results' / 'runtime' / 'ranking.csv').read_text().splitlines()
    )
    assert row['data set'] == 'own'
    assert [name for name in row if 'RecBole' in name] == list(row)[2:]
    assert all(row.values())


def test_other_figures_are_refused(root, monkeypatch):
    monkeypatch.setattr(ranking, 'recbole', lambda *_: {'recall@20': 0.5, 'ndcg@20': 0.5})
    with pytest.raises(RuntimeError, match='the evaluations differ'):
        ranking.measure(root, 'own', 8, 1)
