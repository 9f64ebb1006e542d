r"""Recommenders on user-item interactions: full-ranking Recall@20 and NDCG@20, chosen by the validation NDCG@20.

python -m benchmarks.recommendation --root DATA --dataset amazon-beauty --model mgformer --seeds 0 1 2
python -m benchmarks.recommendation --table          # the table of all results that are there

A run that was killed goes on where it was when the same command is given again.
"""

import argparse
import hashlib
import json
import resource
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common.ranking import Scores, evaluate
from benchmarks.common.results import RESULTS, write_result
from benchmarks.common.training import Training
from benchmarks.recommenders import (
    COSINE,
    INNER,
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
from torch_geometric_lgt._io import write_atomically
from torch_geometric_lgt.datasets import InteractionDataset
from torch_geometric_lgt.datasets._split import SPLITS
from torch_geometric_lgt.transforms import SVDEncoding

CHECKPOINTS = RESULTS.parent / 'checkpoints'
TRAINED = {
    'epochs': 300,
    'patience': 4,
    'every': 3,
    'batch_size': 2048,
    'lr': 1e-3,
    'weight_decay': 1e-6,
    'dim': 64,
    'scoring': 'popularity',
}
DIRECTAU = {**TRAINED, 'gamma': 0.5, 'loss': 'directau'}
BPR = {**TRAINED, 'regularization': 1e-4}
CONTRAST = {**BPR, 'temperature': 0.2}
ATTENTION = {'layers': 1, 'heads': 1, 'mask': 'degree', 'feature_map': 'simplex', 'num_features': None, 'residual': True, 'refresh': 1}
ENCODING = {'encoding': 64, 'normalize': True, 'encoding_scale': 0.2}
DEFAULTS: dict[str, dict[str, Any]] = {
    'mgformer': {**DIRECTAU, **ATTENTION, **ENCODING},
    'directau-lightgcn': {**DIRECTAU, 'layers': 2},
    'directau-mf': {**DIRECTAU, 'layers': 0},
    'simgcl': {**CONTRAST, 'layers': 2, 'weight': 0.5, 'length': 0.1},
    'sgl': {**CONTRAST, 'layers': 3, 'weight': 0.1, 'share': 0.1},
    'lightgcn': {**BPR, 'layers': 3},
    'bprmf': {**BPR, 'layers': 0},
    'ease': {'regularization': 200.0},
    'itemknn': {'power': -0.3},
}
PUBLISHED = {  # Table 2 of "Masked Graph Transformer for Large-Scale Recommendation"
    'amazon-beauty': {
        'bprmf': (0.1153, 0.0534),
        'lightgcn': (0.1201, 0.0581),
        'sgl': (0.1228, 0.0644),
        'simgcl': (0.1367, 0.0682),
        'directau-lightgcn': (0.1465, 0.0710),
        'mgformer': (0.1531, 0.0748),
    }
}


class Task:
    r"""A data set and what is measured on it."""

    def __init__(self, root: str, name: str) -> None:
        self.data = InteractionDataset(root, name)[0]
        self.num_users, self.num_items = self.data['user'].num_nodes, self.data['item'].num_nodes
        self.train, self.valid, self.test = (self.data['user', 'rates', 'item'][f'{part}_edge_label_index'] for part in SPLITS)
        self.nodes = self.train + self.train.new_tensor([[0], [self.num_users]])

    @property
    def degree(self) -> Tensor:
        r"""Of the items, in training."""
        return torch.bincount(self.train[1], minlength=self.num_items).clamp(min=1)

    @property
    def groups(self) -> dict[str, Tensor]:
        r"""Items by how often they were chosen in training, each group with a third of the training pairs."""
        degree = torch.bincount(self.train[1], minlength=self.num_items)
        order = degree.argsort(stable=True)
        third = torch.empty_like(order)
        third[order] = ((degree[order].cumsum(0) - degree[order]) * 3 // self.train.size(1)).clamp(max=2)
        return {name: third == index for index, name in enumerate(('unpopular', 'normal', 'popular'))}

    def choose(self, ways: dict[float, Scores]) -> tuple[float, dict[str, float]]:
        r"""The way to score that is best on the validation part, and its figures there."""
        found = {way: evaluate(scores, self.valid, self.train, self.num_users) for way, scores in ways.items()}
        best = max(found, key=lambda way: found[way]['ndcg@20'])
        return best, found[best]

    def measure(self, ways: dict[float, Scores]) -> dict[str, float]:
        r"""Figures of the chosen way, and those of the inner product and the cosine where they are among the ways. Items of the validation
        part are not ranked at test time; no model has seen them."""
        way, valid = self.choose(ways)
        figures = partial(evaluate, pairs=self.test, seen=torch.cat([self.train, self.valid], 1), num_users=self.num_users)
        test = figures(ways[way], groups=self.groups)
        for name, plain in (('inner', INNER), ('cosine', COSINE)):
            if plain in ways:
                test |= {f'{metric}_{name}': value for metric, value in figures(ways[plain]).items()}
        return test | {f'valid_{name}': value for name, value in valid.items()} | {'scoring_parameter': way}

    def batches(self, size: int) -> list[Tensor]:
        return [self.nodes[:, part] for part in torch.randperm(self.nodes.size(1)).split(size)]


def encoder(task: Task, model: str, config: dict[str, Any]) -> torch.nn.Module:
    if model != 'mgformer':
        return GraphEncoder(task.train, task.num_users, task.num_items, config['dim'], config['layers'], skip_input=model == 'simgcl')
    data = task.data
    if config['encoding'] > 0:
        data = SVDEncoding(config['encoding'], normalize=config['normalize'], cache_dir=CHECKPOINTS / 'svd')(data)
    names = ('heads', 'mask', 'feature_map', 'num_features', 'residual', 'encoding_scale')
    out = AttentionEncoder.from_data(data, config['dim'], num_layers=config['layers'], **{name: config[name] for name in names})
    out.edge_index, out.refresh = torch.cat([task.nodes, task.nodes.flip(0)], 1), config['refresh']
    return out


def train(task: Task, model: str, config: dict[str, Any], seed: int, path: Path) -> tuple[dict[str, float], Training]:
    torch.manual_seed(seed)
    module = encoder(task, model, config)
    optimizer = torch.optim.Adam(module.parameters(), lr=config['lr'], weight_decay=config['weight_decay'])
    if 'gamma' in config:
        loss = partial(directau, weight=config['gamma'], variant=config['loss'])
    else:
        names = ('regularization', 'weight', 'temperature', 'share', 'length')
        arguments = {name: config[name] for name in names if name in config}
        loss = partial(contrastive if 'weight' in arguments else bpr, num_users=task.num_users, **arguments)
    ways = partial(scorings, num_users=task.num_users, rule=config['scoring'], degree=task.degree)
    batches = partial(task.batches, config['batch_size'])
    training = Training(module, optimizer, loss, batches, lambda module: task.choose(ways(module))[1]['ndcg@20'], path)
    training.fit(config['epochs'], config['patience'], config['every'], f'{model}, seed {seed}')
    with torch.no_grad():
        return task.measure(ways(module.eval())), training


def run(args: argparse.Namespace, config: dict[str, Any]) -> Path:
    r"""Trains and measures a model for each seed and writes the result."""
    task = Task(args.root, args.dataset)
    found: dict[str, list[float]] = {}
    seconds = parameters = None
    if 'epochs' in config:
        for seed in args.seeds:
            key = hashlib.sha256(json.dumps([args.dataset, args.model, config, seed], sort_keys=True).encode()).hexdigest()[:16]
            figures, training = train(task, args.model, config, seed, CHECKPOINTS / f'{args.model}-{args.dataset}-{key}.safetensors')
            for name, value in {**figures, 'best_epoch': training.best_epoch}.items():
                found.setdefault(name, []).append(value)
            print(f'seed {seed}:', json.dumps({name: round(values[-1], 4) for name, values in found.items()}), flush=True)
            seconds = training.seconds / training.epoch
            parameters = sum(parameter.numel() for parameter in training.model.parameters())
    else:
        matrix = interaction_matrix(task.train, task.num_users, task.num_items)
        scores = ease(matrix, config['regularization']) if args.model == 'ease' else item_knn(matrix, config['power'])
        found = {name: [value] for name, value in task.measure({INNER: scores}).items()}
    return write_result(
        'recommendation',
        args.dataset,
        args.model,
        variant=args.variant,
        protocol='given-split',
        seeds=args.seeds if 'epochs' in config else [],
        metrics=found,
        config=config,
        parameters=parameters,
        epoch_seconds=seconds,
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        folder=RESULTS,
    )


def table(dataset: str) -> str:
    r"""One row per result: test figures, mean and standard deviation over the seeds, beside the published ones."""
    records = [json.loads(path.read_text()) for path in (RESULTS / 'recommendation').glob('*.json')]
    records = sorted((r for r in records if r['dataset'] == dataset), key=lambda r: -r['metrics']['ndcg@20']['mean'])
    lines = [
        '| model | variant | scoring | Recall@20 | NDCG@20 | validation NDCG@20 | seeds | s / epoch | published |',
        '|---|---|---|---|---|---|---|---|---|',
    ]
    for record in records:
        mean = {name: f'{value["mean"]:.4f} ± {value["std"]:.4f}' for name, value in record['metrics'].items()}
        published = PUBLISHED.get(dataset, {}).get(record['model']) if not record['variant'] else None
        cells = [
            record['model'],
            record['variant'],
            record['config'].get('scoring', ''),
            mean['recall@20'],
            mean['ndcg@20'],
            f'{record["metrics"]["valid_ndcg@20"]["mean"]:.4f}',
            len(record['seeds']) or 'closed form',
            f'{record["epoch_seconds"]:.1f}' if record['epoch_seconds'] else '',
            '{:.4f} / {:.4f}'.format(*published) if published else '',
        ]
        lines.append(f'| {" | ".join(map(str, cells))} |')
    return '\n'.join(lines) + '\n'


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--dataset', default='amazon-beauty')
    parser.add_argument('--model', choices=DEFAULTS, default='mgformer')
    parser.add_argument('--root', default='data', help='folder of data sets')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--variant', default='', help='name of a configuration that is not the default')
    parser.add_argument('--table', action='store_true', help='write the table from the results that are there')
    options: dict[str, Any] = {}
    for defaults in DEFAULTS.values():
        options |= {name: value for name, value in defaults.items() if options.get(name) is None}
    for name, value in options.items():
        kind = int if value is None else type(value)
        flag = f'--{name.replace("_", "-")}'
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None)
        else:
            parser.add_argument(flag, type=kind, default=None)
    args = parser.parse_args(argv)
    given = {name: getattr(args, name) for name in options if getattr(args, name) is not None}
    unknown = sorted(set(given) - set(DEFAULTS[args.model]))
    if unknown:
        parser.error(f'{args.model} has no option {", ".join(unknown)}')
    config = DEFAULTS[args.model] | given
    if config != DEFAULTS[args.model] and not args.variant:
        parser.error('a configuration that is not the default needs a name: --variant')
    return args, config


def main() -> None:
    args, config = parse()
    warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
    if not args.table:
        print(run(args, config), file=sys.stderr)
    content = table(args.dataset)
    write_atomically(RESULTS / 'recommendation' / f'{args.dataset}.md', content.encode())
    print(content)


if __name__ == '__main__':
    main()
