"""Memory over many steps: a step of a loader or an inference that keeps half a kilobyte is found,
and one of a training that keeps five."""

from pathlib import Path

import endurance_worker as worker
import pytest

STEPS = {
    worker.neighbors: 3000,
    worker.partition: 3000,
    worker.inference: 3000,
    worker.training: 300,
}


@pytest.mark.skipif(
    not Path('/proc/self/statm').exists(), reason='reads the memory of the process from /proc'
)
@pytest.mark.parametrize('work', STEPS, ids=lambda work: work.__name__)
def test_memory_is_flat(work, tmp_path, start, exit_code):
    assert exit_code(start(worker.write_growth, work, STEPS[work], tmp_path / 'growth')) == 0
    assert float((tmp_path / 'growth').read_text()) < 1.0
