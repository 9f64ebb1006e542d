r"""Node classification on one graph: test accuracy at the epoch that is best on validation nodes.

python -m benchmarks.node_classification --root DATA --dataset cora --model sgformer --seeds 0 1 2 3 4
python -m benchmarks.node_classification --dataset cora --protocol random-50-25-25 --model nodeformer
python -m benchmarks.node_classification --dataset cora --model sgformer --set options.norm=row lr=0.001
python -m benchmarks.node_classification --dataset cora --model nodeformer --study ablation
python -m benchmarks.node_classification --dataset cora --model sgformer --pictures
python -m benchmarks.node_classification --table          # the tables alone, of results that are there

A run that was killed goes on where it was when the same command is given again. Seeds that are
given later are added to the result.
"""

import argparse
import inspect
import json
import resource
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from benchmarks.common.figures import require_drawing
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import (
    add_root,
    add_seeds,
    add_table,
    data_from,
    run_script,
    script_parser,
    source,
    variant_name,
)
from benchmarks.common.training import Training, add_device, checkpoint, curves, fingerprint
from benchmarks.node_classification.datasets import (
    LAYOUT,
    PROTOCOLS,
    SOURCES,
    load,
    prepared,
    split,
)
from benchmarks.node_classification.models import (
    BRANCHES,
    NETWORKS,
    OURS,
    SPARSE_INPUT,
    Classifier,
    make,
    parameter_groups,
)
from benchmarks.node_classification.plots import draw
from benchmarks.node_classification.report import report, save_curves
from benchmarks.node_classification.settings import (
    MODELS,
    OPTIONS,
    STUDY_NAMES,
    check_options,
    check_settings,
    merged,
    settings,
    studies,
)

MISSING = object()
NAMED = {
    **OURS,
    'mlp': NETWORKS['mlp'],
}  # the others hand options that they do not know to their layers


def loss(classifier: Classifier, data: Data, train: Tensor, edge_loss_weight: float) -> Tensor:
    out, own = classifier(data.x, edge_loss_weight > 0)
    return cross_entropy(out[train].float(), data.y[train]) + edge_loss_weight * own


def placed(plain: Data, model: str, config: dict[str, Any], device: torch.device) -> Data:
    r"""The graph as a model gets it; products with sparse features are fast, and in single
    precision, on a CPU."""
    sparse = model in SPARSE_INPUT and device.type == 'cpu' and config['precision'] == 'float32'
    return prepared(plain, config['normalize_features'], sparse).to(device)


@torch.no_grad()
def accuracy(classifier: Classifier, data: Data, nodes: Tensor) -> float:
    prediction = classifier(data.x)[0].argmax(1)
    return float((prediction[nodes] == data.y[nodes]).double().mean())


def prepare(
    data: Data, parts: dict[str, Tensor], model: str, config: dict[str, Any], seed: int, path: Path
) -> Training:
    torch.manual_seed(seed)
    num_classes = int(data.y.max()) + 1
    sizes = (data.num_features, num_classes)
    classifier = make(
        model, *sizes, data.edge_index, data.num_nodes, config['options'], config['precision']
    ).to(data.edge_index.device)
    groups = parameter_groups(classifier, config['weight_decay'], config['attention_weight_decay'])
    optimizer = torch.optim.Adam(groups, lr=config['lr'])
    train = partial(loss, train=parts['train'], edge_loss_weight=config['edge_loss_weight'])
    score = partial(accuracy, data=data, nodes=parts['valid'])
    return Training(
        classifier, optimizer, train, lambda: [data], score, path, precision=config['precision']
    )


def measure(training: Training, data: Data, test: Tensor) -> dict[str, float]:
    r"""The figures of a finished run; the only look at the test nodes."""
    classifier, times = training.model.eval(), []
    for _ in range(5):
        start = time.perf_counter()
        figure = accuracy(classifier, data, test)
        times.append(time.perf_counter() - start)
    return {
        'accuracy': figure,
        'valid_accuracy': training.best_score,
        'best_epoch': training.best_epoch,
        'loss_spike': training.loss_spike,
        'epoch_ms': 1000 * training.seconds / training.epoch,
        'inference_ms': 1000 * statistics.median(times),
    }


