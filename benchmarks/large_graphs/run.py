r"""Node classification on one large graph: what the scripts of benchmarks/ogb have in common."""

# N nodes.
import argparse
import copy
import json
import resource
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch_geometric.data import Data

from benchmarks.common.results import machine, read_results, write_result
from benchmarks.common.scripts import add_root, add_seeds, script_parser, variant_name
from benchmarks.common.tables import spread
from benchmarks.common.training import Training, add_device, checkpoint, fingerprint
from benchmarks.large_graphs.datasets import NodeTask
from torch_geometric_lgt.data import MappedGraph
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.loader import NeighborLoader, NodePartitionLoader
from torch_geometric_lgt.nn import DIFFormer, NodeFormer, SGFormer

MODELS = {'nodeformer': NodeFormer, 'difformer': DIFFormer, 'sgformer': SGFormer}
DOMAINS = {
    'graph': 'the graph',
    'partition': 'a random part of the nodes',
    'batch': 'a sampled batch',
    'memory': 'all nodes, those outside the batch as some steps ago',
}


def random_split(
    num_nodes: int, shares: tuple[float, float], generator: torch.Generator
) -> dict[str, Tensor]:
    r"""Shares of the nodes for training and validation, the rest for the test."""
    sizes = [int(share * num_nodes) for share in shares]
    parts = torch.randperm(num_nodes, generator=generator).split([*sizes, num_nodes - sum(sizes)])
    return dict(zip(('train', 'valid', 'test'), parts, strict=True))


def network(task: NodeTask, config: dict[str, Any]) -> torch.nn.Module:
    r"""The model of a configuration."""
    return MODELS[config['model']](
        task.data['x'].size(1), config['hidden_channels'], task.num_outputs, **config['options']
    )


class Batch(NamedTuple):
    r"""A part of the graph, which of its nodes are trained, and with a memory the states of all
    others in each layer."""

    data: Data
    train: Tensor
    states: list[AttentionState] | None

    def to(self, device: torch.device) -> 'Batch':
        return Batch(self.data.to(device), self.train.to(device), self.states)


class Batches:
    r"""The batches of an epoch, by what a node attends to."""

    def __init__(self, task: NodeTask, model: Any, config: dict[str, Any]) -> None:
        data, self.model, self.domain, self.refresh = (
            task.data,
            model,
            config['domain'],
            config['refresh'],
        )
        if isinstance(data, MappedGraph):
            if self.domain in ('graph', 'partition'):
                raise SystemExit(
                    'a graph in files is trained with --domain batch or memory (got '
                    f'{self.domain!r})'
                )
            data = (data, data)
        self.whole = NeighborLoader(data, [-1], batch_size=config['inference_batch_size'])
        if self.domain == 'graph':
            self.loader: Any = [copy.copy(data).to(next(model.parameters()).device)]
        elif self.domain == 'partition':
            self.loader = NodePartitionLoader(data, config['batch_size'])
        else:
            sizes = {
                'batch_size': config['batch_size'],
                'input_nodes': task.split['train'],
                'shuffle': True,
            }
            self.loader = NeighborLoader(data, config['fan_out'], **sizes)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        memory = None
        for step, data in enumerate(self.loader):
            if self.domain == 'memory' and step % (self.refresh or len(self)) == 0:
                memory = self.model.attention_memory(self.whole)
            sampled = self.domain in ('batch', 'memory')
            train = (
                torch.arange(data.batch_size) if sampled else data.train_mask.nonzero().flatten()
            )
            yield Batch(data, train, None if memory is None else memory.without(data.n_id[train]))


def loss_of(model: torch.nn.Module, batch: Batch, binary: bool, edge_loss: float) -> Tensor:
    r"""The loss of the training nodes of a batch, with NodeFormer's edge loss times
    :obj:`edge_loss`."""
    data, train, states = batch
    arguments: dict[str, Any] = (
        {} if states is None else {'states': states, 'num_keys': train.numel()}
    )
    if edge_loss > 0:
        arguments['return_edge_loss'] = True
    found = model(data.x.float(), data.edge_index, **arguments)
    out, own = found if edge_loss > 0 else (found, 0.0)
    out, y = out[train], data.y[train]
    loss = (
        binary_cross_entropy_with_logits(out, y.to(out.dtype))
        if binary
        else cross_entropy(out, y.squeeze(1).long())
    )
    return loss + edge_loss * own


def scores_of(model: Any, batches: Batches) -> Tensor:
    r"""The scores of all nodes; attention is over the graph whatever it was in training."""
    if batches.domain == 'graph':
        data = batches.loader[0]
        return model(data.x, data.edge_index)
    return model.inference(batches.whole)


def graph_content(data: Any) -> dict[str, Tensor] | str:
    r"""The tensors of a graph, or of one in files their checksums, none of which is read."""
    if isinstance(data, MappedGraph):
        return json.dumps({name: file.sha256 for name, file in data.files.items()}, sort_keys=True)
    return {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}


