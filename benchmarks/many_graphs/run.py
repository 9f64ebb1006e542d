r"""Trains networks on many graphs for ``benchmarks.sbm`` and ``benchmarks.tsp``.

The protocol is that of "Benchmarking Graph Neural Networks": Adam with a learning rate that is
halved when the validation loss stalls.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from benchmarks.common.arguments import (
    Parser,
    add_device,
    add_root,
    add_seeds,
    add_table,
    positive,
    probability,
    script_parser,
)
from benchmarks.common.attentions import ATTENTIONS, GRAPH_TRANSFORMER
from benchmarks.common.figures import require_drawing
from benchmarks.common.files import DataError
from benchmarks.common.rates import Cosine, Plateau
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import data_from, source
from benchmarks.common.seeds import Schedule, train_seeds, with_progress
from benchmarks.common.training import Training, checkpoint, fingerprint
from benchmarks.many_graphs.datasets import Splits, make_splits, split_tensors
from benchmarks.many_graphs.metrics import Metric, criterion, evaluate
from benchmarks.many_graphs.models import WITH_EDGE_FEATURES, Transformer, network
from benchmarks.many_graphs.plots import draw
from benchmarks.many_graphs.report import report
from benchmarks.many_graphs.settings import (
    PRESETS,
    REDUCED_HEADS,
    Config,
    training_config,
)
from torch_geometric_lgt.datasets._generated import GeneratedDataset

LAYOUT = 'the graphs are in DIR/NAME, made or downloaded on the first call'
DRAWN_GRAPHS = 100


@dataclass(frozen=True, kw_only=True)
class Task:
    r"""Describes a benchmark.

    It has the name of its results, the class and the settings of its data set, and its metric.
    Predictions have the level ``node`` or ``edge``. Graphs that are not the default have a name,
    which becomes a part of the variant.
    """

    name: str
    dataset: type[GeneratedDataset]
    level: str
    metric_name: str
    metric: Metric
    settings: Config
    graphs: str = ''


def make_parser(text: str | None, networks: Sequence[str]) -> Parser:
    r"""Makes the parser of a script."""
    parser = script_parser(text)
    add_root(parser, LAYOUT)
    parser.groups['model'].add_argument(
        '--models',
        nargs='+',
        choices=networks,
        default=list(networks),
        help='the networks that are trained',
    )
    parser.groups['model'].add_argument(
        '--preset',
        choices=PRESETS,
        default='full',
        help='the published sizes, all graphs with fewer layers and epochs, or fewer graphs too',
    )
    parser.groups['model'].add_argument(
        '--layers', type=positive, help='number of layers (default: that of the preset)'
    )
    parser.groups['model'].add_argument(
        '--attention',
        choices=[name for name in ATTENTIONS if name != 'groups'],
        default='positions',
        help=f'the all-pair attention of {GRAPH_TRANSFORMER}: by Laplacian encodings, by a '
        'feature map, the mean of the graph, exact softmax or none',
    )
    parser.groups['model'].add_argument(
        '--dropout', type=probability, default=0.0, help=f'the dropout of {GRAPH_TRANSFORMER}'
    )
    parser.groups['model'].add_argument(
        '--input-norm',
        action='store_true',
        help=f'normalisation, activation and dropout after the input layer of {GRAPH_TRANSFORMER}, '
        'as by the default of its class',
    )
    add_seeds(parser, [0, 1, 2, 3])
    parser.groups['training'].add_argument(
        '--epochs', type=positive, help='number of epochs (default: that of the preset)'
    )
    parser.groups['training'].add_argument(
        '--precision',
        choices=('float32', 'bfloat16'),
        default='float32',
        help='of the products in training',
    )
    add_device(parser)
    parser.groups['output'].add_argument(
        '--tensorboard', metavar='DIR', help='folder for the curves of the training'
    )
    parser.groups['output'].add_argument(
        '--pictures', action='store_true', help='draw the attention that transformers have learned'
    )
    add_table(parser)
    return parser


def run_all(task: Task, args: argparse.Namespace, *arguments: str) -> None:
    r"""Runs the chosen networks and prints the table.

    Args:
        task (Task): The benchmark.
        args (argparse.Namespace): The arguments of the script.
        *arguments (str): The first arguments of the class of the data set.
    """
    if args.pictures:
        require_drawing()
    if not args.table:
        pe_channels = training_config(args.preset, task.settings)['pe_channels']
        check_options(args, pe_channels)
        read_results(args.output / task.name)
        graphs = PRESETS[args.preset]['graphs']
        with data_from(args.root, LAYOUT):
            splits = make_splits(task.dataset, arguments, graphs, pe_channels)
        num_layers = args.layers or default_layers(task, args.preset)
        for model_name in with_progress(args.models, 'networks'):
            config = training_config(args.preset, task.settings, model_name)
            edge_channels = config.pop('edge_channels', 0)
            options = {'num_layers': num_layers}
            if model_name == GRAPH_TRANSFORMER:
                options['attention'] = args.attention
                options |= {'dropout': args.dropout} if args.dropout > 0 else {}
                options |= {'input_norm': True} if args.input_norm else {}
            if model_name.endswith('-reduced'):
                options['heads'] = REDUCED_HEADS[args.preset]
            if model_name in WITH_EDGE_FEATURES and edge_channels > 0:
                options['edge_channels'] = edge_channels
            config['epochs'] = args.epochs or config['epochs']
            config |= {'options': options, 'precision': args.precision}
            run(task, model_name, splits, args, config)
    print(report(source(args, task.name), args.output / task.name, task.metric_name))


def chosen_options(args: argparse.Namespace) -> dict[str, str]:
    r"""Returns the options of GraphTransformer that are not the default, each with its part of the
    variant."""
    parts = {
        f'--attention {args.attention}': args.attention if args.attention != 'positions' else '',
        f'--dropout {args.dropout}': f'dropout-{args.dropout}' if args.dropout > 0 else '',
        '--input-norm': 'input-norm' if args.input_norm else '',
    }
    return {option: part for option, part in parts.items() if part}


def check_options(args: argparse.Namespace, pe_channels: int) -> None:
    r"""Checks that a network has the chosen options, and that graphs have the encodings of its
    attention.

    Raises:
        DataError: If an option is not the default and no network has it, or the attention reads
            encodings that the graphs do not have.
    """
    if GRAPH_TRANSFORMER not in args.models:
        for option in chosen_options(args):
            raise DataError(
                f'{option} is for {GRAPH_TRANSFORMER} (got --models {" ".join(args.models)}); '
                'add this network, or leave the option out'
            )
    elif args.attention == 'positions' and pe_channels == 0:
        raise DataError(
            f'--attention positions, the default of {GRAPH_TRANSFORMER}, reads Laplacian '
            f'encodings, which the graphs of --preset {args.preset} do not have; choose '
            '--attention mean or another one, or --models without this network'
        )


def training_loss(model: torch.nn.Module, data: Data, level: str) -> Tensor:
    r"""Computes the loss of a batch of graphs."""
    return criterion(model(data), data.y, level)


def optimizer(model: torch.nn.Module, config: Config) -> torch.optim.Optimizer:
    r"""Makes Adam, or AdamW for settings with weight decay."""
    if 'weight_decay' not in config:
        return torch.optim.Adam(model.parameters(), lr=config['lr'])
    rate, decay = config['lr'], config['weight_decay']
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)


def learning_rates(config: Config) -> Plateau | Cosine:
    r"""Makes the learning rates: a cosine for settings with warm-up, else a plateau."""
    if 'warmup' in config:
        return Cosine(config['lr'], config['epochs'], config['warmup'])
    return Plateau(config['lr'], config['patience'], config['least_lr'])


def default_layers(task: Task, preset: str) -> int:
    r"""Returns the number of layers of a preset, or else of the data set."""
    return PRESETS[preset]['layers'] or task.settings['layers']


def variant_of(task: Task, args: argparse.Namespace, model_name: str) -> str:
    r"""Names the variant after all arguments that differ from the full preset on graphs that are
    made."""
    default_epochs = training_config(args.preset, task.settings, model_name)['epochs']
    has_other_layers = args.layers not in (None, default_layers(task, args.preset))
    has_other_epochs = args.epochs not in (None, default_epochs)
    options = chosen_options(args) if model_name == GRAPH_TRANSFORMER else {}
    parts = (
        '' if args.preset == 'full' else args.preset,
        f'{args.layers}-layers' if has_other_layers else '',
        f'{args.epochs}-epochs' if has_other_epochs else '',
        '' if args.precision == 'float32' else args.precision,
        *options.values(),
        task.graphs,
    )
    return '-'.join(filter(None, parts))


def run(
    task: Task, model_name: str, splits: Splits, args: argparse.Namespace, config: Config
) -> Path:
    r"""Trains and measures a network for each seed and writes the result."""
    name, variant = args.dataset.lower(), variant_of(task, args, model_name)
    num_classes = int(max(int(split._data.y.max()) for split in splits.values())) + 1
    sizes = (splits['train'][0].num_features, config['hidden_channels'], num_classes)
    loaders = {
        part: DataLoader(split, config['batch_size'], shuffle=part == 'train')
        for part, split in splits.items()
    }
    content = fingerprint(*(split_tensors(split) for split in splits.values()))
    num_graphs = {part: len(split) for part, split in splits.items()}

    def prepare(seed: int) -> Training:
        path = checkpoint(model_name, name, [name, model_name, config, num_graphs, seed], content)
        torch.manual_seed(seed)
        model = network(model_name, sizes, task.level, config['pe_channels'], config['options'])
        model = model.to(args.device)
        return Training(
            model,
            optimizer(model, config),
            partial(training_loss, level=task.level),
            lambda: loaders['train'],
            partial(evaluate, loader=loaders['val'], metric=task.metric, level=task.level),
            path,
            learning_rates(config),
            args.precision,
        )

    def measure(training: Training, seed: int) -> dict[str, float]:
        model = training.model.eval()
        test_metric, _ = evaluate(model, loaders['test'], task.metric, task.level)
        if args.pictures and isinstance(model, Transformer) and seed == args.seeds[0]:
            stem = '-'.join(filter(None, (name, model_name, variant)))
            draw(model.cpu(), splits['test'][:DRAWN_GRAPHS], args.output / task.name / stem)
        return {
            task.metric_name: test_metric,
            f'valid_{task.metric_name}': training.best_score,
            'best_epoch': training.best_epoch,
            'loss_spike': training.loss_spike,
            'epoch_seconds': training.seconds / training.epoch,
        }

    results = train_seeds(
        args.seeds,
        prepare,
        measure,
        Schedule(config['epochs'], config['epochs']),
        model_name,
        args.tensorboard,
    )
    epoch_seconds = results.metrics['epoch_seconds']
    return write_result(
        task.name,
        name,
        model_name,
        variant=variant,
        protocol=variant or 'full',
        seeds=args.seeds,
        metrics=results.metrics,
        config=config | {f'{part}_graphs': number for part, number in num_graphs.items()},
        parameters=results.parameters,
        epoch_seconds=sum(epoch_seconds) / len(epoch_seconds),
        peak_memory_mib=results.peak_memory_mib,
        training_commits=results.training_commits,
        data=content,
        folder=args.output,
    )
