import json
import subprocess
import sys

import pytest
import torch

from benchmarks.common.tables import as_csv
from benchmarks.runtime import measure, transforms
from benchmarks.runtime.transform_cases import (
    GRAPHS,
    METHODS,
    SMALL,
    bipartite,
    cluster,
    grid,
    regular,
    rmat,
)


def test_graphs():
    data = rmat(8, 2000)
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert data.num_nodes == 256
    assert data.edge_index.unique(dim=1).size(1) == data.num_edges
    assert grid(4).edge_index.size(1) == 2 * 2 * 4 * 3
    assert torch.bincount(regular(200, 8).edge_index[0]).max() == 8
    assert cluster(3).num_graphs == 3


@pytest.mark.parametrize('case', METHODS)
@pytest.mark.parametrize('graph', ['small', 'graphs'])
def test_peers_compute_what_the_transforms_compute(case, graph, monkeypatch):
    monkeypatch.setitem(
        GRAPHS, 'graphs', lambda: bipartite(150, 180, 3000) if case == 'svd' else cluster(3)
    )
    results = [
        transforms.work(case, method, SMALL[case] if graph == 'small' else graph)
        for method in METHODS[case]
    ]
    assert {name for figures in results for name in figures} == {
        'seconds',
        'peak_memory_mib',
        'quality',
    }
    assert [figures['quality'] for figures in results[1:]] == [
        pytest.approx(results[0]['quality'], rel=1e-4)
    ] * (len(results) - 1)


def test_a_method_beyond_the_limit_is_run_once(tmp_path, monkeypatch):
    calls = []

    def fresh(module, work, limit):
        calls.append(work['method'])
        return (
            {}
            if work['method'] == 'igraph'
            else {'seconds': [2.0], 'peak_memory_mib': [1.0], 'quality': [0.25]}
        )

    monkeypatch.setattr(transforms, 'fresh', fresh)
    monkeypatch.setattr(
        transforms, 'write_result', lambda *names, **values: written.append((names, values))
    )
    written = []
    with transforms.tqdm(total=8, disable=True) as bar:
        transforms.measure('jaccard', 'small', 'data', 2, 5.0, bar, tmp_path)
    assert calls == ['ours', 'networkit', 'igraph', 'networkx', 'ours', 'networkit', 'networkx']
    ((names, values),) = written
    assert names == ('runtime', 'small', 'jaccard')
    metrics = {name: {'median': results[0]} for name, results in values['metrics'].items()}
    (tmp_path / 'runtime').mkdir()
    record = {
        **dict.fromkeys(('variant', 'protocol', 'command'), ''),
        'model': 'jaccard',
        'dataset': 'small',
        'seeds': [0],
        'metrics': metrics,
        'config': values['config'],
    }
    (tmp_path / 'runtime' / 'one.json').write_text(json.dumps(record))
    assert as_csv(transforms.table(tmp_path / 'runtime')).splitlines() == [
        'transform,graph,by,seconds,over ours,MiB,result',
        'JaccardScores,small,ours,2.00,1.00,1,mean score 0.25',
        'JaccardScores,small,networkit,2.00,1.00,1,mean score 0.25',
        'JaccardScores,small,igraph,more than 5,,,',
        'JaccardScores,small,networkx,2.00,1.00,1,mean score 0.25',
    ]


def test_fresh_processes(monkeypatch):
    def run(command, **options):
        if options['timeout'] is not None:
            raise subprocess.TimeoutExpired(command, options['timeout'])
        return subprocess.CompletedProcess(
            command, int('bad' in command[-1]), stdout='{"seconds": [1.0]}', stderr='no memory'
        )

    monkeypatch.setattr(measure.subprocess, 'run', run)
    assert measure.fresh('module', {'case': 'good'}) == {'seconds': [1.0]}
    assert measure.fresh('module', {'case': 'good'}, 1.0) == {}
    with pytest.raises(RuntimeError, match=r"module failed with \{'case': 'bad'\}:\nno memory"):
        measure.fresh('module', {'case': 'bad'})


@pytest.mark.parametrize(
    ('case', 'graph'), [('svd', 'grid-100k-nodes'), ('jaccard', 'bipartite-1M-edges')]
)
def test_a_case_without_a_graph_is_told(case, graph, monkeypatch, capsys):
    """It measured nothing, and printed the table of earlier results."""
    monkeypatch.setattr(sys, 'argv', ['x', '--cases', case, '--graphs', graph])
    with pytest.raises(SystemExit):
        transforms.main()
    message = f'--graphs must have one for each of --cases (got none for {case}): svd takes amazon'
    assert message in capsys.readouterr().err


def test_graphs_without_cases_are_measured_by_what_takes_them(monkeypatch, tmp_path):
    measured = []
    monkeypatch.setattr(transforms, 'measure', lambda case, graph, *_: measured.append(case))
    monkeypatch.setattr(
        sys, 'argv', ['x', '--graphs', 'grid-100k-nodes', '--output', str(tmp_path)]
    )
    transforms.main()
    assert measured == [case for case in transforms.METHODS if case != 'svd']


def test_the_program_of_a_fresh_process(monkeypatch, capsys):
    monkeypatch.setattr(transforms, 'work', lambda case: {'seconds': [len(case)]})
    monkeypatch.setattr(sys, 'argv', ['-c', '{"case": "svd"}'])
    exec(measure.WORKER.format(module=transforms.__name__), {})
    assert capsys.readouterr().out == '{"seconds": [3]}\n'
