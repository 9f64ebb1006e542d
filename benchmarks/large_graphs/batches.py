r"""Iterates over the parts of one large graph in training, and scores all nodes."""

import contextlib
import copy
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.common.files import writing
from benchmarks.large_graphs.datasets import NodeTask
from benchmarks.large_graphs.settings import SAMPLED
from torch_geometric_lgt.data import MappedGraph
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.loader import NeighborLoader, NodePartitionLoader

Metrics = TypeVar('Metrics')


class Batch(NamedTuple):
    r"""Holds a part of the graph and the nodes of the loss or the metric. With a memory it also
    holds the states of all other nodes in each layer."""

    data: Data
    train: Tensor
    states: list[AttentionState] | None

    def to(self, device: torch.device) -> 'Batch':
        return Batch(self.data.to(device), self.train.to(device), self.states)

    @property
    def arguments(self) -> dict[str, Any]:
        r"""Returns the arguments of a model that attends to the nodes outside of the batch too."""
        return {} if self.states is None else {'states': self.states, 'num_keys': len(self.train)}


class Batches:
    r"""Iterates over the batches of an epoch. The ``domain`` says what a node attends to.

    The layers of all nodes are in files of :obj:`folder`, or in memory without it. The folder is
    removed when the scores of all nodes are measured."""

    def __init__(
        self, task: NodeTask, model: Any, config: dict[str, Any], folder: Path | None = None
    ) -> None:
        data, self.folder = task.data, folder
        self.model, self.domain, self.refresh = model, config['domain'], config['refresh']
        self.inference_on_cpu = config['inference_on_cpu']
        self.validation: NeighborLoader | None = None
        if isinstance(data, MappedGraph):
            data = (data, data)
        self.whole_graph = NeighborLoader(data, [-1], batch_size=config['inference_batch_size'])
        if self.domain == 'graph':
            self.loader: Any = [copy.copy(data).to(next(model.parameters()).device)]
        elif self.domain == 'partition':
            self.loader = NodePartitionLoader(data, config['batch_size'])
        elif self.domain == 'training':
            self.loader = NodePartitionLoader(
                data, config['batch_size'], input_nodes=task.split['train'], equal_sizes=False
            )
        else:
            sampled = partial(
                NeighborLoader, data, config['fan_out'], batch_size=config['batch_size']
            )
            self.loader = sampled(input_nodes=task.split['train'], shuffle=True)
            if config['validation'] == 'sampled':
                self.validation = sampled(input_nodes=task.split['valid'])

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches_of(self.loader)

    def batches_of(self, loader: Any) -> Iterator[Batch]:
        r"""Iterates over the batches of a loader of this domain."""
        memory = None
        for step, data in enumerate(loader):
            if self.domain == 'memory' and step % (self.refresh or len(loader)) == 0:
                with self.writing_layers():
                    memory = self.model.attention_memory(self.whole_graph, self.subfolder('memory'))
            sampled = self.domain in SAMPLED
            train = (
                torch.arange(data.batch_size) if sampled else data.train_mask.nonzero().flatten()
            )
            yield Batch(data, train, None if memory is None else memory.without(data.n_id[train]))

    def subfolder(self, name: str) -> Path | None:
        r"""Returns the folder :obj:`name` in the folder of the files, if there is one."""
        return None if self.folder is None else self.folder / name

    def writing_layers(self) -> contextlib.AbstractContextManager[None]:
        r"""Turns a failure to write the layers of all nodes into one line that names the folder."""
        return contextlib.nullcontext() if self.folder is None else writing(self.folder)


def validation_scores(model: Any, batches: Batches) -> Tensor | None:
    r"""Computes the scores ``[n, O]`` of the validation nodes from sampled neighbours, with the
    attention of the training, or returns :obj:`None` if all nodes are scored instead.

    Each call draws the same neighbours, and leaves the random state of the training as it is."""
    if batches.validation is None:
        return None
    device, scores = next(model.parameters()).device, []
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for batch in batches.batches_of(batches.validation):
            batch = batch.to(device)
            out = model(batch.data.x.float(), batch.data.edge_index, **batch.arguments)
            scores.append(out[batch.train].cpu())
    return torch.cat(scores)


def measure_scores(model: Any, batches: Batches, measure: Callable[[Tensor], Metrics]) -> Metrics:
    r"""Computes the scores of all nodes on the CPU and returns what :obj:`measure` returns for
    them. Attention is over the whole graph, whatever the domain of the training."""
    if batches.domain == 'graph':
        data = batches.loader[0]
        return measure(model(data.x, data.edge_index).cpu())
    if batches.inference_on_cpu:
        model = copy.deepcopy(model).cpu()
    with batches.writing_layers():
        metrics = measure(model.inference(batches.whole_graph, batches.subfolder('scores')))
    if batches.folder is not None:  # Windows removes no file that an array maps
        shutil.rmtree(batches.folder, ignore_errors=True)
    return metrics
