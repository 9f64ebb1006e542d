r"""Defines how the learning rate changes over a training."""

import math
from collections.abc import Iterable, Sized
from typing import NamedTuple

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Plateau(NamedTuple):
    r"""Halves a learning rate if the validation loss has not fallen for more than
    :obj:`patience` validations. The training ends at the rate :obj:`least`."""

    lr: float
    patience: int
    least: float

    def rate(self, losses: Iterable[float]) -> float:
        r"""Returns the learning rate after these validation losses."""
        optimizer = torch.optim.SGD([torch.zeros(1)], self.lr)
        schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=self.patience)
        for loss in losses:
            schedule.step(loss)
        return optimizer.param_groups[0]['lr']


class Cosine(NamedTuple):
    r"""Raises a learning rate in equal steps over :obj:`warmup` epochs, then lowers it along half a
    cosine until 0 at the end of the training."""

    lr: float
    epochs: int
    warmup: int
    least: float = 0.0

    def rate(self, losses: Sized) -> float:
        r"""Returns the learning rate of the epoch after these validation losses."""
        epoch = len(losses)
        if epoch < self.warmup:
            return self.lr * (epoch + 1) / (self.warmup + 1)
        done = (epoch - self.warmup) / max(self.epochs - self.warmup, 1)
        return self.lr * (1 + math.cos(math.pi * min(done, 1))) / 2
