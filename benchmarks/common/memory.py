r"""Measures the memory of this process, and the peak of a part of its life."""

import contextlib
import resource
from pathlib import Path

STATUS, CLEAR = Path('/proc/self/status'), Path('/proc/self/clear_refs')


def resident_mib(field: str) -> float:
    r"""Returns a field of the process status in MiB (Linux)."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def restart_peak() -> None:
    r"""Sets the peak of the resident memory to the present level (Linux)."""
    CLEAR.write_text('5')


def peak_mib() -> float:
    r"""Returns the peak of the resident memory since :meth:`restart_peak`, or of the whole process
    where the system does not tell more."""
    if STATUS.exists():
        return resident_mib('VmHWM')
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def try_restart_peak() -> None:
    r"""Calls :meth:`restart_peak` where the system can do this."""
    with contextlib.suppress(OSError):
        restart_peak()
