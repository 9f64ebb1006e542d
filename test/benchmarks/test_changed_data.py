"""A run whose data changed under the same name trains anew; a run that is finished is read back;
both say so."""

import json
import sys

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch_geometric.data import Data

from benchmarks import (
    attention_domains,
    pokec,
    sbm,
)
from benchmarks.common import results, training
from benchmarks.large_graphs.datasets import NodeTask, accuracy, random_split
from benchmarks.large_graphs.run import graph_content
from benchmarks.link_prediction import __main__ as link_prediction
from benchmarks.many_graphs.settings import PRESETS
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification import search as node_classification_search
from benchmarks.node_classification import settings as node_classification_settings
from benchmarks.ogb import ogbn_arxiv
from benchmarks.recommendation import __main__ as recommendation
from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.datasets import SBMDataset


def interactions(folder, number):
    """The lines of two groups of users; another number, other items."""
    (folder / 'mine').mkdir(exist_ok=True)
    generator = np.random.default_rng(number)
    chosen = [10 * (user % 2) + generator.permutation(10)[:8] for user in range(40)]
    for part, those in (('train', slice(0, 6)), ('test', slice(6, 8))):
        lines = [f'{user} {" ".join(map(str, items[those]))}' for user, items in enumerate(chosen)]
        (folder / 'mine' / f'{part}.txt').write_text('\n'.join(lines))


def graph(folder, number):
    generator = np.random.default_rng(number)
    y = np.arange(90) % 3
    x = generator.standard_normal((90, 6)) + np.eye(3, 6)[y]
    np.savez(folder / 'mine.npz', edges=generator.integers(90, size=(300, 2)), y=y, x=x)


def network(folder, number):
    generator = np.random.default_rng(number)
    label, edges = generator.integers(0, 2, 60), generator.integers(0, 60, (2, 240))
    savemat(
        folder / 'pokec.mat',
        {'edge_index': edges, 'node_feat': generator.random((60, 5)), 'label': label},
    )


def task(folder, number):
    """What ogb's package would read."""
    generator = torch.Generator().manual_seed(number)
    data = Data(
        x=torch.rand(60, 5, generator=generator),
        edge_index=torch.randint(60, (2, 240), generator=generator),
        y=torch.randint(4, (60, 1), generator=generator),
    )
    return NodeTask(
        data,
        random_split(60, (0.5, 0.2), torch.Generator().manual_seed(0)),
        4,
        False,
        'accuracy',
        accuracy,
    )


FAMILIES = {
    'recommendation': (
        recommendation,
        interactions,
        '--dataset mine --model mgformer --dim 16 --encoding 8 --epochs 10 --variant t --seeds 0',
    ),
    'node classification': (
        node_classification,
        graph,
        '--dataset mine.npz --model sgformer --set epochs=3 --seeds 0',
    ),
    'domains': (
        attention_domains,
        graph,
        '--dataset mine.npz --model sgformer --domains batch --epochs 2 --seeds 0',
    ),
    'link prediction': (link_prediction, graph, '--dataset mine.npz --model gcn --seeds 0'),
    'pokec': (pokec, network, '--epochs 2 --seeds 0'),
    'ogb': (ogbn_arxiv, lambda *_: None, '--epochs 2 --seeds 0'),
    'many graphs': (sbm, lambda *_: None, '--models gt --preset small --seeds 0'),
}


@pytest.fixture
def world(monkeypatch, tmp_path):
    tiny = {
        'graphs': {'train': 6, 'val': 3, 'test': 3},
        'layers': 1,
        'training': {'epochs': 3, 'batch_size': 3, 'hidden_channels': 16},
    }
    monkeypatch.setitem(PRESETS, 'small', tiny)
    (tmp_path / 'data').mkdir()
    return tmp_path


