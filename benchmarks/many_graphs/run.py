r"""One run of a network on many graphs, for benchmarks/sbm.py and benchmarks/tsp.py: the published
protocol of "Benchmarking Graph Neural Networks", Adam with a learning rate that is halved when the
validation loss stalls."""

import argparse
import json
import resource
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from benchmarks.common.figures import require_drawing
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import add_root, add_seeds, add_table, script_parser, source
from benchmarks.common.training import (
    Plateau,
    Training,
    add_device,
    checkpoint,
    curves,
    fingerprint,
)
from benchmarks.many_graphs.models import Transformer, network
from benchmarks.many_graphs.plots import draw
from benchmarks.many_graphs.report import report
from torch_geometric_lgt.datasets._generated import GeneratedDataset
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    RandomSignFlip,
)

Metric = Callable[[Tensor, Tensor], float]
Splits = dict[str, GeneratedDataset]
Config = dict[str, Any]
PICTURED = 100  # graphs
TRAINING: Config = {
    'epochs': 1000,
    'patience': 10,
    'lr': 1e-3,
    'least_lr': 1e-6,
    'batch_size': 32,
    'hidden_channels': 80,
}
PRESETS: dict[str, Config] = {
    'full': {'graphs': None, 'layers': None, 'training': {}},
    'small': {
        'graphs': {'train': 1000, 'val': 200, 'test': 200},
        'layers': 4,
        'training': {'epochs': 20, 'patience': 3, 'least_lr': 1e-5, 'hidden_channels': 40},
    },
}


def criterion(out: Tensor, target: Tensor, level: str) -> Tensor:
    r"""Cross entropy, as published: plain for edges; for nodes each class has the share of the
    other classes as its weight."""
    if level == 'edge':
        return cross_entropy(out.float(), target)
    count = torch.bincount(target, minlength=out.size(1))
    return cross_entropy(out.float(), target, (1 - count / count.sum()) * (count > 0))


def loss(model: torch.nn.Module, data: Data, level: str) -> Tensor:
    return criterion(model(data), data.y, level)


def weighted_accuracy(prediction: Tensor, target: Tensor) -> float:
    r"""The mean over the classes of the accuracy within each."""
    right = torch.bincount(target, prediction == target)
    count = torch.bincount(target)
    return float((right[count > 0] / count[count > 0]).mean())


def f1(prediction: Tensor, target: Tensor) -> float:
    r"""The F1 score of class 1."""
    hits = (prediction & target).sum()
    return float(2 * hits / (prediction.sum() + target.sum()).clamp(min=1))


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, loader: DataLoader, metric: Metric, level: str
) -> tuple[float, float]:
    r"""The metric over all graphs, and the mean loss of a batch."""
    predictions, targets, losses, device = [], [], [], next(model.parameters()).device
    for data in loader:
        out, y = model(data.to(device)).cpu(), data.y.cpu()
        losses.append(criterion(out, y, level))
        predictions.append(out.argmax(1))
        targets.append(y)
    return metric(torch.cat(predictions), torch.cat(targets)), float(torch.stack(losses).mean())


def arguments(text: str | None, networks: Sequence[str]) -> argparse.ArgumentParser:
    parser = script_parser(text)
    add_root(parser, 'the graphs are made into DIR/NAME on the first call')
    parser.add_argument(
        '--models',
        nargs='+',
        choices=networks,
        default=list(networks),
        metavar='MODEL',
        help=f'the networks that are trained, of {", ".join(networks)} (default: all)',
    )
    parser.add_argument(
        '--preset',
        choices=PRESETS,
        default='full',
        help='the published sizes, or fewer graphs, layers and channels',
    )
    parser.add_argument('--layers', type=int, help='number of layers (default: that of the preset)')
    add_seeds(parser, [0, 1, 2, 3])
    parser.add_argument(
        '--precision',
        choices=('float32', 'bfloat16'),
        default='float32',
        help='of the products in training',
    )
    add_device(parser)
    parser.add_argument('--tensorboard', help='folder for the curves of the training')
    parser.add_argument(
        '--pictures', action='store_true', help='draw the attention that transformers have learned'
    )
    add_table(parser)
    return parser


