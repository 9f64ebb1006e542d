"""Memory over thousands of steps."""

from pathlib import Path

import endurance_worker as worker
import pytest

STEPS = {worker.neighbors: 10_000, worker.partition: 10_000, worker.inference: 10_000, worker.training: 1000}


@pytest.mark.skipif(not Path('/proc/self/statm').exists(), reason='reads the memory of the process from /proc')
@pytest.mark.parametrize('work', STEPS, ids=lambda work: work.__name__)
def test_memory_is_flat(work, tmp_path, start, exit_code):
    assert exit_code(start(worker.write_growth, work, STEPS[work], tmp_path / 'growth')) == 0
    assert float((tmp_path / 'growth').read_text()) < 4.0
