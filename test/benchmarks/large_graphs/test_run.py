import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

from benchmarks import pokec
from benchmarks.common.files import DataError
from benchmarks.common.training import Training
from benchmarks.large_graphs import batches, datasets
from benchmarks.large_graphs import run as run_module
from benchmarks.large_graphs.batches import Batch, Batches, measure_scores, validation_scores
from benchmarks.large_graphs.datasets import NodeTask, accuracy
from benchmarks.large_graphs.models import loss_of, network
from benchmarks.large_graphs.report import leaderboard_row
from benchmarks.large_graphs.settings import BASE, DOMAINS
from benchmarks.ogb import ogbn_arxiv, ogbn_papers100m, ogbn_products, ogbn_proteins
from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.nn import NodeFormer, SGFormer
from torch_geometric_lgt.nn.models._graph_context import GraphContext

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


@pytest.mark.parametrize(
    ('name', 'size', 'weight'), [('ogbn-proteins', 10_000, 0.1), ('ogbn-products', 100_000, 0.01)]
)
def test_protocol_of_nodeformer(save, name, size, weight, ogb, monkeypatch, capsys):
    """Batches are parts of the training nodes, scores those of the whole graph on the CPU, and
    nothing ends the training early."""
    root, _, _, (train, *_) = save(name)
    loaders, schedules, scored = [], [], []
    make, fit, inference = batches.NodePartitionLoader, Training.fit, NodeFormer.inference
    monkeypatch.setattr(
        batches,
        'NodePartitionLoader',
        lambda *args, **options: loaders.append((args[1:], options)) or make(*args, **options),
    )
    monkeypatch.setattr(
        Training,
        'fit',
        lambda self, *args: schedules.append(args[:3]) or fit(self, 18, *args[1:]),
    )
    monkeypatch.setattr(
        NodeFormer,
        'inference',
        lambda self, loader, folder: (
            scored.append((self, loader)) or inference(self, loader, folder)
        ),
    )
    argv = ['--root', root, '--model', 'nodeformer', '--protocol', 'nodeformer', '--seeds', '0']
    record, row = run(monkeypatch, capsys, SCRIPTS[name], *argv)
    ((args, options),) = loaders
    assert args == (size,)
    assert not options['equal_sizes']
    assert options['input_nodes'].numel() == N // 2
    if name == 'ogbn-proteins':
        assert torch.equal(options['input_nodes'], torch.from_numpy(train))
    assert schedules == [(1000, 1000, 9)]
    # after the epochs 9 and 18 and at the end, each time with a copy on the CPU
    hops = [[*loader.node_sampler.num_neighbors.values()] for _, loader in scored]
    assert hops == 3 * [[[-1]]]
    assert len({id(model) for model, _ in scored}) == 3
    config = record['config']
    assert (record['protocol'], record['variant']) == ('nodeformer', '')
    assert (config['edge_loss'], config['edge_loss_mean']) == (weight, 'edges')
    assert config['options']['gumbel_evaluation'] == 'tempered'
    assert row.startswith(
        '| nodeformer, protocol nodeformer (attention over a random part of the training nodes) |'
    )


def test_protocol_of_nodeformer_is_for_nodeformer(save, ogb, monkeypatch, capsys):
    for script in (ogbn_proteins, ogbn_products):
        monkeypatch.setattr(sys, 'argv', ['x', '--protocol', 'nodeformer'])
        with pytest.raises(SystemExit):
            script.main()
        assert 'is for --model nodeformer (got sgformer)' in capsys.readouterr().err


