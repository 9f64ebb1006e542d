import json

import pytest
import torch

from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification.datasets import PROTOCOLS
from benchmarks.node_classification.models import (
    MODELS,
    make,
)
from benchmarks.node_classification.settings import (
    CONFIGS,
    OPTIONS,
    PUBLISHED,
    check_settings,
    merged,
    settings,
    studies,
)


def test_studies_name_options_that_exist():
    for model in MODELS:
        for name in studies(model):
            _, plans = node_classification.parse(
                ['--dataset', 'cora', '--model', model, '--study', name]
            )
            assert len({plan.variant for plan in plans}) == len(plans)
            assert all(
                plan[1:] != ('published-20-per-class', None, settings('cora', None, model)[1])
                for plan in plans
            )
            for plan in plans:
                assert plan.protocol in PROTOCOLS
                make(model, 5, 3, torch.tensor([[0], [1]]), 4, plan.config['options'])


def test_settings_files_name_what_exists():
    made = []
    for path in CONFIGS.glob('*.json'):
        for protocol in (None, *json.loads(path.read_text())):
            for model in MODELS:
                chosen_protocol, config = settings(
                    path.stem,
                    protocol if protocol in PROTOCOLS else None,
                    model,
                )
                assert chosen_protocol in PROTOCOLS
                check_settings(config, model)
                if (model, config['options']) not in made:
                    make(model, 5, 3, torch.tensor([[0], [1]]), 4, config['options'])
                    made.append((model, config['options']))
    assert (
        {model for figures in PUBLISHED.values() for model in figures}
        <= set(OPTIONS)
        == set(MODELS)
    )
    with pytest.raises(ValueError, match='no such setting: rate'):
        merged({'lr': 1, 'options': {}}, {'rate': 2})


@pytest.mark.parametrize(
    ('dataset', 'share'),
    [
        ('cora', 0.8),
        ('citeseer', 0.7),
        ('pubmed', 0.8),
        ('actor', 0.5),
        ('deezer', 0.8),
        ('chameleon-filtered', 0.8),
        ('squirrel-filtered', 0.8),
    ],
)
def test_share_of_the_local_branch_in_the_commands_of_sgformer(dataset, share):
    """Their program has graph_weight=0.8 unless a command says otherwise."""
    assert settings(dataset, None, 'sgformer')[1]['options']['alpha'] == share


def test_epochs_before_the_attention_of_polynormer():
    config = settings('reed98', None, 'polynormer')[1]
    assert (config['local_epochs'], config['epochs']) == (100, 500)
    for value in (-1, 2.0, True, 'none'):
        with pytest.raises(ValueError, match='must be null or an integer of at least 0'):
            check_settings(config | {'local_epochs': value}, 'polynormer')
    with pytest.raises(ValueError, match=r"less than 'epochs', 100 \(got 100\)"):
        check_settings(config | {'epochs': 100}, 'polynormer')
    for value in (None, 0, 499):
        check_settings(config | {'local_epochs': value}, 'polynormer')
    with pytest.raises(ValueError, match='no such setting: local_epochs'):
        merged(settings('reed98', None, 'gcn')[1], {'local_epochs': 3})
