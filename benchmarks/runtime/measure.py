r"""Times a function: seconds of each call and the peak of memory above what stood before; and runs a benchmark's part in a process of its
own."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

STATUS, CLEAR = Path('/proc/self/status'), Path('/proc/self/clear_refs')


def resident_mib(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def peak_memory_mib(function: Callable[[], object]) -> float:
    r"""Peak of resident memory during one call above the level before it, in MiB (Linux)."""
    CLEAR.write_text('5')  # the peak counts from here
    before = resident_mib('VmRSS')
    function()
    return resident_mib('VmHWM') - before


def seconds(function: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times


def fresh(module: str, work: Mapping[str, Any], limit: float | None = None) -> dict[str, list[float]]:
    r"""The figures that a module prints as JSON when it is run with ``--worker`` and the work; none if it takes longer than the limit
    or is killed, as a process that needs more memory than there is."""
    command = [sys.executable, '-m', module, '--worker', json.dumps(work)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode == -signal.SIGKILL:
        return {}
    if done.returncode != 0:
        raise RuntimeError(f'{module} failed with {dict(work)}:\n{done.stderr}')
    return json.loads(done.stdout)
