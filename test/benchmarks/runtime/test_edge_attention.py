import json
import math
import sys

import pytest

from benchmarks.runtime import edge_attention
from benchmarks.runtime.transform_cases import regular
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores

NODES = 300
SAMPLED = math.ceil(5 * math.log(NODES))


@pytest.fixture(scope='module')
def data():
    data = AttentionNodeSampling()(JaccardScores()(regular(NODES, 8)))
    data.num_attending = int(data.attention_mask[data.edge_index[1]].sum())
    return data


def test_counts_by_hand(data):
    """Per layer: projections of all nodes, then scores and weighted sums for each edge; a kernel
    without scores has the sums alone."""
    edges = data.num_edges
    results = {
        name: edge_attention.measure(name, data, 1) for name in ('gt', 'litegt-jaccard-sampling')
    }
    assert results['gt']['multiplications'] == 12 * (3 * NODES * 80 * 80 + 2 * edges * 80)
    assert results['gt']['score_multiplications'] == 12 * edges * 80
    sampled = results['litegt-jaccard-sampling']
    assert sampled['score_multiplications'] == 12 * data.num_attending * 40
    neighbors = data.edge_index[0, data.attention_mask[data.edge_index[1]]].unique().numel()
    projected = NODES * 80 * 80 + (SAMPLED + neighbors) * 80 * 40
    # values, neither queries nor keys
    assert 12 * NODES * 80 < results['gt']['kept_numbers'] < 12 * NODES * 2 * 80
    assert sampled['multiplications'] == 12 * (
        projected + 2 * data.num_attending * 40 + 2 * edges * 40
    )


def test_table_2_at_one_point():
    """T = 8, d = 10, R = 8, N = 1000, two halvings."""
    log = math.log(1000)
    results = {
        name: tuple(f(1000, 8, 8, 10) for f in pair)
        for name, pair in edge_attention.table_2().items()
    }
    assert results['gt'] == (640_000 + 2_400_000, 240_000 + 2400)
    assert results['litegt-jaccard'] == (320_000 + 1_600_000, 160_000 + 1600)
    assert results['litegt-jaccard-sampling'] == pytest.approx(
        (320 * log + 800_000 + 800 * log, 80_000 + 80 * log + 1600)
    )
    assert results['litegt-subtractor-sampling'] == pytest.approx(
        (320 * log + 1_600_000 + 800 * log, 80_000 + 160 * log + 2400)
    )
    assert results['litegt-subtractor-sampling-reduced'] == pytest.approx(
        (320 * log + 1_600_000 + 800 * log, 80_000 + 160 * log + 2400)
    )


def test_from_graphs_to_table(data, monkeypatch, tmp_path, capsys, constants):
    constants(edge_attention_graphs={'tiny': lambda: regular(60, 4)})
    constants(edge_attention_models=['gt', 'litegt-subtractor-sampling'])
    monkeypatch.setattr(
        sys, 'argv', ['x', '--graphs', 'tiny', '--repeats', '1', '--output', str(tmp_path)]
    )
    edge_attention.main()
    lines = (tmp_path / 'runtime' / 'edge-attention.csv').read_text().splitlines()
    assert [line.split(',')[:2] for line in lines[1:]] == [
        ['tiny', 'gt'],
        ['tiny', 'litegt-subtractor-sampling'],
    ]
    record = json.loads((tmp_path / 'runtime' / 'edge-attention-tiny.json').read_text())
    assert (
        record['metrics']['gt_score_multiplications']['median']
        == 12 * record['config']['edges'] * 80
    )
    assert (tmp_path / 'runtime' / 'edge-attention.md').read_text() in capsys.readouterr().out
