import json
import re
import sys

import pytest

from benchmarks import sbm, tsp
from benchmarks.common import training
from benchmarks.common.files import DataError
from benchmarks.many_graphs.models import network
from benchmarks.many_graphs.run import variant_of
from benchmarks.many_graphs.settings import PRESETS


def test_runs_from_data_to_table(run, monkeypatch, tmp_path, capsys):
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gt', 'gcn')
    record = json.loads((tmp_path / 'sbm' / 'gt-cluster-small.json').read_text())
    assert record['protocol'] == 'small'
    assert record['config']['train_graphs'] == 6
    assert len(record['metrics']['accuracy']['values']) == 2
    table = capsys.readouterr().out
    assert '| cluster | small | gt |' in table
    assert '| 73.17 |' in table
    assert table.endswith((tmp_path / 'sbm' / 'sbm.md').read_text() + '\n')
    monkeypatch.setattr(training.Training, 'run_epoch', lambda self: pytest.fail('trained again'))
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gt')
    again = json.loads((tmp_path / 'sbm' / 'gt-cluster-small.json').read_text())
    assert again['metrics']['accuracy'] == record['metrics']['accuracy']


def test_another_number_of_layers_is_a_variant(run, monkeypatch, tmp_path):
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gcn', '--layers', '2')
    record = json.loads((tmp_path / 'sbm' / 'gcn-cluster-small-2-layers.json').read_text())
    assert record['protocol'] == 'small-2-layers'
    assert record['config']['options'] == {'num_layers': 2}


def test_another_number_of_epochs_is_a_variant(run, monkeypatch, tmp_path):
    """The number of the preset, here 3, is none."""
    for number, name in (('2', 'small-2-epochs'), ('3', 'small')):
        arguments = ('--dataset', 'CLUSTER', '--models', 'graphtransformer', '--epochs', number)
        run(monkeypatch, tmp_path, *arguments)
        path = tmp_path / 'sbm' / f'graphtransformer-cluster-{name}.json'
        record = json.loads(path.read_text())
        assert record['protocol'] == name
        assert record['config']['epochs'] == int(number)


def test_the_full_preset_on_graphs_that_are_made_is_not_called_published(
    run, monkeypatch, tmp_path
):
    """The published graphs are those of ``--source pyg``, whose protocol is pyg."""
    tiny = {
        'graphs': {'train': 6, 'val': 3, 'test': 3},
        'layers': 1,
        'training': {'epochs': 1, 'batch_size': 3, 'hidden_channels': 16},
    }
    monkeypatch.setitem(PRESETS, 'full', tiny)
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gcn', '--preset', 'full')
    record = json.loads((tmp_path / 'sbm' / 'gcn-cluster.json').read_text())
    assert (record['protocol'], record['variant']) == ('full', '')


@pytest.mark.parametrize(
    ('dataset', 'layers', 'variant'),
    [
        ('CLUSTER', '10', '10-layers'),
        ('CLUSTER', '12', ''),
        ('CLUSTER', '14', '14-layers'),
        ('PATTERN', '8', ''),
        ('PATTERN', '12', '12-layers'),
    ],
)
def test_depths_of_litegt_by_name(dataset, layers, variant, monkeypatch, tmp_path):
    """Networks of the full size; nothing is trained. The depth of the paper is no variant."""
    made = []
    monkeypatch.setattr('benchmarks.many_graphs.run.make_splits', lambda *_: None)

    def record_run(task, model_name, splits, args, config):
        model = network(model_name, (3, 80, 6), 'node', config['pe_channels'], config['options'])
        made.append((variant_of(task, args, model_name), len(model.model.layers)))

    monkeypatch.setattr('benchmarks.many_graphs.run.run', record_run)
    argv = ['--dataset', dataset, '--layers', layers, '--models', 'litegt-jaccard-sampling']
    monkeypatch.setattr(sys, 'argv', ['x', *argv, '--output', str(tmp_path)])
    sbm.main()
    assert made == [(variant, int(layers))]


def test_options_of_graphtransformer_by_name(run, monkeypatch, tmp_path):
    """The results without them were recorded with a dropout of 0 and a bare input layer."""
    cases = {
        '': ({}, 0.0, False),
        '-dropout-0.2': ({'dropout': 0.2}, 0.2, False),
        '-dropout-0.2-input-norm': ({'dropout': 0.2, 'input_norm': True}, 0.2, True),
    }
    made = {}

    def record_network(name, *arguments):
        made[name] = network(name, *arguments)
        return made[name]

    monkeypatch.setattr('benchmarks.many_graphs.run.network', record_network)
    for variant, (options, dropout, input_norm) in cases.items():
        chosen = ['--dropout', str(dropout)] + ['--input-norm'] * input_norm
        argv = ['--dataset', 'CLUSTER', '--models', 'graphtransformer', 'gcn', *chosen]
        run(monkeypatch, tmp_path, *argv)
        assert (tmp_path / 'sbm' / 'gcn-cluster-small.json').exists()
        path = tmp_path / 'sbm' / f'graphtransformer-cluster-small{variant}.json'
        found = json.loads(path.read_text())['config']['options']
        assert found == {'num_layers': 1, 'attention': 'positions'} | options
        first, *_ = made['graphtransformer'].model.blocks
        assert (first.dropout, first.conv is None) == (dropout, input_norm)


@pytest.mark.parametrize('number', ['1', '-0.1', 'nan', 'half'])
def test_dropouts_that_are_refused(number, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['x', f'--dropout={number}'])
    with pytest.raises(SystemExit):
        sbm.main()
    message = f"argument --dropout: '{number}' must be a number from 0 to below 1"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize('option', ['--layers', '--epochs'])
@pytest.mark.parametrize('number', ['0', '-1', '2.5', 'ten'])
def test_numbers_that_are_refused(option, number, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['x', f'{option}={number}'])
    with pytest.raises(SystemExit):
        sbm.main()
    message = f"argument {option}: '{number}' must be an integer of at least 1"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ('script', 'options', 'message'),
    [
        (sbm, '--models gt gcn --attention mean', '--attention mean is for graphtransformer (got'),
        (sbm, '--models gt --dropout 0.2', '--dropout 0.2 is for graphtransformer (got'),
        (sbm, '--models gcn --input-norm', '--input-norm is for graphtransformer (got'),
        (
            tsp,
            '--models gt graphtransformer',
            '--attention positions, the default of graphtransformer, reads',
        ),
    ],
)
def test_options_that_no_network_or_graph_has(script, options, message, run, monkeypatch, tmp_path):
    """The first was ignored, the second failed after the graphs had been made."""
    monkeypatch.setattr('benchmarks.many_graphs.run.make_splits', pytest.fail)
    with pytest.raises(DataError, match=re.escape(message)):
        run(monkeypatch, tmp_path, *options.split(), script=script)


def test_reduced_layers_have_as_many_heads_as_divide_their_channels(run, monkeypatch, tmp_path):
    name = 'litegt-jaccard-sampling-reduced'
    run(monkeypatch, tmp_path, '--dataset', 'PATTERN', '--models', name, '--layers', '4')
    record = json.loads((tmp_path / 'sbm' / f'{name}-pattern-small-4-layers.json').read_text())
    assert record['config']['options'] == {'num_layers': 4, 'heads': 4}
