r"""Trains and measures recommenders on user-item interactions.

python -m benchmarks.recommendation --root DATA --dataset amazon-beauty --model mgformer \
    --seeds 0 1 2
python -m benchmarks.recommendation --root DATA --study ablation
python -m benchmarks.recommendation --table   # only write tables and pictures of existing results

Results have Recall@20 and NDCG@20 of the full ranking of all items. The validation NDCG@20 chooses
the epoch. The same command continues a run that was killed. Seeds of later calls are added to the
result.
"""

import argparse
import warnings
from typing import Any

from benchmarks.common.arguments import (
    add_device,
    add_root,
    add_seeds,
    add_table,
    file_name_part,
    script_parser,
)
from benchmarks.common.results import read_results
from benchmarks.common.scripts import INTERACTIONS, run_script, source, variant_name
from benchmarks.common.seeds import with_progress
from benchmarks.recommendation.report import report
from benchmarks.recommendation.run import TASK, run
from benchmarks.recommendation.settings import (
    ARCHITECTURE,
    DEFAULTS,
    HELP,
    KINDS,
    STUDIES,
    STUDY,
    UNUSED,
    defaults,
    implied,
)
from torch_geometric_lgt.datasets._sources import SOURCES


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, dict[str, dict[str, Any]]]:
    r"""Parses the arguments and returns the configuration of each variant to run."""
    parser = script_parser(__doc__)
    add_root(parser, INTERACTIONS)
    parser.groups['data'].add_argument(
        '--dataset',
        default='amazon-beauty',
        help=f'the folder in --root; {", ".join(SOURCES)} can be downloaded',
    )
    parser.groups['model'].add_argument(
        '--model', choices=DEFAULTS, default='mgformer', help='the recommender that is trained'
    )
    add_seeds(parser, [0, 1, 2])
    parser.groups['model'].add_argument(
        '--variant',
        type=file_name_part,
        default='',
        help=(
            'name of a configuration that is not the default (default: what differs, as '
            'dim16-encoding8)'
        ),
    )
    parser.groups['model'].add_argument(
        '--study',
        choices=STUDIES,
        help='run a small MGFormer and its variants, each with one other setting',
    )
    parser.groups['output'].add_argument(
        '--tensorboard', metavar='DIR', help='folder for the curves of the training'
    )
    add_device(parser)
    add_table(parser)
    options: dict[str, Any] = {}
    for config in DEFAULTS.values():
        options |= {name: value for name, value in config.items() if options.get(name) is None}
    for name, value in options.items():
        kind = KINDS.get(name, type(value))
        text, choices = HELP[name]
        group = parser.groups['model' if name in ARCHITECTURE else 'training']
        group.add_argument(
            f'--{name.replace("_", "-")}',
            default=None,
            help=f'{text} (default: {format_defaults(name)})',
            **({'action': argparse.BooleanOptionalAction} if kind is bool else {'type': kind}),
            **({'choices': choices} if choices else {}),
        )
    args = parser.parse_args(argv)
    overrides = {name: getattr(args, name) for name in options if getattr(args, name) is not None}
    default = defaults(args.model, args.dataset)
    unknown = sorted(set(overrides) - set(default))
    if unknown:
        names = ', '.join(f'--{name.replace("_", "-")}' for name in unknown)
        parser.error(f'{args.model} does not take {names}')
    if args.study is not None:
        if overrides or args.variant or args.model != 'mgformer':
            parser.error(
                'a study names its own variants of mgformer: give neither another model nor '
                'options of one'
            )
        return args, {
            variant: default | STUDY | implied(changes) | changes
            for variant, changes in {'study': {}, **STUDIES[args.study]}.items()
        }
    required = implied(overrides)
    for name, value in required.items():
        if overrides.get(name, value) != value:
            option = f'--{name.replace("_", "-")}'
            parser.error(
                f'{option} must be {value} with the other options (got {overrides[name]}); leave '
                'it out'
            )
    default |= required
    differing = {name: value for name, value in overrides.items() if value != default[name]}
    config = default | overrides
    check_sizes(parser, args.model, config)
    check_effects(parser, config, overrides)
    return args, {args.variant or variant_name(differing): config}


def check_sizes(parser: argparse.ArgumentParser, model: str, config: dict[str, Any]) -> None:
    r"""Ends the program if heads do not divide the channels, or a model needs a layer."""
    if model == 'mgformer':
        channels = {
            '--dim plus --encoding': config['dim'] + config['encoding'],
            '--key-channels': config['key_channels'],
        }
        for name, number in channels.items():
            if number % config['heads'] != 0:
                parser.error(f'--heads must divide {name} (got {config["heads"]} and {number})')
        if config['start'] == 'kmeans' and config['layers'] == 0:
            parser.error('--layers must be at least 1 for --start kmeans (got 0)')
    if model == 'simgcl' and config['layers'] == 0:
        parser.error('--layers must be at least 1 for simgcl, whose noise follows a layer (got 0)')


def check_effects(
    parser: argparse.ArgumentParser, config: dict[str, Any], overrides: dict[str, Any]
) -> None:
    r"""Ends the program if an option of the user has no effect beside the others. The result would
    have its name."""
    for (name, value), unused in UNUSED.items():
        for other in unused:
            if config.get(name) == value and other in overrides:
                option = 'no-' * (overrides[other] is False) + other.replace('_', '-')
                parser.error(
                    f'--{option} has no effect with --{name} {value} (got {overrides[other]}); '
                    'leave it out'
                )


def format_defaults(name: str) -> str:
    r"""Formats the defaults of an option, by model where they differ."""
    models: dict[str, list[str]] = {}
    for model, config in DEFAULTS.items():
        if name in config:
            models.setdefault(str(config[name]), []).append(model)
    return '; '.join(
        f'{value} for {", ".join(names)}' if len(models) > 1 else value
        for value, names in models.items()
    )


def main() -> None:
    args, configs = parse()
    warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
    if not args.table:
        read_results(args.output / TASK)
        for variant, config in with_progress(configs.items(), 'variants'):
            run(args, variant, config)
    results = source(args, TASK, f'*-{args.dataset}*.json')
    tables = report(results, args.output / TASK, args.dataset)
    print(tables or f'there are no results of {args.dataset}')


if __name__ == '__main__':
    run_script(main)