def run(world, monkeypatch, constants, family, number, checkpoints='checkpoints'):
    """The figures of a run over the data of that number, without its times, and how many epochs it
    trained."""
    script, make, words = FAMILIES[family]
    constants(checkpoints=world / checkpoints)
    make(world / 'data', number)
    monkeypatch.setattr(ogbn_arxiv, 'load_ogb_task', lambda *_: task(world, number))
    monkeypatch.setattr(SBMDataset, 'version', number)  # made anew, as the files are named after it
    graphs = SBMDataset.graphs
    if number > 0:
        monkeypatch.setattr(
            SBMDataset, 'graphs', lambda self, _: graphs(self, np.random.default_rng(number))
        )
    calls, epoch = [], training.Training.run_epoch
    monkeypatch.setattr(
        training.Training, 'run_epoch', lambda self: calls.append(None) or epoch(self)
    )
    monkeypatch.setattr(
        sys,
        'argv',
        ['x', '--root', str(world / 'data'), '--output', str(world / 'out'), *words.split()],
    )
    script.main()
    for object_, name, value in (
        (training.Training, 'run_epoch', epoch),
        (SBMDataset, 'graphs', graphs),
    ):
        monkeypatch.setattr(object_, name, value)
    (path,) = (world / 'out').rglob('*.json')
    record = json.loads(path.read_text())
    times = ('epoch_ms', 'inference_ms', 'epoch_seconds')
    return {
        name: value['values'] for name, value in record['metrics'].items() if name not in times
    }, len(calls)


@pytest.mark.parametrize('family', FAMILIES)
def test_changed_data(family, world, monkeypatch, constants, capsys):
    first, epochs = run(world, monkeypatch, constants, family, 0)
    assert epochs > 0
    assert 'starts anew' not in capsys.readouterr().err
    assert run(world, monkeypatch, constants, family, 0) == (first, 0)
    assert f'epochs, read back from {world / "checkpoints"}' in capsys.readouterr().err
    second, epochs = run(world, monkeypatch, constants, family, 1)
    assert epochs > 0
    assert 'is of other data: the training starts anew' in capsys.readouterr().err
    assert second != first
    alone, _ = run(world, monkeypatch, constants, family, 1, 'fresh')
    assert second == alone


def test_a_search_over_changed_data(world, monkeypatch, capsys, constants):
    constants(checkpoints=world / 'checkpoints')
    monkeypatch.setitem(node_classification_settings.COMMON, 'epochs', 2)
    trials = []
    for number, num_trials, seed in ((0, '1', '0'), (0, '2', '0'), (1, '1', '0'), (0, '1', '1')):
        graph(world / 'data', number)
        words = [
            '--root',
            str(world / 'data'),
            '--dataset',
            'mine.npz',
            '--trials',
            num_trials,
            '--seeds',
            seed,
        ]
        monkeypatch.setattr(sys, 'argv', ['x', *words])
        node_classification_search.main()
        out, err = capsys.readouterr()
        trials.append(
            (
                int(out.split(' after ')[1].split()[0]),
                '1 trials are read back from' in err,
                'the search starts anew' in err,
            )
        )
    assert trials == [(1, False, False), (2, True, False), (1, False, True), (1, False, True)]


def test_a_graph_in_files_counts_by_its_checksums(tmp_path):
    results = []
    for number in (0, 0, 1):
        data = task(tmp_path, number).data
        folder = tmp_path / f'graph-{len(results)}'
        write_graph(folder, data.edge_index, 60, {'x': data.x, 'y': data.y})
        results.append(training.fingerprint(graph_content(MappedGraph(folder))))
    assert results[0] == results[1] != results[2]


def test_published_results_stay(world, monkeypatch, capsys, constants):
    before = {path: path.read_bytes() for path in results.PUBLISHED.rglob('*') if path.is_file()}
    monkeypatch.chdir(world)
    constants(checkpoints=world / 'checkpoints')
    graph(world / 'data', 0)
    for told in (['--seeds', '0'], ['--seeds', '1'], ['--table']):
        monkeypatch.setattr(
            sys,
            'argv',
            [
                'x',
                '--dataset',
                'mine.npz',
                '--model',
                'mlp',
                '--variant',
                'short',
                '--set',
                'epochs=2',
                *told,
            ],
        )
        node_classification.main()
        rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith('| ')][2:]
        assert [row.split('|')[3].strip() for row in rows] == ['mlp (short)']
    assert rows[0].split('|')[-2].strip() == '2'
    assert (world / 'benchmark-results' / 'node_classification' / 'variants.md').exists()
    monkeypatch.setattr(sys, 'argv', ['x', '--table', '--output', 'nothing-there'])
    node_classification.main()
    out, err = capsys.readouterr()
    assert '| cora | published-20-per-class | sgformer |' in out
    assert 'has no results: these are the published ones' in err
    assert {
        path: path.read_bytes() for path in results.PUBLISHED.rglob('*') if path.is_file()
    } == before