def run(
    name: str, task: NodeTask, config: dict[str, Any], args: argparse.Namespace, kind: str = 'ogb'
) -> None:
    r"""Trains with each seed, writes the result and prints a row for the leaderboard."""
    read_results(args.output / kind)
    if isinstance(task.data, Data):
        task.data.train_mask = torch.zeros(task.data.num_nodes, dtype=torch.bool).index_fill_(
            0, task.split['train'], True
        )
    content = fingerprint(graph_content(task.data), task.split)
    found: dict[str, list[float]] = {}
    training = None
    for seed in args.seeds:
        torch.manual_seed(seed)
        model = network(task, config).to(args.device)
        batches = Batches(task, model, config)
        optimizer = torch.optim.Adam(
            model.parameters(), lr=config['lr'], weight_decay=config['weight_decay']
        )

        def part(model: torch.nn.Module, name: str, batches: Batches = batches) -> float:
            nodes = task.split[name]
            return task.measure(scores_of(model, batches).cpu()[nodes], task.data['y'][nodes])

        loss = partial(loss_of, binary=task.binary, edge_loss=config['edge_loss'])
        path = checkpoint(config['model'], name, [name, args.protocol, config, seed], content)
        training = Training(
            model,
            optimizer,
            loss,
            lambda batches=batches: batches,
            partial(part, name='valid'),
            path,
        )
        training.fit(
            config['epochs'],
            config['patience'],
            config['every'],
            f'{name}, seed {seed}',
            lambda *_: None,
        )
        with torch.no_grad():
            scores = scores_of(training.model.eval(), batches).cpu()
        figures = {
            split: task.measure(scores[nodes], task.data['y'][nodes])
            for split, nodes in task.split.items()
        }
        for metric, value in {
            task.metric: figures['test'],
            **{f'{key}_{task.metric}': figures[key] for key in ('valid', 'train')},
        }.items():
            found.setdefault(metric, []).append(value)
    parameters = sum(parameter.numel() for parameter in training.model.parameters())
    path = write_result(
        kind,
        name,
        config['model'],
        variant=args.variant,
        protocol=args.protocol,
        seeds=args.seeds,
        metrics=found,
        config=config | {'attention_over': DOMAINS[config['domain']]},
        parameters=parameters,
        epoch_seconds=training.seconds / training.epoch,
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        data=content,
        folder=args.output,
        protocol_in_name=True,
    )
    print(path)
    print(row(path, task.metric))


def row(path: Path, metric: str) -> str:
    r"""The row for the leaderboard: means and unbiased standard deviations."""
    record = json.loads(path.read_text())
    hardware = machine()['gpu'] or machine()['cpu']
    versions = ', '.join(
        f'{name} {record["versions"][name]}'
        for name in ('torch', 'torch-geometric', 'torch-geometric-lgt')
    )
    cells = [
        f'{record["model"]} (attention over {record["config"]["attention_over"]})',
        spread(record, metric),
        spread(record, f'valid_{metric}'),
        f'{record["parameters"]:,}',
        f'{len(record["seeds"])} seeds',
        f'{hardware}, {machine()["memory_gib"]} GiB',
        versions,
    ]
    return f'| {" | ".join(cells)} |'


def arguments(
    description: str | None, layout: str, protocols: tuple[str, ...] = ('published',)
) -> argparse.ArgumentParser:
    r"""Makes the parser of a script, with the :obj:`layout` of the data in ``--root``."""
    parser = script_parser(description)
    add_root(parser, layout)
    parser.add_argument(
        '--download', action='store_true', help='download the data set if it is not there'
    )
    parser.add_argument(
        '--model', choices=MODELS, default='sgformer', help='the model that is trained'
    )
    parser.add_argument(
        '--domain',
        choices=DOMAINS,
        help='what a node attends to in training (default: as published)',
    )
    parser.add_argument(
        '--protocol', choices=protocols, default=protocols[0], help='the rule of the split'
    )
    add_seeds(parser, [*range(10)])
    parser.add_argument('--epochs', type=int, help='at most (default: as published)')
    parser.add_argument(
        '--variant',
        default='',
        help=(
            'name of a configuration that is not the default (default: what differs, as '
            'domain-memory)'
        ),
    )
    add_device(parser)
    return parser


def configured(defaults: dict[str, dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    r"""The configuration of the chosen model with what was told, and in :obj:`args` a name for it
    if it is not the default."""
    config = {**BASE, **defaults[args.model], 'model': args.model}
    given = {
        name: getattr(args, name)
        for name in ('domain', 'epochs')
        if getattr(args, name) is not None
    }
    args.variant = args.variant or variant_name(
        {name: value for name, value in given.items() if value != config[name]}
    )
    return config | given


BASE: dict[str, Any] = {
    'domain': 'graph',
    'batch_size': 10_000,
    'fan_out': [15, 10, 5],
    'refresh': 0,  # steps after which the states of all nodes are found anew; 0: once an epoch
    'inference_batch_size': 8192,
    'weight_decay': 0.0,
    'edge_loss': 0.0,
    'epochs': 1000,
    'patience': 20,
    'every': 9,
}
