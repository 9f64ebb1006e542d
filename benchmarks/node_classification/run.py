r"""Trains a node classifier for each seed, measures it and writes the result."""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from benchmarks.common.results import write_result
from benchmarks.common.scripts import data_from
from benchmarks.common.seeds import Schedule, train_seeds
from benchmarks.common.training import SecondPhase, Training, checkpoint, fingerprint
from benchmarks.node_classification.datasets import LAYOUT, load, prepare_features, split
from benchmarks.node_classification.metrics import METRICS, check_classes
from benchmarks.node_classification.models import (
    Classifier,
    make,
    parameter_groups,
    takes_sparse,
)
from benchmarks.node_classification.plots import draw, model_on
from benchmarks.node_classification.report import save_curves
from torch_geometric_lgt.init import kmeans_

TASK = 'node_classification'


class Plan(NamedTuple):
    r"""Describes a run: the name of the variant, the split, the number of nearest neighbours that
    replace the graph, and the configuration."""

    variant: str
    protocol: str
    neighbors: int | None
    config: dict[str, Any]


def training_loss(
    classifier: Classifier, data: Data, train: Tensor, edge_loss_weight: float
) -> Tensor:
    r"""Computes the cross entropy of the training nodes plus the weighted edge loss."""
    out, edge_loss = classifier(data.x, edge_loss_weight > 0)
    return cross_entropy(out[train].float(), data.y[train]) + edge_loss_weight * edge_loss


@torch.no_grad()
def evaluate(classifier: Classifier, data: Data, nodes: Tensor, metric: str) -> float:
    r"""Computes a metric of the scores of nodes."""
    scores = classifier(data.x)[0]
    return METRICS[metric].compute(scores[nodes], data.y[nodes])


def model_input(data: Data, model: str, config: dict[str, Any], device: torch.device) -> Data:
    r"""Converts a graph to the form that a model reads. Features are sparse on a CPU in single
    precision, where products with sparse features are fast."""
    sparse = (
        takes_sparse(model, config['options'])
        and device.type == 'cpu'
        and config['precision'] == 'float32'
    )
    settings = config['normalize_features'], config['laplacian_pe']
    return prepare_features(data, *settings, sparse).to(device)


def dense_tensors(data: Data) -> dict[str, Tensor]:
    r"""Selects the tensors of a graph by name."""
    return {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}


def prepare(
    data: Data, parts: dict[str, Tensor], model: str, config: dict[str, Any], seed: int, path: Path
) -> Training:
    r"""Seeds the random state and builds the training of a model."""
    torch.manual_seed(seed)
    num_classes = int(data.y.max()) + 1
    classifier = make(
        model,
        data.num_features,
        num_classes,
        data.edge_index,
        data.num_nodes,
        config['options'],
        config['precision'],
    ).to(data.edge_index.device)
    if config['options'].get('attention') == 'groups':
        kmeans_(classifier, data.x, trainable=False, seed=seed)
    groups = parameter_groups(classifier, config['weight_decay'], config['attention_weight_decay'])
    optimizer = torch.optim.Adam(groups, lr=config['lr'])
    loss = partial(training_loss, train=parts['train'], edge_loss_weight=config['edge_loss_weight'])
    score = partial(evaluate, data=data, nodes=parts['valid'], metric=config['metric'])
    local_epochs = config.get('local_epochs')
    return Training(
        classifier,
        optimizer,
        loss,
        lambda: [data],
        score,
        path,
        precision=config['precision'],
        second_phase=None
        if local_epochs is None
        else SecondPhase(local_epochs, classifier.start_attention),
    )


@torch.no_grad()
def measure(training: Training, data: Data, test: Tensor, metric: str) -> dict[str, float]:
    r"""Measures a finished training. No other function measures the test nodes. The time of the
    inference is that of the scores, without the metric."""
    classifier, times = training.model.eval(), []
    for _ in range(5):
        start = time.perf_counter()
        scores = classifier(data.x)[0]
        if scores.is_cuda:
            torch.cuda.synchronize(scores.device)
        times.append(time.perf_counter() - start)
    return {
        metric: METRICS[metric].compute(scores[test], data.y[test]),
        f'valid_{metric}': training.best_score,
        'best_epoch': training.best_epoch,
        'loss_spike': training.loss_spike,
        'epoch_ms': 1000 * training.seconds / training.epoch,
        'inference_ms': 1000 * statistics.median(times),
    }


def run(args: argparse.Namespace, plan: Plan) -> Path:
    r"""Trains and measures a model for each seed and writes the result."""
    variant, protocol, neighbors, config = plan
    with data_from(args.root, LAYOUT):
        graph = load(args.root, args.dataset, neighbors, config['wrong_edges'])
        parts = {seed: split(graph, protocol, seed) for seed in args.seeds}
    for part in parts.values():
        check_classes(graph.y, part, config['metric'])
    content = fingerprint(dense_tensors(graph))
    data = model_input(graph, args.model, config, args.device)
    name = Path(args.dataset).stem

    def prepare_seed(seed: int) -> Training:
        settings = [name, protocol, neighbors, args.model, config, seed]
        path = checkpoint(args.model, name, settings, fingerprint(content, parts[seed]))
        return prepare(data, parts[seed], args.model, config, seed, path)

    results = train_seeds(
        args.seeds,
        prepare_seed,
        lambda training, seed: measure(training, data, parts[seed]['test'], config['metric']),
        Schedule(config['epochs'], config['patience']),
        args.model,
        args.tensorboard,
    )
    of_model = filter(None, (model_on(args.model, name), variant))
    title = f'{", ".join(of_model)}, seed {args.seeds[-1]}'
    if args.curves:
        save_curves(
            results.training.history, Path(args.curves), title, METRICS[config['metric']].title
        )
    if args.pictures:
        stem = '-'.join(filter(None, (args.model, name, protocol, variant)))
        draw(results.training.model.eval(), data, args.output / TASK / stem, title)
    return write_result(
        TASK,
        name,
        args.model,
        variant=variant,
        protocol=protocol,
        seeds=args.seeds,
        metrics=results.metrics,
        config=config | {'neighbors': neighbors},
        data=content,
        parameters=results.parameters,
        epoch_seconds=statistics.median(results.metrics['epoch_ms']) / 1000,
        peak_memory_mib=results.peak_memory_mib,
        training_commits=results.training_commits,
        folder=args.output,
        protocol_in_name=True,
    )
