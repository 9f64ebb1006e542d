r"""Recommenders on user-item interactions: full-ranking Recall@20 and NDCG@20, chosen by the
validation NDCG@20.

python -m benchmarks.recommendation --root DATA --dataset amazon-beauty --model mgformer --seeds 0 1 2
python -m benchmarks.recommendation --root DATA --study ablation
python -m benchmarks.recommendation --table          # the tables and pictures alone, of results that are there

A run that was killed goes on where it was when the same command is given again. Seeds that are
given later are added to the result.
"""

import argparse
import json
import resource
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import sort_edge_index

from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import (
    INTERACTIONS,
    add_root,
    add_seeds,
    add_table,
    data_from,
    run_script,
    script_parser,
    source,
    variant_name,
)
from benchmarks.common.training import (
    CHECKPOINTS,
    Training,
    add_device,
    checkpoint,
    curves,
    fingerprint,
)
from benchmarks.recommendation.models import (
    COSINE,
    INNER,
    RULES,
    AttentionEncoder,
    GraphEncoder,
    bpr,
    contrastive,
    directau,
    ease,
    interaction_matrix,
    item_knn,
    scorings,
)
from benchmarks.recommendation.ranking import Scoring, evaluate
from benchmarks.recommendation.report import report
from benchmarks.recommendation.settings import DEFAULTS, HELP, STUDIES, STUDY, defaults
from torch_geometric_lgt.datasets import InteractionDataset
from torch_geometric_lgt.datasets._sources import SOURCES as PUBLIC
from torch_geometric_lgt.datasets._split import SPLITS
from torch_geometric_lgt.transforms import SVDEncoding


class Task:
    r"""A data set and what is measured on it."""

    def __init__(self, root: str, name: str, device: torch.device) -> None:
        dataset = InteractionDataset(root, name)
        self.data, self.protocol = (
            dataset[0],
            {'given': 'given-split', 'ratio': 'ratio-80-10-10'}[dataset.split],
        )
        self.num_users, self.num_items = self.data['user'].num_nodes, self.data['item'].num_nodes
        self.train, self.valid, self.test = (
            self.data['user', 'rates', 'item'][f'{part}_edge_label_index'].to(device)
            for part in SPLITS
        )
        self.nodes = self.train + self.train.new_tensor([[0], [self.num_users]])

    @property
    def content(self) -> str:
        r"""The fingerprint of the pairs of all parts."""
        store = self.data['user', 'rates', 'item']
        sizes = {'sizes': torch.tensor([self.num_users, self.num_items])}
        return fingerprint(
            {f'{part}_edge_label_index': store[f'{part}_edge_label_index'] for part in SPLITS}
            | sizes
        )

    @property
    def groups(self) -> dict[str, Tensor]:
        r"""Items by how often they were chosen in training, each group with a third of the training
        pairs."""
        degree = torch.bincount(self.train[1], minlength=self.num_items)
        order = degree.argsort(stable=True)
        third = torch.empty_like(order)
        third[order] = ((degree[order].cumsum(0) - degree[order]) * 3 // self.train.size(1)).clamp(
            max=2
        )
        return {
            name: third == index for index, name in enumerate(('unpopular', 'normal', 'popular'))
        }

    def scoring(self, encoder: torch.nn.Module, rule: str) -> Scoring:
        return scorings(
            encoder,
            self.num_users,
            rule,
            torch.bincount(self.train[1], minlength=self.num_items).clamp(min=1),
        )

    def choose(self, scoring: Scoring) -> tuple[float, dict[str, float]]:
        r"""The way to weigh the items that is best on the validation part, and its figures
        there."""
        found = evaluate(scoring, self.valid, self.train, self.num_users)
        best = max(found, key=lambda way: found[way]['ndcg@20'])
        return best, found[best]

    def measure(self, scoring: Scoring) -> dict[str, float]:
        r"""Figures of the chosen way, and those of the inner product and the cosine where they are
        among the ways. Items of the validation part are not ranked at test time; no model has seen
        them."""
        way, valid = self.choose(scoring)
        seen = torch.cat([self.train, self.valid], 1)
        found = evaluate(
            scoring.only(way, INNER, COSINE), self.test, seen, self.num_users, groups=self.groups
        )
        test = dict(found[way])
        for name, plain in (('inner', INNER), ('cosine', COSINE)):
            if plain in found:
                test |= {
                    f'{metric}@20_{name}': found[plain][f'{metric}@20']
                    for metric in ('recall', 'ndcg')
                }
        return (
            test
            | {f'valid_{name}': value for name, value in valid.items()}
            | {'scoring_parameter': way}
        )

    def batches(self, size: int) -> list[Tensor]:
        return [self.nodes[:, part] for part in torch.randperm(self.nodes.size(1)).split(size)]


