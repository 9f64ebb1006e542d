import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks.common import memory
from benchmarks.common.files import DataError

linux_only = pytest.mark.skipif(not memory.CLEAR.exists(), reason='needs Linux')


@linux_only
def test_peak_counts_from_its_restart():
    large = torch.ones(64 * 2**20)  # 256 MiB
    large += 1
    before = memory.peak_mib()
    del large
    memory.restart_peak()
    assert memory.peak_mib() < before - 200
    assert memory.peak_mib() >= memory.resident_mib('VmRSS') - 1


def test_peak_is_that_of_the_process_where_the_system_tells_no_more(tmp_path, constants):
    constants(memory_status=tmp_path / 'status')
    constants(memory_clear=tmp_path / 'none' / 'clear_refs')
    memory.try_restart_peak()
    assert memory.peak_mib() > 50
    with pytest.raises(FileNotFoundError):
        memory.restart_peak()


@pytest.mark.parametrize(
    ('system', 'ru_maxrss'), [('linux', 300 * 2**10), ('darwin', 300 * 2**20), ('win32', None)]
)
def test_units_of_the_peak_of_a_process(system, ru_maxrss, monkeypatch):
    """Linux counts KiB, macOS bytes, and Windows has no module ``resource``."""
    usage = SimpleNamespace(ru_maxrss=ru_maxrss)
    module = (
        None if ru_maxrss is None else SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: usage)
    )
    monkeypatch.setattr(sys, 'platform', system)
    monkeypatch.setitem(sys.modules, 'resource', module)
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(peak_wset=300 * 2**20))
    monkeypatch.setattr(memory.psutil, 'Process', lambda: process)
    assert memory.process_peak_mib() == 300


def test_measurements_without_linux_end_in_one_line(tmp_path, constants):
    constants(memory_status=tmp_path / 'status')
    with pytest.raises(DataError, match=r'^this measurement needs Linux: it reads the memory from'):
        memory.require_linux()