class Plan(NamedTuple):
    r"""A run: the name of the variant, the split, the neighbours that replace the graph, and the
    configuration."""

    variant: str
    protocol: str
    neighbors: int | None
    config: dict[str, Any]


def run(args: argparse.Namespace, plan: Plan) -> Path:
    r"""Trains and measures a model for each seed and writes the result."""
    variant, protocol, neighbors, config = plan
    with data_from(args.root, LAYOUT):
        plain = load(args.root, args.dataset, neighbors)
        parts = {seed: split(plain, protocol, seed) for seed in args.seeds}
    content = fingerprint(dense_tensors(plain))
    data = placed(plain, args.model, config, args.device)
    name = Path(args.dataset).stem
    found: dict[str, list[float]] = {}
    for seed in args.seeds:
        settings = [name, protocol, neighbors, args.model, config, seed]
        path = checkpoint(args.model, name, settings, fingerprint(content, parts[seed]))
        training = prepare(data, parts[seed], args.model, config, seed, path)
        log = curves(Path(args.tensorboard) / path.stem) if args.tensorboard else lambda *_: None
        training.fit(config['epochs'], config['patience'], 1, f'{args.model}, seed {seed}', log)
        for figure, value in measure(training, data, parts[seed]['test']).items():
            found.setdefault(figure, []).append(value)
        print(
            f'seed {seed}:',
            json.dumps({figure: round(values[-1], 4) for figure, values in found.items()}),
            flush=True,
        )
        parameters = sum(parameter.numel() for parameter in training.model.parameters())
    if args.curves:
        save_curves(
            training.history, Path(args.curves), f'{args.model} on {name}, seed {args.seeds[-1]}'
        )
    if args.pictures:
        stem = '-'.join(filter(None, (args.model, name, protocol, variant)))
        draw(
            training.model.eval(),
            data,
            args.output / 'node_classification' / stem,
            f'{args.model} on {name}, seed {args.seeds[-1]}',
        )
    return write_result(
        'node_classification',
        name,
        args.model,
        variant=variant,
        protocol=protocol,
        seeds=args.seeds,
        metrics=found,
        config=config | {'neighbors': neighbors},
        data=content,
        parameters=parameters,
        epoch_seconds=statistics.median(found['epoch_ms']) / 1000,
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        folder=args.output,
        protocol_in_name=True,
    )


def dense_tensors(data: Data) -> dict[str, Tensor]:
    return {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}


def changes(given: list[str]) -> dict[str, Any]:
    r"""``lr=0.1`` and ``options.norm=row`` as the nested changes of a configuration.

    Raises:
        ValueError: If a text is neither.
    """
    out: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition('=')
        try:
            read = json.loads(value)
        except json.JSONDecodeError:
            read = value
        group, _, option = name.rpartition('.')
        if not equals or not option or group not in ('', 'options') or name == 'options':
            raise ValueError(f'--set takes NAME=VALUE and options.NAME=VALUE (got {text!r})')
        (out.setdefault(group, {}) if group else out)[option] = read
    return out