def run_all(
    task: str,
    args: argparse.Namespace,
    make: type[GeneratedDataset],
    given: tuple,
    settings: Config,
    level: str,
    metric: tuple[str, Metric],
) -> None:
    r"""Runs the networks that are asked for, with the data set's settings, and prints the table."""
    if args.pictures:
        require_drawing()
    if not args.table:
        read_results(args.output / task)
        preset = PRESETS[args.preset]
        chosen = {
            **TRAINING,
            **preset['training'],
            'pe_channels': settings['pe_channels'],
            **settings.get(args.preset, {}),
        }
        pe_channels = chosen['pe_channels']
        prepare = [JaccardScores(), AttentionNodeSampling()] + (
            [LaplacianPE(pe_channels)] if pe_channels > 0 else []
        )
        flip = RandomSignFlip() if pe_channels > 0 else None
        splits = {
            part: make(
                *given,
                part,
                None if preset['graphs'] is None else preset['graphs'][part],
                pre_transform=Compose(prepare),
                transform=flip if part == 'train' else None,
            )
            for part in ('train', 'val', 'test')
        }
        options = {'num_layers': args.layers or preset['layers'] or settings['layers']}
        config = {**chosen, 'options': options, 'precision': args.precision}
        for name in args.models:
            print(
                run(task, args.dataset.lower(), name, splits, level, metric, args, config),
                file=sys.stderr,
            )
    print(report(source(args, task), args.output / task, metric[0]))


def tensors(split: GeneratedDataset) -> dict[str, Tensor]:
    r"""All that the graphs of a split hold, and where one ends."""
    return {
        **split._data.to_dict(),
        **{f'slices_{name}': value for name, value in (split.slices or {}).items()},
    }


def run(
    task: str,
    name: str,
    model_name: str,
    splits: Splits,
    level: str,
    metric: tuple[str, Metric],
    args: argparse.Namespace,
    config: Config,
) -> Path:
    r"""Trains and measures a network for each seed and writes the result."""
    first = splits['train'][0]
    num_classes = int(max(int(split._data.y.max()) for split in splits.values())) + 1
    sizes, pe_channels = (
        (first.num_features, config['hidden_channels'], num_classes),
        config['pe_channels'],
    )
    loaders = {
        part: DataLoader(split, config['batch_size'], shuffle=part == 'train')
        for part, split in splits.items()
    }
    content = fingerprint(*(tensors(split) for split in splits.values()))
    found: dict[str, list[float]] = {}
    parts = (
        '' if args.preset == 'full' else args.preset,
        f'{args.layers}-layers' if args.layers else '',
    )
    variant = '-'.join(
        filter(None, (*parts, '' if args.precision == 'float32' else args.precision))
    )
    for seed in args.seeds:
        settings = [
            name,
            model_name,
            config,
            {part: len(split) for part, split in splits.items()},
            seed,
        ]
        path = checkpoint(model_name, name, settings, content)
        torch.manual_seed(seed)
        model = network(model_name, sizes, level, pe_channels, config['options']).to(args.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=config['lr'])
        score = partial(evaluate, loader=loaders['val'], metric=metric[1], level=level)
        plateau = Plateau(config['lr'], config['patience'], config['least_lr'])
        step = partial(loss, level=level)
        training = Training(
            model, optimizer, step, lambda: loaders['train'], score, path, plateau, args.precision
        )
        log = curves(Path(args.tensorboard) / path.stem) if args.tensorboard else lambda *_: None
        training.fit(config['epochs'], config['epochs'], 1, f'{model_name}, seed {seed}', log)
        figures = {
            metric[0]: evaluate(model.eval(), loaders['test'], metric[1], level)[0],
            f'valid_{metric[0]}': training.best_score,
            'best_epoch': training.best_epoch,
            'loss_spike': training.loss_spike,
            'epoch_seconds': training.seconds / training.epoch,
        }
        for figure, value in figures.items():
            found.setdefault(figure, []).append(value)
        if args.pictures and isinstance(model, Transformer) and seed == args.seeds[0]:
            draw(
                model.cpu(),
                splits['test'][:PICTURED],
                args.output / task / '-'.join(filter(None, (name, model_name, variant))),
            )
        print(
            f'seed {seed}:',
            json.dumps({figure: round(values[-1], 4) for figure, values in found.items()}),
            flush=True,
        )
    return write_result(
        task,
        name,
        model_name,
        variant=variant,
        protocol=variant or 'published',
        seeds=args.seeds,
        metrics=found,
        config=config | {f'{part}_graphs': len(split) for part, split in splits.items()},
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        epoch_seconds=sum(found['epoch_seconds']) / len(found['epoch_seconds']),
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        data=content,
        folder=args.output,
    )
