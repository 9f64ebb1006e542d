r"""The settings of the node classification benchmark: defaults of each model, changed by the file of a data set in ``configs``."""

import json
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).parent / 'configs' / 'node_classification'
COMMON: dict[str, Any] = {
    'epochs': 500,
    'patience': 200,
    'lr': 0.01,
    'weight_decay': 5e-4,
    'attention_weight_decay': None,
    'edge_loss_weight': 0.0,
    'normalize_features': False,
    'precision': 'float32',
}
OPTIONS: dict[str, dict[str, Any]] = {
    'nodeformer': {'hidden_channels': 32, 'num_layers': 2, 'heads': 1, 'relational_order': 2},
    'difformer': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.2},
    'sgformer': {'hidden_channels': 64, 'alpha': 0.5, 'dropout': 0.5, 'gnn_input': 'input', 'gnn_num_layers': 2, 'gnn_dropout': 0.5},
    'gcn': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5},
    'gat': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5, 'heads': 8},
    'sage': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5},
    'mlp': {'hidden_channels': 64, 'num_layers': 2, 'dropout': 0.5, 'norm': None},
    'pyg-sgformer': {'hidden_channels': 64, 'trans_num_layers': 1, 'gnn_num_layers': 2},
    'polynormer': {'hidden_channels': 64},
}
MODELS = tuple(OPTIONS)

# What a study changes of a model, by the name of the variant: settings, the graph (``neighbors``) or the split (``protocol``). From few
# labels a model may learn nothing for longer than the patience of the others.
STUDIES: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    'nodeformer': {
        'ablation': {
            'no-edge-loss': {'edge_loss_weight': 0.0},
            'no-relational-bias': {'options': {'relational_order': 0}},
            'no-gumbel': {'options': {'num_gumbel_samples': 0}},
            'no-graph': {'neighbors': 0, 'edge_loss_weight': 0.0},
            'tempered': {'options': {'gumbel_evaluation': 'tempered'}},
        },
        'temperature': {f'temperature-{tau}': {'options': {'temperature': tau}} for tau in (0.1, 0.5, 1.0)},
        'features': {f'num_features-{number}': {'options': {'num_features': number}} for number in (10, 50, 100)},
    },
    'sgformer': {
        'ablation': {
            'no-attention': {'options': {'beta': 0.0}},
            'no-graph': {'options': {'alpha': 0.0}},
            'row-norm': {'options': {'norm': 'row'}},
        },
        'depth': {f'num_layers-{number}': {'options': {'num_layers': number}} for number in (2, 3)},
    },
    'difformer': {
        'ablation': {
            'no-graph': {'options': {'use_graph': False}},
            'row-norm': {'options': {'norm': 'row'}},
            'frobenius-norm': {'options': {'norm': 'frobenius'}},
            'sigmoid': {'options': {'kernel': 'sigmoid'}},
        },
        'depth': {f'num_layers-{number}': {'options': {'num_layers': number}} for number in (1, 2, 4, 8, 16)},
    },
}
FOR_ALL: dict[str, dict[str, dict[str, Any]]] = {
    'neighbors': {f'neighbors-{number}': {'neighbors': number} for number in (0, 5, 10, 15, 20)},
    'precision': {'bfloat16': {'precision': 'bfloat16'}},
    'labels': {f'labels-{number}': {'protocol': f'random-{number}-per-class', 'patience': 500} for number in (5, 10, 20, 40)},
}

# Accuracy in the papers: SGFormer's slides and Table 2 of DIFFormer's paper with 20 labels per class, SGFormer's slides with fixed splits,
# NodeFormer's with half of the labels. Those of Squirrel and Chameleon are of graphs without the nodes that PyG's have twice.
PUBLISHED: dict[tuple[str, str], dict[str, float]] = {
    ('cora', 'published-20-per-class'): {'gcn': 0.816, 'nodeformer': 0.822, 'difformer': 0.859, 'sgformer': 0.845},
    ('citeseer', 'published-20-per-class'): {'gcn': 0.716, 'nodeformer': 0.725, 'difformer': 0.735, 'sgformer': 0.726},
    ('pubmed', 'published-20-per-class'): {'gcn': 0.788, 'nodeformer': 0.799, 'difformer': 0.818, 'sgformer': 0.803},
    ('actor', 'fixed-splits'): {'gcn': 0.301, 'nodeformer': 0.369, 'sgformer': 0.379},
    ('cora', 'published-50-25-25'): {'nodeformer': 0.8869},
    ('citeseer', 'published-50-25-25'): {'nodeformer': 0.7633},
    ('actor', 'random-50-25-25'): {'nodeformer': 0.3531},
}


STUDY_NAMES = tuple(dict.fromkeys([*(name for known in STUDIES.values() for name in known), *FOR_ALL]))


def studies(model: str) -> dict[str, dict[str, dict[str, Any]]]:
    return STUDIES.get(model, {}) | FOR_ALL


def settings(dataset: str, protocol: str | None, model: str) -> tuple[str, dict[str, Any]]:
    r"""The protocol and the configuration of a model: its defaults, changed by the data set's file, there for all models (``common``), for
    the model, and for the model under the protocol."""
    path = CONFIGS / f'{Path(dataset).stem}.json'
    file = json.loads(path.read_text()) if path.exists() else {}
    protocol = protocol or file.get('protocol', 'random-60-20-20')
    config = COMMON | {'options': OPTIONS[model]}
    for part in (file.get('common', {}), file.get(model, {}), file.get(protocol, {}).get(model, {})):
        config = merged(config, part)
    return protocol, config


def merged(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    r"""The configuration with changes; those of :obj:`options` change the options one by one.

    Raises:
        ValueError: If there is no such setting.
    """
    unknown = sorted(set(changes) - set(config))
    if unknown:
        raise ValueError(f'no such setting: {", ".join(unknown)} (there are {", ".join(config)})')
    return config | changes | {'options': config['options'] | changes.get('options', {})}
