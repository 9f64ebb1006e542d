r"""Measures seconds and peak memory of a function, and runs work in a fresh process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from tqdm import trange

from benchmarks.common.command import ROOT
from benchmarks.common.memory import peak_mib, resident_mib, restart_peak

if TYPE_CHECKING:
    from benchmarks.common.training import Training

KILLED = -getattr(signal, 'SIGKILL', 9)  # Windows has no signal of this name
WORKER = """
import json, sys
from benchmarks.common.scripts import run_script
from {module} import work
run_script(lambda: print(json.dumps(work(**json.loads(sys.argv[1])))))
"""


def peak_memory_mib(function: Callable[[], object], device: str = 'cpu') -> float:
    r"""Measures the peak of memory during one call above the level before, in MiB: resident
    memory (Linux), or memory allocated on the device."""
    if device != 'cpu':
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    restart_peak()
    before = resident_mib('VmRSS')
    function()
    return peak_mib() - before


def seconds(function: Callable[[], object], repeats: int, device: str = 'cpu') -> list[float]:
    times = []
    finish = (lambda: None) if device == 'cpu' else partial(torch.cuda.synchronize, device)
    for _ in range(repeats):
        finish()
        start = time.perf_counter()
        function()
        finish()
        times.append(time.perf_counter() - start)
    return times


def epochs_in_turn(
    runs: 'Mapping[str, Training]', rounds: int, title: str
) -> dict[str, list[float]]:
    r"""Times the epochs of trainings by name in each round, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in trange(rounds + 1, desc=title):
        for name, training in runs.items():
            before = training.seconds
            training.run_epoch()
            times[name].append(training.seconds - before)
    return {name: values[1:] for name, values in times.items()}


def epoch_rows(
    records: Iterable[Mapping[str, Any]], peer: str, column: str, show: Callable[[float], str]
) -> list[dict[str, str]]:
    r"""Formats a row for each data set and model: its median seconds in the :obj:`column`, and
    their ratio to those of the :obj:`peer`."""
    out = []
    for record in records:
        medians = {model: values['median'] for model, values in record['metrics'].items()}
        for model, value in medians.items():
            ratio = f'{value / medians[peer]:.2f}' if peer in medians else ''
            row = {'data set': record['dataset'], 'model': model, column: show(value)}
            out.append(row | {f'times {peer}': ratio})
    return out


def environment() -> dict[str, str]:
    r"""Returns the variables with which a process finds this package, from whatever folder."""
    return os.environ | {
        'PYTHONPATH': os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH', '')]))
    }


def fresh(
    module: str, arguments: Mapping[str, Any], limit: float | None = None
) -> dict[str, list[float]]:
    r"""Calls the function ``work`` of a module with the arguments in a fresh process, and
    returns its metrics. If the process exceeds the limit or is killed, for example for its memory,
    the result is empty."""
    command = [sys.executable, '-c', WORKER.format(module=module), json.dumps(arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit, env=environment()
        )
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode == KILLED:
        return {}
    if done.returncode != 0:
        raise RuntimeError(f'{module} failed with {dict(arguments)}:\n{done.stderr}')
    return json.loads(done.stdout)
