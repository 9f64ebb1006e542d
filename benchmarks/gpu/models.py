r"""Measures whole models: at the sizes of OGB's graphs, MGFormer on interactions, and inference
from host memory."""

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.common.files import say
from benchmarks.gpu.run import Run
from benchmarks.runtime import epochs, ogb_shapes
from benchmarks.runtime.measure import peak_memory_mib, seconds
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import SGFormer
from torch_geometric_lgt.nn.models import _layerwise_model

BEAUTY, RANDOM = 'amazon-beauty', 'random-interactions'
BEAUTY_SIZES = {'users': 22_363, 'items': 12_101, 'pairs': 198_502}
FEATURES, CLASSES, DEGREE = 128, 172, 15  # of ogbn-papers100M
ROUNDS = 3


def measure_models(run: Run) -> None:
    rounds = run.size(ROUNDS, 1)
    for shape in ('arxiv', 'proteins', 'products'):
        for model in ogb_shapes.OPTIONS:
            fraction = (
                run.size(ogb_shapes.SHAPES[shape].nodes, 200) / ogb_shapes.SHAPES[shape].nodes
            )
            config = {'shape': shape, 'model': model, 'fraction': fraction, 'rounds': rounds}
            run.measure('ogb-shape', shape, model, config, partial(shape_metrics, run, config))
    has_beauty = (run.root / BEAUTY).is_dir() and not run.rehearse
    config = {
        'model': 'mgformer',
        'interactions': BEAUTY if has_beauty else 'random, with the sizes of Beauty',
        'rounds': rounds,
    }
    run.measure(
        'epoch', BEAUTY, 'mgformer', config, partial(epoch_metrics, run, has_beauty, rounds)
    )
    config = {
        'nodes': run.size(1_000_000, 500),
        'degree': DEGREE,
        'features': FEATURES,
        'rounds': rounds,
    }
    run.measure(
        'inference', 'host-memory', 'sgformer', config, partial(inference_metrics, run, config)
    )


def shape_metrics(run: Run, config: dict[str, Any]) -> dict[str, list[float]]:
    try:
        return ogb_shapes.work(
            config['shape'],
            config['model'],
            str(run.device),
            'graph',
            config['fraction'],
            config['rounds'],
        )
    except torch.OutOfMemoryError:
        say(f'{config["model"]} does not fit into memory with the shape of {config["shape"]}')
        return {}


def epoch_metrics(run: Run, has_beauty: bool, rounds: int) -> dict[str, list[float]]:
    root, name = (run.root, BEAUTY) if has_beauty else (run.folder / 'data', RANDOM)
    if not has_beauty and not (root / name / 'raw.txt').exists():
        write_interactions(
            root / name, {kind: run.size(size, size // 100) for kind, size in BEAUTY_SIZES.items()}
        )
    return {
        'seconds': epochs.measure(str(root), name, ['mgformer'], rounds, run.device)['mgformer']
    }


def write_interactions(folder: Path, sizes: dict[str, int]) -> None:
    r"""Writes random pairs of users and items, at least one of each user and of each item."""
    folder.mkdir(parents=True, exist_ok=True)
    count, (users, items) = sizes['pairs'], (sizes['users'], sizes['items'])
    every = torch.stack([torch.arange(max(users, items)) % size for size in (users, items)])
    rest = torch.stack(
        [torch.randint(size, (max(0, count - every.size(1)),)) for size in (users, items)]
    )
    chosen: dict[int, set[int]] = {}
    for user, item in torch.cat([every, rest], 1).t().tolist():
        chosen.setdefault(user, set()).add(item)
    (folder / 'raw.txt').write_text(
        ''.join(f'{user} {" ".join(map(str, sorted(chosen[user])))}\n' for user in sorted(chosen))
    )


def inference_metrics(run: Run, config: dict[str, Any]) -> dict[str, list[float]]:
    r"""Times an inference over nodes in host memory, with copies from pinned and from pageable
    memory in turn."""
    nodes = config['nodes']
    model = SGFormer(FEATURES, 64, CLASSES).to(run.device)
    edge_index = torch.randint(nodes, (2, DEGREE * nodes))
    loader = NeighborLoader(
        Data(x=torch.randn(nodes, FEATURES), edge_index=edge_index),
        [-1],
        batch_size=run.size(100_000, 100),
    )
    ways = {'pinned': _layerwise_model.to_device, 'pageable': Tensor.to}
    metrics: dict[str, list[float]] = {}
    for turn in range(config['rounds'] + 1):
        for name, way in ways.items():
            with patch.object(_layerwise_model, 'to_device', way):
                times = seconds(lambda: model.inference(loader), 1, str(run.device))
            if turn > 0:
                metrics.setdefault(f'{name}_seconds', []).extend(times)
    if run.device.type == 'cuda':
        metrics['peak_memory_mib'] = [
            peak_memory_mib(lambda: model.inference(loader), str(run.device))
        ]
    return metrics
