r"""Defines the settings of trainings on one large graph."""

import argparse
from typing import Any

from benchmarks.common.scripts import variant_name

DOMAINS = {
    'graph': 'the graph',
    'partition': 'a random part of the nodes',
    'training': 'a random part of the training nodes',
    'batch': 'a sampled batch',
    'memory': 'all nodes, those outside the batch as some steps ago',
}
SAMPLED = ('batch', 'memory')  # the domains of sampled neighbourhoods
BASE: dict[str, Any] = {
    'domain': 'graph',
    'batch_size': 10_000,
    'fan_out': [15, 10, 5],
    'refresh': 0,  # steps between two updates of the states of all nodes; 0: once an epoch
    'inference_batch_size': 8192,
    'inference_on_cpu': False,  # scores all nodes on the CPU, whatever the device of the training
    'validation': 'all',  # in training: of 'all' nodes, or 'sampled' neighbourhoods
    'weight_decay': 0.0,
    'edge_loss': 0.0,
    'edge_loss_mean': 'nodes',  # or 'edges', as the authors of NodeFormer average
    'epochs': 1000,
    'patience': 20,
    'every': 9,
}


NODEFORMER_OPTIONS: dict[str, Any] = {
    'num_layers': 3,
    'num_features': 50,
    'num_gumbel_samples': 5,
    'relational_weight': 'identity',
    'activate_layers': True,
    'jumping_knowledge': True,
}
# The training of NodeFormer's authors on large graphs (--protocol nodeformer), at a fixed rate and
# without an early stop.
NODEFORMER_PROTOCOL: dict[str, Any] = {
    'hidden_channels': 64,
    'lr': 1e-2,
    'domain': 'training',
    'inference_on_cpu': True,
    'edge_loss_mean': 'edges',
    'epochs': 1000,
    'patience': 1000,
    'every': 9,
    'options': {**NODEFORMER_OPTIONS, 'gumbel_evaluation': 'tempered'},
}
# The batches of SGFormer's authors on ogbn-papers100M, who validate after each epoch, without an
# early stop. A checkpoint follows a validation: a killed run loses an epoch at most.
PAPERS100M_SHARED: dict[str, Any] = {
    'lr': 1e-2,
    'domain': 'batch',
    'batch_size': 1000,
    'fan_out': [15, 10, 5],
    'validation': 'sampled',
    'inference_batch_size': 100_000,
    'epochs': 50,
    'patience': 50,
    'every': 1,
}
PAPERS100M_SGFORMER = {
    'gnn_num_layers': 3,
    'gnn_residual': 'initial',
    'gnn_use_init': True,
    'alpha': 0.8,
    'dropout': 0.5,
    'gnn_dropout': 0.2,
}
PAPERS100M: dict[str, dict[str, Any]] = {
    'sgformer': {
        **PAPERS100M_SHARED,
        'hidden_channels': 256,
        'lr': 1e-3,
        'weight_decay': 1e-5,
        'options': PAPERS100M_SGFORMER,
    },
    'nodeformer': {
        **PAPERS100M_SHARED,
        'hidden_channels': 64,
        'options': {'num_layers': 3, 'num_gumbel_samples': 5},
    },
    'difformer': {**PAPERS100M_SHARED, 'hidden_channels': 256, 'options': {'num_layers': 3}},
}


def check_protocol(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    r"""Ends the script if the protocol of NodeFormer is asked for with another model."""
    if args.protocol == 'nodeformer' and args.model != 'nodeformer':
        parser.error(
            f'--protocol nodeformer is for --model nodeformer (got {args.model}); choose another '
            'protocol or this model'
        )


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
