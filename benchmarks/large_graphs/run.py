r"""Trains node classifiers on one large graph, for the scripts of ``benchmarks/ogb`` and others."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.common.arguments import (
    Parser,
    add_device,
    add_root,
    add_seeds,
    file_name_part,
    positive,
    script_parser,
)
from benchmarks.common.results import read_results, write_result
from benchmarks.common.seeds import Schedule, train_seeds
from benchmarks.common.training import Training, checkpoint, fingerprint
from benchmarks.large_graphs.batches import Batches, measure_scores, validation_scores
from benchmarks.large_graphs.datasets import NodeTask
from benchmarks.large_graphs.models import MODELS, loss_of, network
from benchmarks.large_graphs.report import leaderboard_row
from benchmarks.large_graphs.settings import DOMAINS
from torch_geometric_lgt.data import MappedGraph


def make_parser(
    description: str | None, layout: str, protocols: tuple[str, ...] = ('published',)
) -> Parser:
    r"""Makes the parser of a script, with the :obj:`layout` of the data in ``--root``."""
    parser = script_parser(description)
    add_root(parser, layout)
    parser.groups['data'].add_argument(
        '--download', action='store_true', help='download the data set if it is not there'
    )
    parser.groups['model'].add_argument(
        '--model', choices=MODELS, default='sgformer', help='the model that is trained'
    )
    parser.groups['model'].add_argument(
        '--domain',
        choices=DOMAINS,
        help='what a node attends to in training (default: the setting of the model)',
    )
    parser.groups['data'].add_argument(
        '--protocol',
        choices=protocols,
        default=protocols[0],
        help='the rule of the split; nodeformer also trains as its authors'
        if 'nodeformer' in protocols
        else 'the rule of the split',
    )
    add_seeds(parser, [*range(10)])
    parser.groups['training'].add_argument(
        '--epochs', type=positive, help='epochs at most (default: the setting of the model)'
    )
    parser.groups['model'].add_argument(
        '--variant',
        type=file_name_part,
        default='',
        help=(
            'name of a configuration that is not the default (default: what differs, as '
            'domain-memory)'
        ),
    )
    add_device(parser)
    return parser


def graph_content(data: Any) -> dict[str, Tensor] | str:
    r"""Returns the tensors of a graph. For a mapped graph it returns the checksums of the files,
    without reading the files."""
    if isinstance(data, MappedGraph):
        return json.dumps({name: file.sha256 for name, file in data.files.items()}, sort_keys=True)
    return {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}


def files_of(data: Any, name: str) -> Path | None:
    r"""Returns the folder beside a mapped graph for the layers of the training :obj:`name`, and
    :obj:`None` for a graph in memory."""
    if not isinstance(data, MappedGraph):
        return None
    return data.folder.with_name(f'{data.folder.name}-{name}')


def run(
    name: str,
    task: NodeTask,
    config: dict[str, Any],
    args: argparse.Namespace,
    result_folder: str = 'ogb',
) -> None:
    r"""Trains and measures a model for each seed, writes the result and prints a row for the
    leaderboard."""
    read_results(args.output / result_folder)
    if isinstance(task.data, Data):
        task.data.train_mask = torch.zeros(task.data.num_nodes, dtype=torch.bool).index_fill_(
            0, task.split['train'], True
        )
    content = fingerprint(graph_content(task.data), task.split)

    def metric_of(scores: Tensor, part: str) -> float:
        nodes = task.split[part]
        return task.measure(scores[nodes], task.data['y'][nodes])

    def valid_metric(model: torch.nn.Module, batches: Batches) -> float:
        scores = validation_scores(model, batches)
        if scores is None:
            return measure_scores(model, batches, partial(metric_of, part='valid'))
        return task.measure(scores, task.data['y'][task.split['valid']])

    def prepare(seed: int) -> Training:
        torch.manual_seed(seed)
        path = checkpoint(config['model'], name, [name, args.protocol, config, seed], content)
        model = network(task, config).to(args.device)
        batches = Batches(task, model, config, files_of(task.data, path.stem))
        optimizer = torch.optim.Adam(
            model.parameters(), lr=config['lr'], weight_decay=config['weight_decay']
        )
        return Training(
            model,
            optimizer,
            partial(
                loss_of,
                binary=task.binary,
                edge_loss_weight=config['edge_loss'],
                edge_loss_mean=config['edge_loss_mean'],
            ),
            lambda: batches,
            partial(valid_metric, batches=batches),
            path,
        )

    @torch.no_grad()
    def measure(training: Training, seed: int) -> dict[str, float]:
        metrics = measure_scores(
            training.model.eval(),
            training.batches(),
            lambda scores: {part: metric_of(scores, part) for part in task.split},
        )
        return {task.metric: metrics['test']} | {
            f'{part}_{task.metric}': metrics[part] for part in ('valid', 'train')
        }

    results = train_seeds(
        args.seeds,
        prepare,
        measure,
        Schedule(config['epochs'], config['patience'], config['every']),
        name,
        print_metrics=False,
    )
    path = write_result(
        result_folder,
        name,
        config['model'],
        variant=args.variant,
        protocol=args.protocol,
        seeds=args.seeds,
        metrics=results.metrics,
        config=config | {'attention_over': DOMAINS[config['domain']]},
        parameters=results.parameters,
        epoch_seconds=results.training.seconds / results.training.epoch,
        peak_memory_mib=results.peak_memory_mib,
        training_commits=results.training_commits,
        data=content,
        folder=args.output,
        protocol_in_name=True,
    )
    print(path)
    print(leaderboard_row(path, task.metric))