def changed(default: dict[str, Any], model: str, given: list[str]) -> dict[str, Any]:
    r"""The configuration of a model with the changes of ``--set``. With options that are changed
    the model is tried on a small graph.

    Raises:
        ValueError: If there is no such setting, or a value does not fit it.
    """
    change = changes(given)
    config = merged(default, change)
    check_settings(config, model)
    if 'options' in change:
        parameters = inspect.signature(NAMED[model]).parameters.values() if model in NAMED else ()
        defaults = {parameter.name: parameter.default for parameter in parameters} | OPTIONS[model]
        unknown = sorted(set(change['options']) - set(defaults))
        if unknown and model in NAMED:
            raise ValueError(
                f'{model} does not take options.{unknown[0]} (there are {", ".join(defaults)})'
            )
        check_options(config['options'], defaults)
        if 'gnn' in change['options'] and (
            model != 'sgformer' or change['options']['gnn'] not in ('gcn', *BRANCHES)
        ):
            raise ValueError(
                f"'options.gnn' is gcn, {' or '.join(BRANCHES)}, for sgformer (got "
                f'{change["options"]["gnn"]!r} for {model})'
            )
        told = ', '.join(text for text in given if text.startswith('options.'))
        try:
            classifier = make(model, 5, 3, torch.tensor([[0, 1], [1, 0]]), 8, config['options'])
            classifier(torch.rand(8, 5), config['edge_loss_weight'] > 0)
        except Exception as error:
            raise ValueError(
                f'{model} does not take {told} '
                f'({(str(error) or type(error).__name__).splitlines()[0]})'
            ) from error
    return config


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, list[Plan]]:
    r"""The arguments and the runs they ask for."""
    parser = script_parser(__doc__)
    add_root(parser, LAYOUT)
    parser.add_argument(
        '--dataset',
        default='cora',
        help=f'a .npz file, or one of {", ".join(SOURCES)}, digits, 20news',
    )
    parser.add_argument(
        '--protocol',
        choices=PROTOCOLS,
        help='the rule of the splits (default: that of the data set)',
    )
    parser.add_argument(
        '--model', choices=MODELS, default='sgformer', help='the model that is trained'
    )
    add_seeds(parser, [0, 1, 2, 3, 4], 'a training for each; they also draw the splits')
    parser.add_argument(
        '--neighbors',
        type=int,
        help='edges between this many nearest neighbours instead of the graph; 0: none',
    )
    parser.add_argument(
        '--variant',
        default='',
        help='name of a configuration that is not the default (default: what differs, as lr0.001-norm-row)',
    )
    parser.add_argument(
        '--set',
        nargs='+',
        default=[],
        metavar='NAME=VALUE',
        help='changes of the configuration, as lr=0.001 or options.norm=row',
    )
    parser.add_argument(
        '--study',
        choices=STUDY_NAMES,
        help='run the variants that differ from the default in one respect',
    )
    add_device(parser)
    parser.add_argument(
        '--pictures',
        action='store_true',
        help='draw what the attention of the last seed has learned',
    )
    parser.add_argument('--tensorboard', help='folder for the curves of the training')
    parser.add_argument('--curves', help='PNG for the curves of the last seed')
    add_table(parser)
    args = parser.parse_args(argv)
    protocol, default = settings(args.dataset, args.protocol, args.model)
    if args.pictures and (args.model not in OURS or args.device.type != 'cpu'):
        parser.error(f'--pictures is for {", ".join(OURS)} on the CPU')
    if args.study is not None:
        known = studies(args.model)
        if args.study not in known or args.set or args.variant:
            parser.error(
                f'a study of {args.model} is one of {", ".join(known)} and names its own variants'
            )
        same = Plan('', protocol, None, default)
        plans = [
            planned(name, protocol, default, dict(change))
            for name, change in known[args.study].items()
        ]
        return args, [plan for plan in plans if plan._replace(variant='') != same]
    try:
        config = changed(default, args.model, args.set)
    except ValueError as error:
        parser.error(str(error))
    differing = {
        name: value
        for name, value in config.items()
        if name != 'options' and value != default[name]
    }
    differing |= {
        name: value
        for name, value in config['options'].items()
        if value != default['options'].get(name, MISSING)
    }
    differing |= {} if args.neighbors is None else {'neighbors': args.neighbors}
    return args, [Plan(args.variant or variant_name(differing), protocol, args.neighbors, config)]


def planned(variant: str, protocol: str, default: dict[str, Any], change: dict[str, Any]) -> Plan:
    r"""A variant of a study."""
    protocol, neighbors = change.pop('protocol', protocol), change.pop('neighbors', None)
    return Plan(variant, protocol, neighbors, merged(default, change))


def main() -> None:
    args, plans = parse()
    if args.pictures or args.curves:
        require_drawing()
    if not args.table:
        read_results(args.output / 'node_classification')
        for plan in plans:
            print(run(args, plan), file=sys.stderr)
    print(report(source(args, 'node_classification'), args.output / 'node_classification'))


if __name__ == '__main__':
    run_script(main)
