import sys

import pytest

from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification import search


def test_changes_of_the_configuration(capsys):
    command = ['--dataset', 'cora', '--model', 'sgformer']
    _, (plan,) = node_classification.parse(
        [*command, '--variant', 'v', '--set', 'lr=0.5', 'options.norm=row']
    )
    assert (plan.variant, plan.protocol, plan.neighbors) == ('v', 'published-20-per-class', None)
    assert (plan.config['lr'], plan.config['options']['norm'], plan.config['options']['alpha']) == (
        0.5,
        'row',
        0.8,
    )
    faults = {
        'no such setting: rate': ['--set', 'rate=1'],
        (
            "unknown study of sgformer 'temperature' (there are ablation, depth, attention, "
            'neighbors, wrong_edges, precision, '
        ): ['--study', 'temperature'],
        **{
            f'--study names its own variants: leave out --set, --variant, --neighbors{end}': [
                *('--study', 'depth', *options)
            ]
            for end, options in (('\n', ('--variant', 'mine')), ('', ('--neighbors', '0')))
        },
        '--curves is a file for one variant: leave out --study': [
            *('--study', 'depth', '--curves', 'curves.png')
        ],
        '--pictures is for nodeformer, difformer, sgformer': ['--model', 'gcn', '--pictures'],
    }
    for message, arguments in faults.items():
        with pytest.raises(SystemExit):
            node_classification.parse([*command, *arguments])
        assert message in capsys.readouterr().err


FAULTS = {
    'epochs': '--set takes NAME=VALUE',
    '=3': '--set takes NAME=VALUE',
    'options=3': '--set takes NAME=VALUE',
    'lr.x=3': '--set takes NAME=VALUE',
    'options.a.b=3': '--set takes NAME=VALUE',
    'rate=1': 'no such setting: rate',
    'epochs=abc': "'epochs' must be an integer of at least 1 (got 'abc')",
    'epochs=0': "'epochs' must be an integer of at least 1 (got 0)",
    'epochs=2.0': "'epochs' must be an integer of at least 1 (got 2.0)",
    'patience=true': "'patience' must be an integer of at least 1 (got True)",
    'lr=-1': "'lr' must be a number above 0 (got -1)",
    'lr=NaN': "'lr' must be a number above 0 (got nan)",
    'lr=Infinity': "'lr' must be a number above 0 (got inf)",
    'lr=-.1': "'lr' must be a number above 0 (got -0.1)",
    'lr=null': "'lr' must be a number above 0 (got None)",
    'weight_decay=-1': "'weight_decay' must be a number of at least 0 (got -1)",
    'edge_loss_weight=x': "'edge_loss_weight' must be a number of at least 0 (got 'x')",
    'attention_weight_decay=x': (
        "'attention_weight_decay' must be null or a number of at least 0 (got 'x')"
    ),
    'normalize_features=1': "'normalize_features' must be true or false (got 1)",
    'precision=half': "'precision' must be float32 or bfloat16 (got 'half')",
    'metric=f1': "'metric' must be accuracy or roc_auc (got 'f1')",
    'metric=["accuracy"]': "'metric' must be accuracy or roc_auc (got ['accuracy'])",
    'options.nrom=row': 'does not take options.nrom',
    'options.hidden_channels=64.0': "'options.hidden_channels' must be of the type of",
    'options.hidden_channels=0': (
        "'options.hidden_channels' must be an integer of at least 1 (got 0)"
    ),
    'options.dropout=high': "'options.dropout' must be of the type of",
    'options.num_layers=0': "'options.num_layers' must be an integer of at least 1 (got 0)",
}


@pytest.mark.parametrize('script', [node_classification, search])
@pytest.mark.parametrize('fault', FAULTS)
def test_faults_of_the_configuration_are_named(fault, script, monkeypatch, capsys):
    for model in ('sgformer', 'gcn', 'nodeformer'):
        monkeypatch.setattr(sys, 'argv', ['x', '--model', model, '--set', fault])
        with pytest.raises(SystemExit) as end:
            script.main()
        assert end.value.code == 2
        assert f'x: error: {FAULTS[fault]}' in capsys.readouterr().err.replace(
            f'{model} does', 'does'
        )


@pytest.mark.parametrize(
    ('model', 'fault', 'message'),
    [
        ('sgformer', 'options.norm=rows', "does not take options.norm=rows ('norm' must be"),
        ('sgformer', 'options.norm=3', "'options.norm' must be of the type of 'frobenius' (got 3)"),
        (
            'sgformer',
            'options.gnn=gin',
            "'options.gnn' is gcn, sage or gat, for sgformer (got 'gin' for sgformer)",
        ),
        (
            'gcn',
            'options.gnn=sage',
            "'options.gnn' is gcn, sage or gat, for sgformer (got 'sage' for gcn)",
        ),
        (
            'nodeformer',
            'options.relational_order=-1',
            'does not take options.relational_order=-1 (',
        ),
        ('mlp', 'options.heads=2', 'mlp does not take options.heads (there are channel_list, '),
        ('mlp', 'options.norm=nonsense', 'does not take options.norm=nonsense ('),
        *(
            (
                model,
                'edge_loss_weight=0.5',
                f"'edge_loss_weight' is a setting of nodeformer (got 0.5 for {model})",
            )
            for model in ('sgformer', 'gcn')
        ),
        (
            'gcn',
            'attention_weight_decay=0.1',
            "'attention_weight_decay' is a setting of sgformer (got 0.1 for gcn)",
        ),
    ],
)
def test_faults_of_the_options_of_a_model_are_named(model, fault, message, capsys):
    with pytest.raises(SystemExit):
        node_classification.parse(['--model', model, '--set', fault])
    assert message in capsys.readouterr().err
