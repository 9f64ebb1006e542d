r"""Runs one training for each seed: the only loop over seeds that writes results."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tqdm import tqdm

from benchmarks.common.training import Training, curves

Run = TypeVar('Run')


class Schedule(NamedTuple):
    r"""Says how long a training lasts: at most ``epochs``, with a score after ``every`` epochs,
    until ``patience`` scores in a row are not better."""

    epochs: int
    patience: int
    every: int = 1


class SeedResults(NamedTuple):
    r"""Holds the metrics with a value for each seed, the training of the last seed, the largest
    peak of memory of a training, and the commits of the trainings."""

    metrics: dict[str, list[float]]
    training: Training
    peak_memory_mib: float
    training_commits: list[str]

    @property
    def parameters(self) -> int:
        r"""Counts the parameters of the model."""
        return sum(parameter.numel() for parameter in self.training.model.parameters())


def with_progress(runs: Iterable[Run], name: str) -> Iterable[Run]:
    r"""Iterates over runs, with a bar if there are several."""
    runs = list(runs)
    return tqdm(runs, name) if len(runs) > 1 else runs


def train_seeds(
    seeds: Sequence[int],
    prepare: Callable[[int], Training],
    measure: Callable[[Training, int], dict[str, float]],
    schedule: Schedule,
    name: str,
    tensorboard: str | None = None,
    print_metrics: bool = True,
) -> SeedResults:
    r"""Trains and measures a model for each seed.

    Args:
        seeds (list): The seeds, at least one.
        prepare (callable): Seeds the random state and returns the training of a seed.
        measure (callable): Returns the metrics of a finished training and its seed.
        schedule (Schedule): How long each training lasts.
        name (str): The name in progress bars and messages.
        tensorboard (str, optional): A folder for the curves of the training. (default: :obj:`None`)
        print_metrics (bool, optional): Whether to print the metrics of each seed. (default:
            :obj:`True`)
    """
    metrics: dict[str, list[float]] = {}
    commits: dict[str, None] = {}
    peak = 0.0
    for seed in with_progress(seeds, f'{name}, {len(seeds)} seeds'):
        training = prepare(seed)
        log = curves(Path(tensorboard) / training.path.stem) if tensorboard else _log_nothing
        training.fit(*schedule, f'{name}, seed {seed}', log)
        measured = measure(training, seed)
        for metric, value in measured.items():
            metrics.setdefault(metric, []).append(value)
        peak = max(peak, training.peak_memory_mib)
        commits |= dict.fromkeys(training.commits)
        if print_metrics:
            rounded = {metric: round(value, 4) for metric, value in measured.items()}
            tqdm.write(f'seed {seed}: {json.dumps(rounded)}')
    return SeedResults(metrics, training, peak, list(commits))


def _log_nothing(name: str, value: float, epoch: int) -> None:
    r"""Takes the place of a log where none was asked for."""