def test_edge_loss_as_a_mean_over_edges():
    """The formula of the authors' code: the mean over edges, heads and layers of the
    log-probability divided by the in-degree of the target."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(12, (2, 40), generator=generator)
    data = Data(torch.randn(12, 5, generator=generator), edges, y=torch.arange(12)[:, None] % 3)
    torch.manual_seed(0)
    model = NodeFormer(5, 8, 3, heads=2).eval()
    batch = Batch(data, torch.arange(12), None)
    plain, loss = (
        loss_of(model, batch, False, weight, edge_loss_mean='edges') for weight in (0.0, 0.5)
    )
    adjacency = torch.eye(12).index_put((edges[1], edges[0]), torch.ones(40))
    degree, parts = adjacency.sum(1, keepdim=True), []
    layers = model.layers(data.x, GraphContext(model.hops(edges, 12)))
    for conv, z in zip(model.convs, layers, strict=False):
        q, k = (lin(z).unflatten(1, (2, 8)) for lin in (conv.lin_query, conv.lin_key))
        phi = [conv.feature_map(part * 8**-0.25) for part in (q, k)]
        weight = torch.einsum('ihm,jhm->hij', *phi)
        log = (weight / weight.sum(2, keepdim=True)).log()
        parts.append((log / degree)[:, adjacency > 0].mean())
    torch.testing.assert_close(loss - plain, -0.5 * torch.stack(parts).mean())
    assert loss - plain > 0.01


@pytest.mark.parametrize('domain', ['batch', 'memory'])
def test_papers_train_and_validate_on_sampled_neighbourhoods(
    save, domain, ogb, monkeypatch, capsys, tmp_path
):
    """The default has 1000 seeds and 15, 10 and 5 neighbours. Each epoch has a validation, after
    which a checkpoint is written. All nodes are scored at the end only."""
    root, _, _, (train, valid, _) = save('ogbn-papers100M')
    loaders, calls = [], []
    make = batches.NeighborLoader
    monkeypatch.setattr(
        batches,
        'NeighborLoader',
        lambda data, counts, **options: (
            loaders.append((counts, options)) or make(data, counts, **options)
        ),
    )
    for name in ('validation_scores', 'measure_scores'):
        score = getattr(batches, name)
        monkeypatch.setattr(
            run_module, name, lambda *args, score=score: calls.append(score) or score(*args)
        )
    argv = ['--root', root, '--mapped', str(tmp_path / 'mapped'), '--seeds', '0', '--epochs', '2']
    record, _ = run(monkeypatch, capsys, ogbn_papers100m, *argv, '--domain', domain)
    config = record['config']
    assert (config['batch_size'], config['fan_out']) == (1000, [15, 10, 5])
    assert (config['validation'], config['every'], config['patience']) == ('sampled', 1, 50)
    assert [counts for counts, _ in loaders] == [[-1], [15, 10, 5], [15, 10, 5]]
    assert [options['batch_size'] for _, options in loaders] == [100_000, 1000, 1000]
    assert torch.equal(loaders[1][1]['input_nodes'], torch.from_numpy(train))
    assert torch.equal(loaders[2][1]['input_nodes'], torch.from_numpy(valid))
    assert calls == [
        batches.validation_scores,
        batches.validation_scores,
        batches.measure_scores,
    ]
    assert set(record['metrics']) == {'accuracy', 'valid_accuracy', 'train_accuracy'}


@pytest.mark.parametrize('domain', ['batch', 'memory'])
def test_papers_are_scored_in_files(
    save, domain, ogb, monkeypatch, capsys, tmp_path, windows_files
):
    root, *_ = save('ogbn-papers100M')
    folders, argv = [], ['--root', root, '--mapped', 'mapped', '--domain', domain]
    for name in ('inference', 'attention_memory'):
        method = getattr(SGFormer, name)
        monkeypatch.setattr(
            SGFormer,
            name,
            lambda self, loader, folder, method=method: (
                folders.append(folder) or method(self, loader, folder)
            ),
        )
    run(monkeypatch, capsys, ogbn_papers100m, *argv, '--seeds', '0', '--epochs', '1')
    names = ['scores'] if domain == 'batch' else ['memory', 'memory', 'scores']
    assert [folder.name for folder in folders] == names
    assert {folder.parent.parent for folder in folders} == {tmp_path}
    (files,) = {folder.parent.name for folder in folders}
    assert files.startswith('mapped-sgformer-ogbn-papers100M-')
    assert not (tmp_path / files).exists()


@pytest.mark.parametrize('domain', ['batch', 'memory'])
def test_layers_that_cannot_be_written_end_in_one_line(
    save, domain, ogb, monkeypatch, capsys, full_disk
):
    """A full disk ended in a traceback, after the training."""
    root, *_ = save('ogbn-papers100M')
    argv = ['--root', root, '--mapped', 'mapped', '--seeds', '0', '--epochs', '1']
    write_graph_of = datasets.map_graph
    monkeypatch.setattr(
        ogbn_papers100m,
        'map_graph',
        lambda *args: (
            write_graph_of(*args),
            full_disk('torch_geometric_lgt.nn.models._streaming.workspace'),
        )[0],
    )
    folder = 'mapped-sgformer-ogbn-papers100M-.*'
    with pytest.raises(DataError, match=rf'{folder} cannot be written \(No space .*\); make room'):
        run(monkeypatch, capsys, ogbn_papers100m, *argv, '--domain', domain)


@pytest.mark.parametrize('domain', ['graph', 'partition', 'training'])
def test_domains_that_need_the_graph_in_memory_are_refused_at_once(domain, monkeypatch, capsys):
    """The data were read, and the graph was written, before."""
    monkeypatch.setattr(sys, 'argv', ['x', '--mapped', 'mapped', '--domain', domain])
    with pytest.raises(SystemExit):
        ogbn_papers100m.main()
    message = f'a graph in files takes --domain batch or memory (got {domain})'
    assert message in capsys.readouterr().err


def papers_task(folder, num_nodes=4000):
    """A random graph in files, with features in half precision and few labelled nodes."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(num_nodes, (2, 5 * num_nodes), generator=generator)
    y = torch.full((num_nodes, 1), torch.nan)
    split = dict(
        zip(
            ('train', 'valid', 'test'),
            torch.randperm(num_nodes, generator=generator)[:300].split([150, 70, 80]),
            strict=True,
        )
    )
    for nodes in split.values():
        y[nodes] = (nodes[:, None] % 4).float()
    x = torch.randn(num_nodes, 6, generator=generator).half()
    write_graph(folder, edges, num_nodes, {'x': x, 'y': y}, undirected=True)
    return NodeTask(MappedGraph(folder), split, 4, False, 'accuracy', accuracy)


