r"""Trains one model with checkpoints: a training that was killed continues where it was."""

import glob
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.common.files import DataError, check_folder, say, writing
from benchmarks.common.memory import peak_mib, try_restart_peak
from benchmarks.common.rates import Cosine, Plateau
from benchmarks.common.results import PUBLISHED, commit
from torch_geometric_lgt import __version__
from torch_geometric_lgt._io import checksum, open_regular, read_tensors, write_tensors

KIND, CHECKPOINTS = 'training', PUBLISHED.parent / 'checkpoints'
# Version of what a training computes from its settings. It is part of the names of checkpoints.
PROTOCOL = 3
SAVE_SECONDS = 20.0
NO_CHECKPOINT = ' for checkpoints; change its rights, or run a copy of the checkout'


def fingerprint(*parts: Mapping[str, Tensor] | str) -> str:
    r"""Computes a digest of the data of a run: dense tensors by name, and other digests."""
    digests = [
        part
        if isinstance(part, str)
        else checksum({name: value.cpu() for name, value in part.items() if value.numel() > 0})
        for part in parts
    ]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:12]


def checkpoint(model: str, dataset: str, settings: list[Any], data: str) -> Path:
    r"""Returns the checkpoint of a run, whose name has its settings, the fingerprint of its data
    and the version of the package. A message says if an earlier run differs in data or version
    only."""
    key = hashlib.sha256(json.dumps([PROTOCOL, *settings], sort_keys=True).encode()).hexdigest()[
        :12
    ]
    name = f'{model}-{dataset}-{key}'
    path = CHECKPOINTS / f'{name}-{data}-{__version__}.safetensors'
    others = sorted(CHECKPOINTS.glob(f'{glob.escape(name)}-*.safetensors'))
    if others and not path.exists():
        versions = [other for other in others if other.name.startswith(f'{name}-{data}-')]
        why = 'another version of the package' if versions else 'other data'
        say(f'{(versions or others)[-1]} is of {why}: the training starts anew')
    return path


def curves(folder: Path) -> Callable[[str, float, int], None]:
    r"""Returns a function that writes values by name and epoch for TensorBoard, which must be
    installed."""
    from torch.utils.tensorboard import SummaryWriter

    with writing(folder):
        return SummaryWriter(folder).add_scalar


class SecondPhase(NamedTuple):
    r"""Changes a model after :obj:`epochs` epochs by calling :obj:`begin`. The second phase starts
    from the best weights of the first, and only its own scores and patience count."""

    epochs: int
    begin: Callable[[], None]


