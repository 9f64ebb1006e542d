r"""Trains an encoder of nodes for each seed, measures it and writes the result."""

# N nodes, E edges.
import argparse
import statistics
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.data import Data

from benchmarks.common.memory import peak_mib, try_restart_peak
from benchmarks.common.results import write_result
from benchmarks.common.scripts import data_from
from benchmarks.common.seeds import Schedule, train_seeds
from benchmarks.common.training import Training, checkpoint, fingerprint
from benchmarks.link_prediction.datasets import PROTOCOL, Split, adamic_adar
from benchmarks.link_prediction.settings import HEURISTIC, make_config
from benchmarks.node_classification.datasets import LAYOUT, load, prepare_features
from benchmarks.node_classification.models import Classifier, make, takes_sparse
from torch_geometric_lgt.functional.ranking import Scores

TASK = 'link_prediction'


def inner_products(encoder: Classifier, x: Tensor) -> Scores:
    r"""Returns the scores of nodes with all nodes."""
    z = encoder(x)[0]
    return lambda nodes: z[nodes] @ z.t()


def training_loss(encoder: Classifier, data: Data, pairs: Tensor) -> Tensor:
    r"""Computes the binary cross entropy of the training edges and of as many random pairs."""
    z = encoder(data.x)[0]
    random = torch.randint(z.size(0), pairs.shape, device=z.device)
    source, target = torch.cat([pairs, random], 1)
    is_edge = torch.arange(source.numel(), device=z.device) < pairs.size(1)
    return binary_cross_entropy_with_logits((z[source] * z[target]).sum(1), is_edge.to(z.dtype))


def prepare(
    data: Data, split: Split, model: str, config: dict[str, Any], seed: int, path: Path
) -> Training:
    r"""Seeds the random state and builds the training of an encoder, which reads the features of
    :obj:`data` and the training edges."""
    torch.manual_seed(seed)
    edges, sizes = split.train, (data.num_features, config['channels'])
    encoder = make(model, *sizes, edges, split.num_nodes, config['options']).to(edges.device)
    return Training(
        encoder,
        torch.optim.Adam(encoder.parameters(), lr=config['lr']),
        partial(training_loss, pairs=edges[:, edges[0] < edges[1]]),
        lambda: [data],
        lambda encoder: split.validate(inner_products(encoder, data.x)),
        path,
    )


@torch.no_grad()
def measure(training: Training, data: Data, split: Split) -> dict[str, float]:
    r"""Measures a finished training on the test edges."""
    return {
        **split.measure(inner_products(training.model.eval(), data.x)),
        'valid_ndcg@20': training.best_score,
        'best_epoch': training.best_epoch,
        'epoch_ms': 1000 * training.seconds / training.epoch,
    }


def measure_heuristic(splits: Iterable[Split]) -> dict[str, list[float]]:
    r"""Measures the sums over common neighbours on each split."""
    values = [split.measure(adamic_adar(split.train, split.num_nodes)) for split in splits]
    return {name: [value[name] for value in values] for name in values[0]}


def run(args: argparse.Namespace) -> Path:
    r"""Measures an encoder, trained once for each seed, or the heuristic on each split, and writes
    the result."""
    name, config = Path(args.dataset).stem, make_config(args.model, args.control)
    device = torch.device('cpu') if args.model == HEURISTIC else args.device
    with data_from(args.root, LAYOUT):
        graph = load(args.root, args.dataset)
        splits = {seed: Split(graph, seed, device) for seed in args.seeds}
    content = fingerprint({'x': graph.x, 'edge_index': graph.edge_index})
    write = partial(
        write_result,
        TASK,
        name,
        args.model,
        variant=args.control or '',
        protocol=PROTOCOL,
        seeds=args.seeds,
        config=config,
        data=content,
        folder=args.output,
    )
    if args.model == HEURISTIC:
        try_restart_peak()
        return write(metrics=measure_heuristic(splits.values()), peak_memory_mib=peak_mib())

    sparse = takes_sparse(args.model, config['options']) and device.type == 'cpu'
    data = prepare_features(Data(x=graph.x), normalize=True, sparse=sparse).to(device)

    def prepare_seed(seed: int) -> Training:
        path = checkpoint(args.model, name, [TASK, name, args.model, config, seed], content)
        return prepare(data, splits[seed], args.model, config, seed, path)

    results = train_seeds(
        args.seeds,
        prepare_seed,
        lambda training, seed: measure(training, data, splits[seed]),
        Schedule(config['epochs'], config['patience'], config['every']),
        args.model,
    )
    return write(
        metrics=results.metrics,
        parameters=results.parameters,
        epoch_seconds=statistics.median(results.metrics['epoch_ms']) / 1000,
        peak_memory_mib=results.peak_memory_mib,
        training_commits=results.training_commits,
    )
