import multiprocessing
import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import fault_works


@pytest.fixture(scope='session')
def start():
    """Starts a function of fault_works in a process of its own. They are forked from one that has nothing but imports behind it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fault_works.environment().items():
            patch.setenv(name, value)
        context = multiprocessing.get_context('forkserver')
        context.set_forkserver_preload(['fault_works'])

        def run(work, *arguments):
            process = context.Process(target=work, args=arguments)
            process.start()
            return process

        run(time.sleep, 0).join()  # the first start imports
        yield run


@pytest.fixture
def exit_code():
    """Waits for the end of a process."""

    def wait(process):
        process.join(120)
        assert process.exitcode is not None, 'it does not end'
        return process.exitcode

    return wait


@pytest.fixture
def killed(start):
    """Starts a function and kills it after at most so many seconds; whether that came before its end."""

    def kill(work, folder, longest, seed):
        process = start(work, folder)
        time.sleep(random.Random(seed).uniform(0, longest))
        process.kill()
        process.join()
        return process.exitcode < 0

    return kill
