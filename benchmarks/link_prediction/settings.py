r"""Defines the models of the link prediction benchmark and their settings."""

from typing import Any

from benchmarks.common.attentions import GRAPH_TRANSFORMER
from benchmarks.node_classification.settings import OPTIONS

HEURISTIC = 'adamic-adar'
ENCODERS = (GRAPH_TRANSFORMER, 'sgformer', 'difformer', 'nodeformer', 'gcn', 'gat', 'sage', 'mlp')
TRAINING = {'epochs': 1000, 'patience': 10, 'every': 10, 'lr': 0.01, 'channels': 64}
# With a rate of 0.01 two models hardly learn; with 0.001 the others are not better. In some
# trainings of these models the scores rise after 100 epochs only.
SLOW = {
    'difformer': {'lr': 0.001, 'patience': 50},
    'nodeformer': {'lr': 0.001, 'patience': 50},
    'mlp': {'patience': 50},
}
# What differs from the options of node classification: many layers and a gate are worse here.
LINK_OPTIONS = {GRAPH_TRANSFORMER: {'num_layers': 2, 'num_local_layers': 0, 'gate': False}}
CONTROLS: dict[str, dict[str, dict[str, Any]]] = {
    GRAPH_TRANSFORMER: {name: {'attention': name} for name in ('mean', 'no-attention')},
    'sgformer': {'no-attention': {'beta': 0.0}},
}


def make_config(model: str, control: str | None) -> dict[str, Any]:
    r"""Returns the settings of a run."""
    if model == HEURISTIC:
        return {}
    changes = CONTROLS[model][control] if control else {}
    options = OPTIONS[model] | LINK_OPTIONS.get(model, {}) | changes
    return {**TRAINING, **SLOW.get(model, {}), 'options': options}