def encoder(task: Task, model: str, config: dict[str, Any]) -> torch.nn.Module:
    if model != 'mgformer':
        return GraphEncoder(
            task.train,
            task.num_users,
            task.num_items,
            config['dim'],
            config['layers'],
            skip_input=model == 'simgcl',
        )
    data = task.data
    if config['encoding'] > 0:
        data = SVDEncoding(
            config['encoding'], normalize=config['normalize'], cache_dir=CHECKPOINTS / 'svd'
        )(data)
    names = ('heads', 'mask', 'feature_map', 'residual', 'encoding_scale')
    options = {name: config[name] for name in names} | {
        name: config[name] or None for name in ('num_features', 'key_channels')
    }
    out = AttentionEncoder.from_data(data, config['dim'], num_layers=config['layers'], **options)
    out.edge_index = sort_edge_index(
        torch.cat([task.nodes, task.nodes.flip(0)], 1), sort_by_row=False
    )
    out.refresh = config['refresh']
    return out


def prepare(task: Task, model: str, config: dict[str, Any], seed: int, path: Path) -> Training:
    torch.manual_seed(seed)
    module = encoder(task, model, config).to(task.train.device)
    optimizer = torch.optim.Adam(
        module.parameters(), lr=config['lr'], weight_decay=config['weight_decay'], fused=True
    )
    if 'gamma' in config:
        loss = partial(directau, weight=config['gamma'], variant=config['loss'])
    else:
        names = ('regularization', 'weight', 'temperature', 'share', 'length')
        arguments = {name: config[name] for name in names if name in config}
        loss = partial(
            contrastive if 'weight' in arguments else bpr, num_users=task.num_users, **arguments
        )
    scoring = partial(task.scoring, rule=config['scoring'])
    batches = partial(task.batches, config['batch_size'])

    def score(module: torch.nn.Module) -> float:
        way, figures = task.choose(scoring(module))
        if isinstance(module, AttentionEncoder):
            module.scoring = RULES[way]  # kept with the best weights
        return figures['ndcg@20']

    return Training(module, optimizer, loss, batches, score, path, precision=config['precision'])


