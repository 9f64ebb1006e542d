r"""Trains a recommender for each seed, measures it and writes the result."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch_geometric.utils import sort_edge_index

from benchmarks.common import training as common_training
from benchmarks.common.memory import peak_mib, try_restart_peak
from benchmarks.common.results import write_result
from benchmarks.common.scripts import INTERACTIONS, data_from
from benchmarks.common.seeds import Schedule, train_seeds
from benchmarks.common.training import Training, checkpoint
from benchmarks.recommendation.datasets import Task
from benchmarks.recommendation.models import (
    AttentionEncoder,
    GraphEncoder,
    bpr,
    contrastive,
    directau,
    ease,
    interaction_matrix,
    item_knn,
)
from benchmarks.recommendation.ranking import Scoring
from torch_geometric_lgt.init import kmeans_
from torch_geometric_lgt.transforms import SVDEncoding

TASK = 'recommendation'


def build_encoder(task: Task, model: str, config: dict[str, Any]) -> torch.nn.Module:
    r"""Builds the encoder of a recommender."""
    if model == 'mgformer':
        return _attention_encoder(task, config)
    return GraphEncoder(
        task.train,
        task.num_users,
        task.num_items,
        config['dim'],
        config['layers'],
        skip_input=model == 'simgcl',
    )


def _attention_encoder(task: Task, config: dict[str, Any]) -> AttentionEncoder:
    data = task.data
    if config['encoding'] > 0:
        cache = common_training.CHECKPOINTS / 'svd'
        data = SVDEncoding(config['encoding'], normalize=config['normalize'], cache_dir=cache)(data)
    names = ('heads', 'mask', 'feature_map', 'residual', 'encoding_scale')
    options = {name: config[name] for name in names}
    options |= {name: config[name] or None for name in ('num_features', 'key_channels')}
    max_degree = int(task.nodes.flatten().bincount().max())  # of the recorded results
    encoder = AttentionEncoder.from_data(
        data, config['dim'], num_layers=config['layers'], max_degree=max_degree, **options
    )
    edge_index = torch.cat([task.nodes, task.nodes.flip(0)], 1)
    encoder.edge_index = sort_edge_index(edge_index, sort_by_row=False)
    encoder.refresh = config['refresh']
    if config['start'] == 'kmeans':
        kmeans_(encoder, encoder.edge_index)
    return encoder


def prepare(task: Task, model: str, config: dict[str, Any], seed: int, path: Path) -> Training:
    r"""Seeds the random state and builds the training of a recommender."""
    torch.manual_seed(seed)
    encoder = build_encoder(task, model, config).to(task.train.device)
    optimizer = torch.optim.Adam(
        encoder.parameters(), lr=config['lr'], weight_decay=config['weight_decay'], fused=True
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

    def score(encoder: torch.nn.Module) -> float:
        chosen, metrics = task.choose(scoring(encoder))
        if isinstance(encoder, AttentionEncoder):
            encoder.scoring = chosen  # saved with the best weights
        return metrics['ndcg@20']

    return Training(encoder, optimizer, loss, batches, score, path, precision=config['precision'])


@torch.no_grad()
def measure(training: Training, task: Task, rule: str) -> dict[str, float]:
    r"""Measures a finished training on the test part."""
    metrics = task.measure(task.scoring(training.model.eval(), rule))
    if isinstance(training.model, AttentionEncoder):
        metrics |= training.model.diagnosis()
    return {**metrics, 'best_epoch': training.best_epoch, 'loss_spike': training.loss_spike}


def measure_closed_form(task: Task, model: str, config: dict[str, Any]) -> dict[str, float]:
    r"""Computes and measures a recommender without a training."""
    matrix = interaction_matrix(task.train, task.num_users, task.num_items)
    scores = (
        ease(matrix, config['regularization'])
        if model == 'ease'
        else item_knn(matrix, config['power'])
    )
    return task.measure(Scoring(scores, {'inner': torch.ones(task.num_items)}))


def run(args: argparse.Namespace, variant: str, config: dict[str, Any]) -> Path:
    r"""Measures a recommender, trained once for each seed if it has parameters, and writes the
    result."""
    is_trained = 'epochs' in config
    with data_from(args.root, INTERACTIONS):
        device = args.device if is_trained else torch.device('cpu')
        task = Task(args.root, args.dataset, device)
    content = task.content

    def prepare_seed(seed: int) -> Training:
        settings = [args.dataset, args.model, config, seed]
        path = checkpoint(args.model, args.dataset, settings, content)
        return prepare(task, args.model, config, seed, path)

    seconds = parameters = None
    commits: list[str] = []
    if is_trained:
        results = train_seeds(
            args.seeds,
            prepare_seed,
            lambda training, _: measure(training, task, config['scoring']),
            Schedule(config['epochs'], config['patience'], config['every']),
            args.model,
            args.tensorboard,
        )
        metrics, parameters = results.metrics, results.parameters
        peak, commits = results.peak_memory_mib, results.training_commits
        seconds = results.training.seconds / results.training.epoch
    else:
        try_restart_peak()
        closed_form = measure_closed_form(task, args.model, config)
        metrics = {name: [value] for name, value in closed_form.items()}
        peak = peak_mib()
    return write_result(
        TASK,
        args.dataset,
        args.model,
        variant=variant,
        protocol=task.protocol,
        seeds=args.seeds if is_trained else [],
        metrics=metrics,
        config=config,
        data=content,
        parameters=parameters,
        epoch_seconds=seconds,
        peak_memory_mib=peak,
        training_commits=commits,
        folder=args.output,
    )
