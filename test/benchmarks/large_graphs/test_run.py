import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch_geometric.utils import is_undirected

from benchmarks import pokec
from benchmarks.large_graphs.report import leaderboard_row
from benchmarks.large_graphs.settings import DOMAINS
from benchmarks.ogb import ogbn_arxiv, ogbn_papers100m, ogbn_products, ogbn_proteins

N, E = 60, 240


SCRIPTS = {
    'ogbn-arxiv': ogbn_arxiv,
    'ogbn-proteins': ogbn_proteins,
    'ogbn-products': ogbn_products,
    'ogbn-papers100M': ogbn_papers100m,
}


def run(monkeypatch, capsys, script, *argv):
    monkeypatch.setattr(sys, 'argv', ['x', *argv])
    script.main()
    path, row = capsys.readouterr().out.strip().splitlines()[-2:]
    return json.loads(Path(path).read_text()), row


@pytest.mark.parametrize('model', ['sgformer', 'nodeformer', 'difformer'])
@pytest.mark.parametrize('name', SCRIPTS)
def test_scripts_on_small_data_sets(save, name, model, ogb, monkeypatch, capsys, tmp_path):
    root, *_ = save(name)
    argv = [
        '--root',
        root,
        '--model',
        model,
        '--seeds',
        '0',
        '1',
        '--epochs',
        '2',
        '--variant',
        'short',
    ]
    argv += ['--mapped', str(tmp_path / 'mapped')] if 'papers' in name else []
    for _ in range(2):  # the second time all files are there
        record, row = run(monkeypatch, capsys, SCRIPTS[name], *argv)
    metric = 'rocauc' if 'proteins' in name else 'accuracy'
    assert (record['task'], record['dataset'], record['model'], record['variant']) == (
        'ogb',
        name,
        model,
        'short',
    )
    assert {metric, f'valid_{metric}', f'train_{metric}'} == set(record['metrics'])
    assert all(0 <= value <= 1 for value in record['metrics'][metric]['values'])
    cells = row.strip('| ').split(' | ')
    domain = record['config']['attention_over']
    assert cells[0] == f'{model}, variant short (attention over {domain})'
    assert (
        cells[1]
        == f'{record["metrics"][metric]["mean"]:.4f} ± {record["metrics"][metric]["std"]:.4f}'
    )
    assert cells[4] == '2 seeds'


@pytest.mark.parametrize('domain', DOMAINS)
def test_what_a_node_attends_to(save, domain, ogb, monkeypatch, capsys):
    root, *_ = save('ogbn-arxiv')
    argv = [
        '--root',
        root,
        '--domain',
        domain,
        '--seeds',
        '0',
        '--epochs',
        '1',
        '--variant',
        domain,
    ]
    record, row = run(monkeypatch, capsys, ogbn_arxiv, *argv)
    assert record['config']['attention_over'] == DOMAINS[domain]
    assert DOMAINS[domain] in row


def test_pokec(ogb, monkeypatch, capsys, tmp_path):
    with pytest.raises(FileNotFoundError, match=r'pokec.mat is missing'):
        pokec.load_pokec(str(tmp_path))
    random = np.random.default_rng(0)
    label = random.integers(-1, 2, N)
    stored = {
        'edge_index': random.integers(0, N, (2, E)),
        'node_feat': random.random((N, 5)),
        'label': label,
        'num_nodes': N,
    }
    savemat(tmp_path / 'pokec.mat', stored)
    task = pokec.load_pokec(str(tmp_path))
    assert is_undirected(task.data.edge_index, num_nodes=N)
    assert sorted(torch.cat([*task.split.values()]).tolist()) == np.flatnonzero(label >= 0).tolist()
    record, _ = run(
        monkeypatch,
        capsys,
        pokec,
        '--root',
        str(tmp_path),
        '--seeds',
        '0',
        '--epochs',
        '1',
        '--variant',
        'short',
    )
    assert record['dataset'] == 'pokec'


def test_leaderboard_rows_name_the_variant_and_the_memory_of_the_gpu(tmp_path):
    path = tmp_path / 'result.json'
    names = ('torch', 'torch-geometric', 'torch-geometric-lgt')
    record = {
        'model': 'sgformer',
        'variant': '',
        'seeds': [0],
        'parameters': 1200,
        'metrics': {
            name: {'mean': 0.5, 'values': [0.5]} for name in ('accuracy', 'valid_accuracy')
        },
        'config': {'attention_over': 'the graph'},
        'versions': dict.fromkeys(names, '1.0'),
        'machine': {'cpu': 'C', 'gpu': None, 'gpu_memory_gib': None, 'memory_gib': 64.0},
    }
    gpu = record['machine'] | {'gpu': 'G', 'gpu_memory_gib': 79.2}
    for changes, model, hardware in (
        ({}, 'sgformer', 'C (64.0 GiB)'),
        (
            {'variant': 'epochs-9', 'machine': gpu},
            'sgformer, variant epochs-9',
            'G (79.2 GiB), C (64.0 GiB)',
        ),
    ):
        path.write_text(json.dumps(record | changes))
        versions = ', '.join(f'{name} 1.0' for name in names)
        assert leaderboard_row(path, 'accuracy') == (
            f'| {model} (attention over the graph) | 0.5000 | 0.5000 | 1,200 | 1 seeds | '
            f'{hardware} | {versions} |'
        )