def test_an_epoch_on_sampled_neighbourhoods(tmp_path):
    task = papers_task(tmp_path / 'mapped')
    config = {
        **BASE,
        'model': 'sgformer',
        'hidden_channels': 8,
        'options': {'gnn_num_layers': 3},
        'domain': 'batch',
        'batch_size': 32,
        'fan_out': [3, 2, 1],
        'validation': 'sampled',
    }
    torch.manual_seed(0)
    model = network(task, config)
    parts = Batches(task, model, config)
    assert len(parts) == 5
    seeds = []
    for batch in parts:
        assert batch.data.num_nodes <= 32 * (1 + 3 + 6 + 6)
        seeds.append(batch.data.n_id[batch.train])
        loss = loss_of(model, batch, binary=False, edge_loss_weight=0.0)
        assert loss.isfinite()
        loss.backward()
    assert torch.equal(torch.cat(seeds).sort().values, task.split['train'].sort().values)
    model.eval()
    before = torch.get_rng_state()
    with torch.no_grad():
        scores, again = (validation_scores(model, parts) for _ in range(2))
        torch.manual_seed(0)
        expected = [
            model(part.x.float(), part.edge_index)[: part.batch_size] for part in parts.validation
        ]
    assert torch.equal(scores, again)
    assert torch.equal(scores, torch.cat(expected))
    torch.set_rng_state(before)
    validation_scores(model, parts)
    assert torch.equal(torch.get_rng_state(), before)
    assert validation_scores(model, Batches(task, model, config | {'validation': 'all'})) is None
    assert measure_scores(model, parts, lambda scores: scores.shape) == (4000, 4)


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


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('label', None),
        ('label', np.full(N, 4)),
        ('edge_index', np.zeros((E, 2), int)),
        ('edge_index', np.full((2, E), N)),
        ('node_feat', np.zeros((N - 1, 5))),
    ],
)
def test_another_file_than_that_of_pokec_is_refused(name, value, tmp_path):
    """Edges ``[E, 2]`` made a graph of two edges, whose result read as that of pokec."""
    arrays = {
        'edge_index': np.zeros((2, E), int),
        'node_feat': np.zeros((N, 5)),
        'label': np.zeros(N, int),
        name: value,
    }
    stored = {key: array for key, array in arrays.items() if array is not None}
    savemat(tmp_path / 'pokec.mat', stored)
    with pytest.raises(ValueError, match=r"pokec.mat must hold 'edge_index' \[2, E\] with ids of"):
        pokec.load_pokec(str(tmp_path))


def test_leaderboard_rows_name_protocol_variant_and_the_memory_of_the_gpu(tmp_path):
    """A row of a random split of ogbn-products read as one of the leaderboard's split."""
    path = tmp_path / 'result.json'
    names = ('torch', 'torch-geometric', 'torch-geometric-lgt')
    record = {
        'model': 'sgformer',
        'protocol': 'published',
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
        ({'protocol': 'amazon2m'}, 'sgformer, protocol amazon2m', 'C (64.0 GiB)'),
    ):
        path.write_text(json.dumps(record | changes))
        versions = ', '.join(f'{name} 1.0' for name in names)
        assert leaderboard_row(path, 'accuracy') == (
            f'| {model} (attention over the graph) | 0.5000 | 0.5000 | 1,200 | 1 seeds | '
            f'{hardware} | {versions} |'
        )
