import pytest
import torch

from benchmarks.common import memory

pytestmark = pytest.mark.skipif(not memory.CLEAR.exists(), reason='needs Linux')


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
