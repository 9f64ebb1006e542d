r"""Trains and measures a node classifier on one graph.

python -m benchmarks.node_classification --root DATA --dataset cora --model sgformer \
    --seeds 0 1 2 3 4
python -m benchmarks.node_classification --dataset cora --protocol random-50-25-25 \
    --model nodeformer
python -m benchmarks.node_classification --dataset cora --model sgformer \
    --set options.norm=row lr=0.001
python -m benchmarks.node_classification --dataset cora --model nodeformer --study ablation
python -m benchmarks.node_classification --dataset cora --model sgformer --pictures
python -m benchmarks.node_classification --table   # only write the tables of existing results

Results have the test score at the best validation epoch: accuracy, or ROC-AUC for two classes where
the papers report it. The same command continues a run that was killed. Seeds of later calls are
added to the result.
"""

import argparse
from typing import Any

from benchmarks.common.arguments import (
    add_device,
    add_seeds,
    add_table,
    file_name_part,
    natural,
    script_parser,
)
from benchmarks.common.figures import require_drawing
from benchmarks.common.names import unknown
from benchmarks.common.results import read_results
from benchmarks.common.scripts import run_script, source, variant_name
from benchmarks.common.seeds import with_progress
from benchmarks.node_classification.attentions import REPLACEMENTS
from benchmarks.node_classification.datasets import add_dataset, add_protocol
from benchmarks.node_classification.models import OURS
from benchmarks.node_classification.overrides import apply_overrides
from benchmarks.node_classification.report import report
from benchmarks.node_classification.run import TASK, Plan, run
from benchmarks.node_classification.settings import (
    MODELS,
    STUDY_NAMES,
    merged,
    settings,
    studies,
)

MISSING = object()


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, list[Plan]]:
    r"""Parses the arguments and plans the runs."""
    parser = make_parser()
    args = parser.parse_args(argv)
    plans = make_plans(parser, args)
    attentions = {plan.config['options'].get('attention', 'simple') for plan in plans}
    if args.pictures and args.model in REPLACEMENTS and attentions != {'simple'}:
        parser.error(
            f'--pictures needs the attention of {args.model}, which options.attention replaces'
        )
    return args, plans


def make_parser() -> argparse.ArgumentParser:
    r"""Makes the parser of the script."""
    parser = script_parser(__doc__)
    add_dataset(parser)
    add_protocol(parser)
    parser.groups['model'].add_argument(
        '--model', choices=MODELS, default='sgformer', help='the model that is trained'
    )
    add_seeds(parser, [0, 1, 2, 3, 4], 'a training for each; they also draw the splits')
    parser.groups['data'].add_argument(
        '--neighbors',
        type=natural,
        help='edges between this many nearest neighbours instead of the graph; 0: none',
    )
    parser.groups['model'].add_argument(
        '--variant',
        type=file_name_part,
        default='',
        help=(
            'name of a configuration that is not the default (default: what differs, as '
            'lr0.001-norm-row)'
        ),
    )
    parser.groups['model'].add_argument(
        '--set',
        nargs='+',
        default=[],
        metavar='NAME=VALUE',
        help='changes of the configuration, as lr=0.001 or options.norm=row',
    )
    parser.groups['model'].add_argument(
        '--study',
        choices=STUDY_NAMES,
        help='run the variants that differ from the default in one respect',
    )
    add_device(parser)
    parser.groups['output'].add_argument(
        '--pictures',
        action='store_true',
        help='draw the attention and the latent structure of the last seed',
    )
    parser.groups['output'].add_argument(
        '--tensorboard', metavar='DIR', help='folder for the curves of the training'
    )
    parser.groups['output'].add_argument(
        '--curves', metavar='PNG', help='file for the curves of the last seed'
    )
    add_table(parser)
    return parser


def make_plans(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[Plan]:
    r"""Plans one run, or the runs of a study, from the parsed arguments."""
    protocol, default = settings(args.dataset, args.protocol, args.model)
    if args.pictures and (args.model not in OURS or args.device.type != 'cpu'):
        parser.error(f'--pictures is for {", ".join(OURS)} on the CPU')
    if args.study is not None:
        variants_of = studies(args.model)
        if args.study not in variants_of:
            parser.error(unknown(args.study, variants_of, f'study of {args.model}'))
        if args.set or args.variant or args.neighbors is not None:
            parser.error('--study names its own variants: leave out --set, --variant, --neighbors')
        if args.curves:
            parser.error('--curves is a file for one variant: leave out --study')
        same = Plan('', protocol, None, default)
        plans = [
            plan_variant(name, protocol, default, dict(change))
            for name, change in variants_of[args.study].items()
        ]
        return [plan for plan in plans if plan._replace(variant='') != same and has_layers(plan)]
    try:
        config = apply_overrides(default, args.model, args.set)
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
    return [Plan(args.variant or variant_name(differing), protocol, args.neighbors, config)]


def has_layers(plan: Plan) -> bool:
    r"""Tells whether a network has message passing or attention. Without a graph there is none
    without attention."""
    options = plan.config['options']
    return options.get('conv', 'GCNConv') is not None or options['attention'] != 'no-attention'


def plan_variant(
    variant: str, protocol: str, default: dict[str, Any], change: dict[str, Any]
) -> Plan:
    r"""Plans the run of one variant of a study."""
    protocol, neighbors = change.pop('protocol', protocol), change.pop('neighbors', None)
    return Plan(variant, protocol, neighbors, merged(default, change))


def main() -> None:
    args, plans = parse()
    if args.pictures or args.curves:
        require_drawing()
    if not args.table:
        read_results(args.output / TASK)
        for plan in with_progress(plans, 'variants'):
            run(args, plan)
    print(report(source(args, TASK), args.output / TASK))


if __name__ == '__main__':
    run_script(main)