def run(args: argparse.Namespace, variant: str, config: dict[str, Any]) -> Path:
    r"""Trains and measures a model for each seed and writes the result."""
    with data_from(args.root, INTERACTIONS):
        task = Task(
            args.root, args.dataset, args.device if 'epochs' in config else torch.device('cpu')
        )
    content = task.content
    found: dict[str, list[float]] = {}
    seconds = parameters = None
    if 'epochs' in config:
        for seed in args.seeds:
            path = checkpoint(
                args.model, args.dataset, [args.dataset, args.model, config, seed], content
            )
            training = prepare(task, args.model, config, seed, path)
            log = (
                curves(Path(args.tensorboard) / path.stem) if args.tensorboard else lambda *_: None
            )
            training.fit(
                config['epochs'],
                config['patience'],
                config['every'],
                f'{args.model}, seed {seed}',
                log,
            )
            with torch.no_grad():
                figures = task.measure(task.scoring(training.model.eval(), config['scoring']))
                if isinstance(training.model, AttentionEncoder):
                    figures |= training.model.diagnosis()
            for name, value in {
                **figures,
                'best_epoch': training.best_epoch,
                'loss_spike': training.loss_spike,
            }.items():
                found.setdefault(name, []).append(value)
            print(
                f'seed {seed}:',
                json.dumps({name: round(values[-1], 4) for name, values in found.items()}),
                flush=True,
            )
            seconds = training.seconds / training.epoch
            parameters = sum(parameter.numel() for parameter in training.model.parameters())
    else:
        matrix = interaction_matrix(task.train, task.num_users, task.num_items)
        scores = (
            ease(matrix, config['regularization'])
            if args.model == 'ease'
            else item_knn(matrix, config['power'])
        )
        found = {
            name: [value]
            for name, value in task.measure(
                Scoring(scores, {INNER: torch.ones(task.num_items)})
            ).items()
        }
    return write_result(
        'recommendation',
        args.dataset,
        args.model,
        variant=variant,
        protocol=task.protocol,
        seeds=args.seeds if 'epochs' in config else [],
        metrics=found,
        config=config,
        data=content,
        parameters=parameters,
        epoch_seconds=seconds,
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        folder=args.output,
    )


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, dict[str, dict[str, Any]]]:
    r"""The arguments, and the configurations to run, by the name of the variant."""
    parser = script_parser(__doc__)
    add_root(parser, INTERACTIONS)
    parser.add_argument(
        '--dataset',
        default='amazon-beauty',
        help=f'the folder in --root; {", ".join(PUBLIC)} can be downloaded',
    )
    parser.add_argument(
        '--model', choices=DEFAULTS, default='mgformer', help='the recommender that is trained'
    )
    add_seeds(parser, [0, 1, 2])
    parser.add_argument(
        '--variant',
        default='',
        help='name of a configuration that is not the default (default: what differs, as dim16-encoding8)',
    )
    parser.add_argument(
        '--study',
        choices=STUDIES,
        help='run MGFormer in small, and all that differ from it in one respect',
    )
    parser.add_argument('--tensorboard', help='folder for the curves of the training')
    add_device(parser)
    add_table(parser)
    options: dict[str, Any] = {}
    for config in DEFAULTS.values():
        options |= {name: value for name, value in config.items() if options.get(name) is None}
    for name, value in options.items():
        flag, kind = f'--{name.replace("_", "-")}', int if value is None else type(value)
        how: dict[str, Any] = (
            {'action': argparse.BooleanOptionalAction} if kind is bool else {'type': kind}
        )
        text, choices = HELP[name]
        how |= {'choices': choices} if choices else {}
        parser.add_argument(
            flag, default=None, help=f'{text} (default: {defaults_of(name)})', **how
        )
    args = parser.parse_args(argv)
    given = {name: getattr(args, name) for name in options if getattr(args, name) is not None}
    default = defaults(args.model, args.dataset)
    unknown = sorted(set(given) - set(default))
    if unknown:
        parser.error(f'{args.model} has no option {", ".join(unknown)}')
    if args.study is not None:
        if given or args.variant or args.model != 'mgformer':
            parser.error(
                'a study names its own variants of mgformer: give neither another model nor '
                'options of one'
            )
        return args, {
            variant: default | STUDY | changes
            for variant, changes in {'study': {}, **STUDIES[args.study]}.items()
        }
    differing = {name: value for name, value in given.items() if value != default[name]}
    return args, {args.variant or variant_name(differing): default | given}


def defaults_of(name: str) -> str:
    r"""The defaults of an option, by model where they differ."""
    models: dict[str, list[str]] = {}
    for model, config in DEFAULTS.items():
        if name in config:
            models.setdefault(str(config[name]), []).append(model)
    return '; '.join(
        f'{value} for {", ".join(named)}' if len(models) > 1 else value
        for value, named in models.items()
    )


def main() -> None:
    args, configs = parse()
    warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
    if not args.table:
        read_results(args.output / 'recommendation')
        for variant, config in configs.items():
            print(run(args, variant, config), file=sys.stderr)
    print(
        report(
            source(args, 'recommendation', f'*-{args.dataset}*.json'),
            args.output / 'recommendation',
            args.dataset,
        )
    )


if __name__ == '__main__':
    run_script(main)
