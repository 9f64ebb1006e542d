from benchmarks.common.results import summary
from benchmarks.node_classification.plots import scores_figure, sweeps_figure
from benchmarks.node_classification.report import report, row


def record(variant, config, **metrics):
    names = {'epoch_ms': [1.0], 'inference_ms': [2.0], **metrics}
    return {
        'dataset': 'toy',
        'protocol': 'fixed-splits',
        'model': 'gcn',
        'variant': variant,
        'config': {'options': {}} | config,
        'metrics': {name: summary(values) for name, values in names.items()},
        'peak_memory_mib': 3.0,
        'seeds': [0, 1],
    }


def test_no_result_at_all(tmp_path):
    assert report(tmp_path, tmp_path) == ''
    assert list(tmp_path.iterdir()) == []


def test_a_row_names_its_metric():
    """Results that name no metric have accuracies."""
    cells = {'data set': 'toy', 'protocol': 'fixed-splits', 'published': ''}
    cells |= {'ms / epoch': '1.0', 'ms inference': '2.0', 'MiB': '3', 'seeds': '2'}
    accuracies = record('', {}, accuracy=[0.5, 0.5], valid_accuracy=[0.25, 0.25])
    assert row(accuracies, 0.75) == cells | {
        'model': 'gcn',
        'metric': 'accuracy',
        'test score': '50.00 ± 0.00',
        'published': '75.00',
        'validation score': '25.00 ± 0.00',
    }
    areas = record('wide', {'metric': 'roc_auc'}, roc_auc=[0.8, 0.8], valid_roc_auc=[0.7, 0.7])
    assert row(areas, None) == cells | {
        'model': 'gcn (wide)',
        'metric': 'ROC-AUC',
        'test score': '80.00 ± 0.00',
        'validation score': '70.00 ± 0.00',
    }


def test_a_sweep_names_its_metric():
    line = [
        (
            value,
            record('', {'metric': 'roc_auc'}, roc_auc=[value / 10], valid_roc_auc=[value / 20]),
        )
        for value in (1, 2)
    ]
    axes = sweeps_figure({'num_layers': line}, 'gcn on toy').axes[0]
    assert axes.get_ylabel() == 'ROC-AUC (%)'
    valid, test = ([float(y) for y in drawn.lines[0].get_ydata()] for drawn in axes.containers)
    assert (valid, test) == ([5, 10], [10, 20])


def test_scores_of_the_models_of_a_data_set():
    """A panel needs four models; results of a variant are left out."""
    results = [
        record('', {}, accuracy=[0.25 * i, 0.25 * i]) | {'model': model}
        for i, model in enumerate(('mlp', 'gcn', 'sgformer', 'difformer'))
    ]
    assert scores_figure(results[1:]) is None
    variant = record('wide', {}, accuracy=[0.9]) | {'model': 'sgformer'}
    axes = scores_figure([*results, variant]).axes[0]
    points = [drawn.lines[0].get_xydata().tolist() for drawn in axes.containers]
    assert points == [[[0, 0]], [[25, 1]], [[75, 4]], [[50, 5]]]
    assert axes.get_title() == 'toy\nfixed splits'
