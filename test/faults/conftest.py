import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def killed(start):
    """Starts a function and kills it after at most so many seconds; whether that came before its
    end."""

    def kill(work, folder, longest, seed):
        process = start(work, folder)
        time.sleep(random.Random(seed).uniform(0, longest))
        process.kill()
        process.join()
        return process.exitcode < 0

    return kill