class Training:
    r"""Trains a model until its score stops rising. A training that was killed continues from
    the checkpoint :obj:`path` as if it had not stopped.

    Args:
        model (torch.nn.Module): The model, on the device of the training.
        optimizer (torch.optim.Optimizer): The optimizer of its parameters.
        loss (callable): Computes the loss of the model on a batch.
        batches (callable): Returns the sized collection of batches of an epoch. Random batches are
            drawn from the global random state.
        score (callable): Computes the validation score of the model, the higher the better, and
            with :obj:`rates` also its validation loss.
        path (Path): The checkpoint, a safetensors file that includes the random state.
        rates (Plateau or Cosine, optional): The learning rate over the training. (default:
            :obj:`None`, that of the optimizer)
        precision (str, optional): Under :obj:`"bfloat16"` the loss is computed with autocast.
            (default: :obj:`"float32"`)
        second_phase (SecondPhase, optional): A change of the model during the training. (default:
            :obj:`None`)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[torch.nn.Module, Any], Tensor],
        batches: Callable[[], Any],
        score: Callable[[torch.nn.Module], Any],
        path: Path,
        rates: Plateau | Cosine | None = None,
        precision: str = 'float32',
        second_phase: SecondPhase | None = None,
    ) -> None:
        self.device, self.precision = next(model.parameters()).device, precision
        self.model, self.optimizer, self.path = model, optimizer, path
        self.loss, self.batches, self.score = loss, batches, score
        self.rates, self.second_phase = rates, second_phase
        self.epoch, self.best_epoch = 0, 0
        self.best_score, self.seconds = float('-inf'), 0.0
        self.best = self._weights()
        self.history = torch.empty(0, 3 if rates is None else 4)
        self.saved = time.perf_counter()
        self.commits: list[str] = []
        self.earlier_peak = 0.0
        try_restart_peak()
        if (tensors := self._read()) is not None:
            self._resume(tensors)

    def fit(
        self,
        max_epochs: int,
        patience: int,
        every: int,
        name: str,
        log: Callable[[str, float, int], None],
    ) -> None:
        r"""Trains for at most :obj:`max_epochs` with a score after :obj:`every` epochs, and
        stops after :obj:`patience` scores without a better one. The model gets the best weights.
        :obj:`log` receives each loss and score with its epoch. A message says if the training
        was finished before."""
        start = self.epoch
        first_epochs = 0 if self.second_phase is None else self.second_phase.epochs

        def is_finished() -> bool:
            return (
                self.epoch >= max_epochs
                or self.epoch - max(self.best_epoch, first_epochs) >= patience * every
                or self._is_flat()
            )

        if is_finished():
            say(f'{name}: finished before after {start} epochs, read back from {self.path}')
            self.model.load_state_dict(self.best)
            return
        check_folder(self.path.parent, NO_CHECKPOINT)
        self.commits = list(dict.fromkeys([*self.commits, commit()]))
        if start > 0:
            say(f'{name}: goes on after {start} epochs, read from {self.path}')
        with tqdm(total=max_epochs, initial=start, desc=name) as bar:
            while not is_finished():
                loss = self.run_epoch()
                log('loss', loss, self.epoch)
                if self.epoch % every == 0 or self.epoch == max_epochs:
                    score, *others = self._evaluate()
                    log('score', score, self.epoch)
                    self.history = torch.cat(
                        [self.history, torch.tensor([[self.epoch, loss, score, *others]])]
                    )
                    if time.perf_counter() - self.saved >= SAVE_SECONDS:
                        self._save()
                bar.set_postfix(
                    loss=f'{loss:.4f}',
                    best=f'{self.best_score:.4f}',
                    at=self.best_epoch,
                    refresh=False,
                )
                bar.update()
            bar.total = self.epoch
            bar.refresh()
        self._save()
        self.model.load_state_dict(self.best)

    @property
    def peak_memory_mib(self) -> float:
        r"""Returns the peak of the memory of the processes that ran this training."""
        return max(self.earlier_peak, peak_mib())

    @property
    def loss_spike(self) -> float:
        r"""Returns how far the training loss rose above its least earlier value. It is the largest
        number of the dtype after a loss that is not finite."""
        losses = self.history[:, 1]
        rises = losses - losses.cummin(0).values
        return float(rises.nan_to_num(nan=torch.finfo(losses.dtype).max).max())

    def run_epoch(self) -> float:
        r"""Trains once over the batches and returns the mean of their losses."""
        start = time.perf_counter()
        if self.second_phase is not None and self.epoch == self.second_phase.epochs:
            self.model.load_state_dict(self.best)
            self.best_score, self.best_epoch = float('-inf'), self.epoch
            self.second_phase.begin()
        self.model.train()
        if self.rates is not None:
            for group in self.optimizer.param_groups:
                group['lr'] = self.rates.rate(self.history[:, 3].tolist())
        batches = self.batches()
        losses = [
            self._step(batch)
            for batch in (tqdm(batches, leave=False) if len(batches) > 1 else batches)
        ]
        loss = float(torch.stack(losses).mean())
        self.seconds += time.perf_counter() - start
        self.epoch += 1
        return loss

    def _step(self, batch: Any) -> Tensor:
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == 'bfloat16'):
            loss = self.loss(self.model, batch.to(self.device))
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _is_flat(self) -> bool:
        return (
            self.rates is not None
            and self.rates.rate(self.history[:, 3].tolist()) <= self.rates.least
        )

    @torch.no_grad()
    def _evaluate(self) -> tuple[float, ...]:
        self.model.eval()
        score = self.score(self.model)
        scores = score if isinstance(score, tuple) else (score,)
        if scores[0] > self.best_score:
            self.best_score, self.best_epoch, self.best = scores[0], self.epoch, self._weights()
        return scores

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _save(self) -> None:
        tensors = {f'model.{name}': value for name, value in self.model.state_dict().items()}
        tensors |= {f'best.{name}': value for name, value in self.best.items()}
        for index, state in self.optimizer.state_dict()['state'].items():
            tensors |= {f'optimizer.{index}.{name}': value for name, value in state.items()}
        tensors['random'] = torch.get_rng_state()
        if self.device.type == 'cuda':
            tensors['random_on_device'] = torch.cuda.get_rng_state(self.device)
        tensors['history'] = self.history
        tensors['progress'] = torch.tensor(
            [self.epoch, self.best_epoch, self.best_score, self.seconds], dtype=torch.float64
        )
        tensors['peak_memory_mib'] = torch.tensor(self.peak_memory_mib, dtype=torch.float64)
        text = json.dumps(self.commits).encode()
        tensors['commits'] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(self.path, tensors, KIND)
        self.saved = time.perf_counter()

    def _read(self) -> dict[str, Tensor] | None:
        r"""Reads the checkpoint; :obj:`None` if there is no intact one.

        Raises:
            DataError: If there is a folder, a pipe, a device or a socket in its place.
        """
        try:
            open_regular(self.path).close()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DataError(str(error)) from error
        try:
            return read_tensors(self.path, KIND)
        except ValueError:
            say(f'{self.path} is no intact checkpoint: the training starts anew')
            return None

    def _resume(self, tensors: dict[str, Tensor]) -> None:
        groups: dict[str, dict[str, Tensor]] = {'model': {}, 'best': {}, 'optimizer': {}}
        for name, value in tensors.items():
            group, _, rest = name.partition('.')
            if rest:
                groups[group][rest] = value
        self.model.load_state_dict(groups['model'])
        self.best = groups['best']
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in groups['optimizer'].items():
            index, _, key = name.partition('.')
            state.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict(
            {'state': state, 'param_groups': self.optimizer.state_dict()['param_groups']}
        )
        torch.set_rng_state(tensors['random'])
        if self.device.type == 'cuda' and 'random_on_device' in tensors:
            torch.cuda.set_rng_state(tensors['random_on_device'], self.device)
        self.history = tensors['history']
        epoch, best_epoch, self.best_score, self.seconds = tensors['progress'].tolist()
        self.epoch, self.best_epoch = int(epoch), int(best_epoch)
        if self.second_phase is not None and self.epoch > self.second_phase.epochs:
            self.second_phase.begin()
        self.commits = ['unknown']  # of a checkpoint of an earlier form
        if 'commits' in tensors:
            self.commits = json.loads(bytes(tensors['commits'].tolist()))
            self.earlier_peak = float(tensors['peak_memory_mib'])
