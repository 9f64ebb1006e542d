import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.files import say
from benchmarks.common.results import read_result, versions, write_result

Metrics = Mapping[str, list[float]]


class OutOfTimeError(Exception):
    r"""Says that the time of the run is over. The same command continues the run."""


@dataclass
class Run:
    r"""Holds the device, the folders and the time limit of a run over all steps."""

    device: torch.device
    output: Path
    root: Path
    public: str | None
    rehearse: bool
    minutes: float
    start: float = field(default_factory=time.monotonic)
    failures: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.output / 'gpu'

    @property
    def device_name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.device.type == 'cuda' else 'cpu'

    def seconds_left(self) -> float:
        return 60 * self.minutes - (time.monotonic() - self.start)

    def size(self, full: int, rehearsal: int) -> int:
        r"""Returns the full size, or in a rehearsal the small one."""
        return rehearsal if self.rehearse else full

    def measure(
        self,
        model: str,
        dataset: str,
        variant: str,
        config: Mapping[str, Any],
        function: Callable[[], Metrics],
    ) -> None:
        r"""Writes the metrics that a function returns, unless an earlier run of the same
        configuration wrote them. A function that fails is noted in :attr:`failures`.

        Raises:
            OutOfTimeError: If the time of the run is over.
        """
        config = {**config, 'device': self.device_name, 'rehearsal': self.rehearse}
        path = self.folder / f'{"-".join(filter(None, (model, dataset, variant)))}.json'
        if path.exists() and is_same(read_result(path), config):
            say(f'{path.stem}: measured before')
            return
        if self.seconds_left() < 0:
            raise OutOfTimeError
        say(f'{path.stem}, {self.seconds_left() / 60:.0f} minutes left')
        try:
            metrics = function()
        except OutOfTimeError:
            raise
        except Exception as error:
            self.failures.append(f'{path.stem}: {first_line(error)}')
            say(f'failed: {self.failures[-1]}')
            return
        labels = {
            'variant': variant,
            'protocol': 'rehearsal' if self.rehearse else 'one-process-alternating',
            'seeds': [0],
        }
        write_result(
            'gpu', dataset, model, metrics=metrics, config=config, folder=self.output, **labels
        )
        if self.device.type == 'cuda':
            torch.cuda.empty_cache()


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def is_same(record: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    r"""Tells whether a result is of this configuration, package and PyTorch."""
    code = {name: versions()[name] for name in ('torch', 'torch-geometric-lgt')}
    return (
        record['config'] == json.loads(json.dumps(config))
        and code.items() <= record['versions'].items()
    )
