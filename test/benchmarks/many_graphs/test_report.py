import pytest

from benchmarks.many_graphs.report import row, scores_figure, title


def record(model, protocol, accuracy):
    metrics = {'accuracy': {'mean': accuracy}}
    return {'dataset': 'cluster', 'protocol': protocol, 'model': model, 'metrics': metrics}


@pytest.mark.parametrize(
    ('network', 'words'),
    [
        ('gt', 'GT (Dwivedi and Bresson)'),
        ('litegt-jaccard-sampling', 'LiteGT: jaccard, sampling'),
        ('mean-alone', 'LiteGT: mean alone'),
    ],
)
def test_titles(network, words):
    assert title(network) == words


@pytest.mark.parametrize(
    ('model', 'protocol', 'published'),
    [
        ('gt', 'full', '73.17'),
        ('gt', '14-layers', '23.22'),
        ('litegt-jaccard-sampling', '14-layers', '75.91'),
        ('litegt-jaccard', '14-layers', '74.20'),
        ('gt', 'small-14-layers', '73.17'),
    ],
)
def test_published_accuracy_of_a_depth(model, protocol, published):
    metrics = {name: {'mean': 0.5, 'values': [0.5]} for name in ('accuracy', 'valid_accuracy')}
    costs = {'parameters': 1, 'epoch_seconds': 1.0, 'peak_memory_mib': 1.0, 'seeds': [0]}
    result = record(model, protocol, 0.5) | {'metrics': metrics} | costs
    assert row(result, 'accuracy')['published'] == published


def test_scores_of_the_small_preset_best_first():
    results = [
        record('gcn', 'small', 0.25),
        record('gt', 'small', 0.5),
        record('gin', 'medium', 0.75),
    ]
    assert scores_figure(results[::2], 'accuracy') is None
    (axes,) = scores_figure(results, 'accuracy').axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ['GT (Dwivedi and Bresson)', 'GCN']
    assert [bar.get_width() for bar in axes.patches] == [50, 25]
    assert [label.get_text() for label in axes.texts] == ['50.0', '25.0']
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()
    assert axes.get_title() == 'CLUSTER'
