r"""Defines the settings of trainings on one large graph."""

import argparse
from typing import Any

from benchmarks.common.scripts import variant_name

DOMAINS = {
    'graph': 'the graph',
    'partition': 'a random part of the nodes',
    'batch': 'a sampled batch',
    'memory': 'all nodes, those outside the batch as some steps ago',
}
BASE: dict[str, Any] = {
    'domain': 'graph',
    'batch_size': 10_000,
    'fan_out': [15, 10, 5],
    'refresh': 0,  # steps between two updates of the states of all nodes; 0: once an epoch
    'inference_batch_size': 8192,
    'validation': 'all',  # in training: of 'all' nodes, or 'sampled' neighbourhoods
    'weight_decay': 0.0,
    'edge_loss': 0.0,
    'epochs': 1000,
    'patience': 20,
    'every': 9,
}


def make_config(defaults: dict[str, dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    r"""Merges the arguments of the user into the configuration of the chosen model. If the result
    differs from the default, :obj:`args` gets a name of the variant."""
    config = {**BASE, **defaults[args.model], 'model': args.model}
    overrides = {
        name: getattr(args, name)
        for name in ('domain', 'epochs')
        if getattr(args, name) is not None
    }
    args.variant = args.variant or variant_name(
        {name: value for name, value in overrides.items() if value != config[name]}
    )
    return config | overrides
