r"""Times a function in this process: seconds of each call and the peak of memory above what stood before."""

import time
from collections.abc import Callable
from pathlib import Path

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
