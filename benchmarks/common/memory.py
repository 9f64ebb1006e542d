r"""Measures the memory of this process, and the peak of a part of its life."""

import contextlib
import sys
from pathlib import Path

import psutil

from benchmarks.common.files import DataError

STATUS, CLEAR = Path('/proc/self/status'), Path('/proc/self/clear_refs')


def require_linux() -> None:
    r"""Checks that the system can measure the memory of a part of the life of a process.

    Raises:
        DataError: If the system is not Linux.
    """
    if not STATUS.exists():
        raise DataError(f'this measurement needs Linux: it reads the memory from {STATUS}')


def resident_mib(field: str) -> float:
    r"""Returns a field of the process status in MiB (Linux)."""
    lines = STATUS.read_text(encoding='utf-8').splitlines()
    line = next(line for line in lines if line.startswith(field))
    return int(line.split()[1]) / 1024


def restart_peak() -> None:
    r"""Sets the peak of the resident memory to the present level (Linux)."""
    CLEAR.write_text('5', encoding='utf-8')


def peak_mib() -> float:
    r"""Returns the peak of the resident memory since :meth:`restart_peak`, or of the whole process
    where the system does not tell more."""
    return resident_mib('VmHWM') if STATUS.exists() else process_peak_mib()


def process_peak_mib() -> float:
    r"""Returns the peak of the resident memory of the whole process."""
    if sys.platform == 'win32':
        return psutil.Process().memory_info().peak_wset / 2**20
    from resource import RUSAGE_SELF, getrusage

    unit = 1 if sys.platform == 'darwin' else 1024
    return getrusage(RUSAGE_SELF).ru_maxrss * unit / 2**20


def limit_memory(gib: int) -> None:
    r"""Limits the address space of this process to :obj:`gib` GiB (Linux)."""
    from resource import RLIMIT_AS, setrlimit

    setrlimit(RLIMIT_AS, (gib * 2**30,) * 2)


def try_restart_peak() -> None:
    r"""Calls :meth:`restart_peak` where the system can do this."""
    with contextlib.suppress(OSError):
        restart_peak()
