import argparse
import glob
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from tqdm import tqdm

from benchmarks.common.results import PUBLISHED, DataError, say
from torch_geometric_lgt import __version__
from torch_geometric_lgt._io import checksum, open_regular, read_tensors, write_tensors

KIND, CHECKPOINTS = 'training', PUBLISHED.parent / 'checkpoints'
# counts the changes of what a training computes from the same settings, which no checkpoint can
# follow
PROTOCOL = 3
SAVE_SECONDS = 20.0


def add_device(parser: argparse.ArgumentParser) -> None:
    default = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    parser.add_argument(
        '--device',
        type=torch.device,
        default=default,
        help='where to train (default: the GPU where there is one)',
    )


def fingerprint(*parts: Mapping[str, Tensor] | str) -> str:
    r"""Returns a digest of what a run trains on: dense tensors by name, and other digests."""
    digests = [
        part
        if isinstance(part, str)
        else checksum({name: value.cpu() for name, value in part.items() if value.numel() > 0})
        for part in parts
    ]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:12]


def checkpoint(model: str, dataset: str, settings: list[Any], data: str) -> Path:
    r"""Returns the file of a run, named after its settings, the fingerprint of its data and the
    version of the package, and says so where only one of the latter has changed since an earlier
    run."""
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
    r"""Writes values by name and epoch for TensorBoard, which must be installed."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder).add_scalar


class Plateau(NamedTuple):
    r"""A learning rate that is halved when the validation loss has not fallen for more than
    :obj:`patience` validations, and the :obj:`least` one, at which the training ends."""

    lr: float
    patience: int
    least: float

    def rate(self, losses: Iterable[float]) -> float:
        r"""The learning rate after these validation losses."""
        optimizer = torch.optim.SGD([torch.zeros(1)], self.lr)
        schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=self.patience)
        for loss in losses:
            schedule.step(loss)
        return optimizer.param_groups[0]['lr']


class Training:
    r"""Trains until the score stops rising, on the device of the model, and goes on from
    :obj:`path` after a kill as if nothing had happened.

    Args:
        model (torch.nn.Module): What is trained.
        optimizer (torch.optim.Optimizer): Over its parameters.
        loss (callable): From the model and a batch to a loss.
        batches (callable): The batches of an epoch, a sized collection, if random drawn from the
            global random state.
        score (callable): The validation score of the model, the higher the better, with a plateau
            also its validation loss.
        path (Path): The checkpoint: safetensors with the random state, nothing to unpickle.
        plateau (Plateau, optional): The learning rate over the training. (default: :obj:`None`,
            that of the optimizer)
        precision (str, optional): :obj:`"bfloat16"`: the loss is computed under autocast. (default:
            :obj:`"float32"`)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[torch.nn.Module, Any], Tensor],
        batches: Callable[[], Any],
        score: Callable[[torch.nn.Module], Any],
        path: Path,
        plateau: Plateau | None = None,
        precision: str = 'float32',
    ) -> None:
        self.device, self.precision = next(model.parameters()).device, precision
        self.model, self.optimizer, self.loss, self.batches, self.score, self.path = (
            model,
            optimizer,
            loss,
            batches,
            score,
            path,
        )
        self.epoch, self.best_epoch, self.best_score, self.seconds, self.plateau = (
            0,
            0,
            float('-inf'),
            0.0,
            plateau,
        )
        self.best, self.history, self.saved = (
            self._weights(),
            torch.empty(0, 3 if plateau is None else 4),
            time.perf_counter(),
        )
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
        r"""Trains for at most :obj:`max_epochs`, scores :obj:`every` so many, stops after
        :obj:`patience` scores without a better one, and leaves the best weights in the model.
        :obj:`log` gets each loss and score with its epoch. A run that is finished says so."""
        start = self.epoch

        def is_finished() -> bool:
            return (
                self.epoch >= max_epochs
                or self.epoch - self.best_epoch >= patience * every
                or self._is_flat()
            )

        if is_finished():
            say(f'{name}: finished before after {start} epochs, read back from {self.path}')
            self.model.load_state_dict(self.best)
            return
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
    def loss_spike(self) -> float:
        r"""How far the training loss rose above its least value so far, in the whole training."""
        losses = self.history[:, 1]
        return float((losses - losses.cummin(0).values).max())

    def run_epoch(self) -> float:
        r"""Trains once over the batches and returns the mean of their losses."""
        start = time.perf_counter()
        self.model.train()
        if self.plateau is not None:
            for group in self.optimizer.param_groups:
                group['lr'] = self.plateau.rate(self.history[:, 3].tolist())
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
            self.plateau is not None
            and self.plateau.rate(self.history[:, 3].tolist()) <= self.plateau.least
        )

    @torch.no_grad()
    def _evaluate(self) -> tuple[float, ...]:
        self.model.eval()
        found = self.score(self.model)
        found = found if isinstance(found, tuple) else (found,)
        if found[0] > self.best_score:
            self.best_score, self.best_epoch, self.best = found[0], self.epoch, self._weights()
        return found

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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(self.path, tensors, KIND)
        self.saved = time.perf_counter()

    def _read(self) -> dict[str, Tensor] | None:
        r"""Reads the checkpoint, if there is an intact one.

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
        if self.device.type == 'cuda':
            torch.cuda.set_rng_state(tensors['random_on_device'], self.device)
        self.history = tensors['history']
        epoch, best_epoch, self.best_score, self.seconds = tensors['progress'].tolist()
        self.epoch, self.best_epoch = int(epoch), int(best_epoch)
