r"""Defines and checks the settings of node classifiers: defaults of each model, overridden by the
file of a data set in ``configs``."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common.attentions import ATTENTIONS
from benchmarks.common.names import hint
from benchmarks.node_classification.attentions import REPLACEMENTS
from benchmarks.node_classification.metrics import METRICS

CONFIGS = Path(__file__).parent / 'configs'
COMMON: dict[str, Any] = {
    'epochs': 500,
    'patience': 200,
    'lr': 0.01,
    'weight_decay': 5e-4,
    'attention_weight_decay': None,
    'edge_loss_weight': 0.0,
    'normalize_features': False,
    'laplacian_pe': 0,
    'wrong_edges': 0.0,
    'precision': 'float32',
    'metric': 'accuracy',
}
OPTIONS: dict[str, dict[str, Any]] = {
    'nodeformer': {'hidden_channels': 32, 'num_layers': 2, 'heads': 1, 'relational_order': 2},
    'difformer': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.2},
    'sgformer': {
        'hidden_channels': 64,
        'alpha': 0.5,
        'dropout': 0.5,
        'gnn_input': 'input',
        'gnn_num_layers': 2,
        'gnn_dropout': 0.5,
    },
    'graphtransformer': {
        'hidden_channels': 64,
        'num_layers': 1,
        'num_local_layers': 7,
        'gate': True,
        'input_norm': True,
        'heads': 4,
        'dropout': 0.5,
        'input_dropout': 0.15,
        'attention': 'learned',
    },
    'gcn': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5},
    'gat': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5, 'heads': 8},
    'sage': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5},
    'sgc': {'K': 2},
    'jknet': {'hidden_channels': 32, 'num_layers': 2, 'dropout': 0.5, 'jk': 'max'},
    'appnp': {'hidden_channels': 64, 'num_layers': 2, 'K': 10, 'alpha': 0.1, 'dropout': 0.5},
    'gprgnn': {
        'hidden_channels': 64,
        'num_layers': 2,
        'K': 10,
        'alpha': 0.1,
        'dropout': 0.5,
        'propagation_dropout': 0.5,
    },
    'mixhop': {'hidden_channels': 20, 'num_layers': 2, 'dropout': 0.5},
    'sign': {'hidden_channels': 64, 'K': 2, 'dropout': 0.5},
    'mlp': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5, 'norm': None},
    'pyg-sgformer': {'hidden_channels': 64, 'trans_num_layers': 1, 'gnn_num_layers': 2},
    'polynormer': {'hidden_channels': 64},
}
MODELS = tuple(OPTIONS)
# What the defaults of a model change in the settings above.
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    'graphtransformer': {'laplacian_pe': 16},
    'polynormer': {'local_epochs': 100},
    'sgc': {'lr': 0.2, 'weight_decay': 5e-6},
}

# What each variant of a study overrides: settings, the graph (``neighbors``) or the split
# (``protocol``). With few labels the validation accuracy may stay flat for more epochs than the
# usual patience.
STUDIES: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    'nodeformer': {
        'ablation': {
            'no-edge-loss': {'edge_loss_weight': 0.0},
            'no-relational-bias': {'options': {'relational_order': 0}},
            'no-gumbel': {'options': {'num_gumbel_samples': 0}},
            'no-graph': {'neighbors': 0, 'edge_loss_weight': 0.0},
            'tempered': {'options': {'gumbel_evaluation': 'tempered'}},
        },
        'temperature': {
            f'temperature-{tau}': {'options': {'temperature': tau}} for tau in (0.1, 0.5, 1.0)
        },
        'features': {
            f'num_features-{number}': {'options': {'num_features': number}}
            for number in (10, 50, 100)
        },
    },
    'sgformer': {
        'ablation': {
            'no-attention': {'options': {'beta': 0.0}},
            'no-graph': {'options': {'alpha': 0.0}},
            'row-norm': {'options': {'norm': 'row'}},
        },
        'depth': {f'num_layers-{number}': {'options': {'num_layers': number}} for number in (2, 3)},
        'attention': {
            f'attention-{name}': {'options': {'attention': name}}
            for name in REPLACEMENTS['sgformer']
        },
    },
    'graphtransformer': {
        'attention': {
            name: {'options': {'attention': name}}
            for name in ATTENTIONS
            if name not in ('learned', 'positions')
        },
        'gate': {'no-gate': {'options': {'gate': False}}},
        'depth': {
            f'num_local_layers-{number}': {'options': {'num_local_layers': number}}
            for number in (1, 3, 5)
        },
    },
    'polynormer': {'attention': {'no-attention': {'local_epochs': None}}},
    'difformer': {
        'ablation': {
            'no-graph': {'options': {'use_graph': False}},
            'row-norm': {'options': {'norm': 'row'}},
            'frobenius-norm': {'options': {'norm': 'frobenius'}},
            'sigmoid': {'options': {'kernel': 'sigmoid'}},
        },
        'attention': {name: {'options': {'attention': name}} for name in REPLACEMENTS['difformer']},
        'depth': {
            f'num_layers-{number}': {'options': {'num_layers': number}}
            for number in (1, 2, 4, 8, 16)
        },
    },
}
FOR_ALL: dict[str, dict[str, dict[str, Any]]] = {
    'neighbors': {f'neighbors-{number}': {'neighbors': number} for number in (0, 5, 10, 15, 20)},
    'wrong_edges': {f'wrong_edges-{share}': {'wrong_edges': share} for share in (0.25, 0.5, 0.75)},
    'precision': {'bfloat16': {'precision': 'bfloat16'}},
    'encodings': {f'laplacian_pe-{number}': {'laplacian_pe': number} for number in (0, 16)},
    'labels': {
        f'labels-{number}': {'protocol': f'random-{number}-per-class', 'patience': 500}
        for number in (5, 10, 20, 40)
    },
}

# Accuracy in the papers: SGFormer's slides and Table 2 of DIFFormer's paper with 20 labels per
# class, SGFormer's slides with fixed splits, NodeFormer's with half of the labels.
PUBLISHED: dict[tuple[str, str], dict[str, float]] = {
    ('cora', 'published-20-per-class'): {
        'gcn': 0.816,
        'gat': 0.830,
        'sgc': 0.801,
        'jknet': 0.818,
        'appnp': 0.833,
        'sign': 0.821,
        'nodeformer': 0.822,
        'difformer': 0.859,
        'sgformer': 0.845,
    },
    ('citeseer', 'published-20-per-class'): {
        'gcn': 0.716,
        'gat': 0.721,
        'sgc': 0.719,
        'jknet': 0.707,
        'appnp': 0.718,
        'sign': 0.724,
        'nodeformer': 0.725,
        'difformer': 0.735,
        'sgformer': 0.726,
    },
    ('pubmed', 'published-20-per-class'): {
        'gcn': 0.788,
        'gat': 0.790,
        'sgc': 0.787,
        'jknet': 0.788,
        'appnp': 0.801,
        'sign': 0.795,
        'nodeformer': 0.799,
        'difformer': 0.818,
        'sgformer': 0.803,
    },
    ('actor', 'fixed-splits'): {
        'gcn': 0.301,
        'gat': 0.298,
        'sgc': 0.270,
        'jknet': 0.308,
        'appnp': 0.313,
        'sign': 0.365,
        'nodeformer': 0.369,
        'sgformer': 0.379,
    },
    ('squirrel-filtered', 'fixed-splits'): {
        'gcn': 0.386,
        'gat': 0.356,
        'sgc': 0.393,
        'jknet': 0.394,
        'appnp': 0.353,
        'sign': 0.407,
        'nodeformer': 0.385,
        'sgformer': 0.418,
    },
    ('chameleon-filtered', 'fixed-splits'): {
        'gcn': 0.413,
        'gat': 0.392,
        'sgc': 0.390,
        'jknet': 0.394,
        'appnp': 0.384,
        'sign': 0.417,
        'nodeformer': 0.347,
        'sgformer': 0.449,
    },
    ('cora', 'published-50-25-25'): {'nodeformer': 0.8869},
    ('citeseer', 'published-50-25-25'): {'nodeformer': 0.7633},
    ('actor', 'random-50-25-25'): {'nodeformer': 0.3531},
}


STUDY_NAMES = tuple(
    dict.fromkeys([*(name for known in STUDIES.values() for name in known), *FOR_ALL])
)


def studies(model: str) -> dict[str, dict[str, dict[str, Any]]]:
    r"""Returns the studies of a model: the overrides of each variant, by study."""
    return STUDIES.get(model, {}) | FOR_ALL


def settings(dataset: str, protocol: str | None, model: str) -> tuple[str, dict[str, Any]]:
    r"""Returns the protocol and the configuration of a model. The file of the data set overrides
    the defaults for all models (``common``), for the model, and for the model under the
    protocol."""
    path = CONFIGS / f'{Path(dataset).stem}.json'
    file = json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
    protocol = protocol or file.get('protocol', 'random-60-20-20')
    config = COMMON | {'options': OPTIONS[model]} | MODEL_SETTINGS.get(model, {})
    for part in (
        file.get('common', {}),
        file.get(model, {}),
        file.get(protocol, {}).get(model, {}),
    ):
        config = merged(config, part)
    return protocol, config


def merged(config: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    r"""Merges overrides into a configuration; :obj:`options` are merged one by one.

    Raises:
        ValueError: If a setting does not exist.
    """
    unknown = sorted(set(overrides) - set(config))
    if unknown:
        raise ValueError(f'no such setting: {unknown[0]}{hint(unknown[0], config)}')
    return config | overrides | {'options': config['options'] | overrides.get('options', {})}


def _is_number(value: Any, least: float = 0.0) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and least <= value < math.inf
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    'epochs': (_is_count, 'an integer of at least 1'),
    'patience': (_is_count, 'an integer of at least 1'),
    'lr': (lambda value: _is_number(value) and value > 0, 'a number above 0'),
    'weight_decay': (_is_number, 'a number of at least 0'),
    'attention_weight_decay': (
        lambda value: value is None or _is_number(value),
        'null or a number of at least 0',
    ),
    'edge_loss_weight': (_is_number, 'a number of at least 0'),
    'normalize_features': (lambda value: isinstance(value, bool), 'true or false'),
    'laplacian_pe': (
        lambda value: type(value) is int and value >= 0,
        'an integer of at least 0, the number of encodings beside the features',
    ),
    'wrong_edges': (
        lambda value: _is_number(value) and value <= 1,
        'a number from 0 to 1, the share of edges that random pairs replace',
    ),
    'precision': (lambda value: value in ('float32', 'bfloat16'), 'float32 or bfloat16'),
    'metric': (lambda value: value in tuple(METRICS), ' or '.join(METRICS)),
    'local_epochs': (
        lambda value: value is None or (type(value) is int and value >= 0),
        'null or an integer of at least 0, the epochs before the attention starts',
    ),
}


def check_settings(config: dict[str, Any], model: str) -> None:
    r"""Checks all settings but the options.

    Raises:
        ValueError: If a value is of another type or out of range.
    """
    for name, (fits, text) in RULES.items():
        if name in config and not fits(config[name]):
            raise ValueError(f"'{name}' must be {text} (got {config[name]!r})")
    if (config.get('local_epochs') or 0) >= config['epochs']:
        raise ValueError(
            f"'local_epochs' must be less than 'epochs', {config['epochs']} (got "
            f'{config["local_epochs"]})'
        )
    for name, owner in (('edge_loss_weight', 'nodeformer'), ('attention_weight_decay', 'sgformer')):
        if config[name] != COMMON[name] and model != owner:
            raise ValueError(f"'{name}' is a setting of {owner} (got {config[name]!r} for {model})")


def check_options(options: dict[str, Any], defaults: dict[str, Any]) -> None:
    r"""Checks options by the types of their defaults.

    Raises:
        ValueError: If a value is of another type, or a size is below 1.
    """
    for name, value in options.items():
        default = defaults.get(name)
        fits = (
            _is_number(value, -math.inf)
            if isinstance(default, float)
            else type(value) is type(default)
        )
        if isinstance(default, bool | int | float | str) and value is not None and not fits:
            raise ValueError(f"'options.{name}' must be of the type of {default!r} (got {value!r})")
        if name in ('hidden_channels', 'num_layers', 'heads', 'K') and not _is_count(value):
            raise ValueError(f"'options.{name}' must be an integer of at least 1 (got {value!r})")
