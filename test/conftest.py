import gc
import multiprocessing
import os
import random
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits

sys.path.append(str(Path(__file__).parent))  # processes import the modules here that they run
from constants import BY_OPERATORS, set_constants
from windows_files import refuse_used_files

# The fork server imports these once, whichever test starts the first process.
PACKAGE = [
    f'torch_geometric_lgt.{name}' for name in ('data', 'datasets', 'loader', 'nn', 'transforms')
]
multiprocessing.set_forkserver_preload(
    ['benchmarks.common.training', *PACKAGE, 'pytest', 'freeze_objects']
)
if (
    not torch.cuda.is_available()
):  # Triton's interpreter runs the kernels for GPUs; it is chosen where Triton is imported
    os.environ['TRITON_INTERPRET'] = '1'
# torch.compile would collect garbage after each compilation, which is a tenth of its time.
os.environ['TORCH_DYNAMO_RUN_GC_AFTER_COMPILE'] = '0'
settings.register_profile('same', derandomize=True, deadline=None, max_examples=20, database=None)
settings.register_profile('explore', deadline=None, max_examples=100)
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'same'))
if 'PYTEST_XDIST_WORKER' in os.environ:  # one thread for each worker and its processes
    os.environ['OMP_NUM_THREADS'] = '1'
    torch.set_num_threads(1)
    threadpool_limits(1)  # of the libraries that are loaded already


# By default, a fifth of the time of a compilation goes into collections that find nothing.
gc.set_threshold(1_000_000, 10, 10)


def seed_all() -> None:
    """Seeds all generators. Without a device, :func:`torch.manual_seed` would only note where it is
    called, once more in each test."""
    has_device = torch.cuda.is_available()
    seed_torch = torch.manual_seed if has_device else torch.default_generator.manual_seed
    for seed in (random.seed, np.random.seed, seed_torch):
        seed(12345)


seed_all()  # for what the modules of the tests draw when they are imported


def missing_compiler() -> str:
    """Why torch.compile cannot compile C++ here; empty where it can."""
    compiler = os.environ.get('CXX', 'clang++' if sys.platform == 'darwin' else 'g++')
    if shutil.which(compiler) is None:
        return f'torch.compile needs a C++ compiler: install {compiler} or set CXX'
    return (
        'torch.compile cannot link with PyTorch in a folder whose name has spaces'
        if ' ' in torch.__file__
        else ''
    )


def pytest_collection_modifyitems(items) -> None:
    """Skips tests whose compiler or extension is missing.

    One worker compiles all C++ code: it asks once what the processor can do."""
    without_compiler = missing_compiler()
    without_sparse = 'torch-sparse is missing: "make test SPARSE=source" compiles it'
    for item in items:
        if item.get_closest_marker('inductor'):
            item.add_marker(pytest.mark.xdist_group('inductor'))
            item.add_marker(pytest.mark.skipif(bool(without_compiler), reason=without_compiler))
        if item.get_closest_marker('sparse'):
            item.add_marker(
                pytest.mark.skipif(find_spec('torch_sparse') is None, reason=without_sparse)
            )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config) -> None:
    """Leaves the objects of the process to its end, which would look through them for seconds.

    What is added first runs last: after pytest has looked for files that are left open."""
    config.add_cleanup(gc.freeze)


def pytest_collection_finish() -> None:
    """Leaves out of later collections what all imports have made."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _afresh(request) -> None:
    """The same random numbers, and no code that an earlier test compiled: its number is limited."""
    seed_all()
    if request.node.get_closest_marker('compiled'):
        torch.compiler.reset()


@pytest.fixture
def constants(monkeypatch):
    """Sets constants of the package for one test by their names: ``constants(gram_chunk=30)``."""
    return partial(set_constants, monkeypatch.setattr)


@pytest.fixture
def record_calls(monkeypatch):
    """Returns a list to which calls of some functions of a module add their names."""

    def record(module, *names):
        calls = []
        for name in names:
            original = getattr(module, name)

            def recorded(*args, original=original, name=name):
                calls.append(name)
                return original(*args)

            monkeypatch.setattr(module, name, recorded)
        return calls

    return record


@pytest.fixture(autouse=True)
def _by_operators(request, constants) -> None:
    """In test/functional operators compute small graphs, as large ones, unless a test changes it.

    A conftest.py there would be forgotten by pytest 9 when it comes back to that folder."""
    if Path(__file__).parent / 'functional' in request.path.parents:
        constants(plain_elements=BY_OPERATORS)


@pytest.fixture
def windows_files(monkeypatch):
    """Lets this process refuse to remove, rename or replace files in use, as Windows does."""
    if not Path('/proc/self/maps').exists():
        pytest.skip('needs /proc to tell which files are in use')
    refuse_used_files(monkeypatch)


@pytest.fixture(params=['own', 'windows'])
def file_rules(request):
    """What the system refuses to do with files in use: its own rules, and those of Windows."""
    if request.param == 'windows':
        request.getfixturevalue('windows_files')


@pytest.fixture(scope='session')
def start():
    """Starts a function of a module in a process of its own, with nothing but imports behind it."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context('forkserver' if 'forkserver' in methods else 'spawn')

    def run(work, *arguments):
        process = context.Process(target=work, args=arguments)
        process.start()
        return process

    run(int).join()  # the first start imports
    return run


@pytest.fixture(scope='session')
def exit_code():
    """Waits for the end of a process."""

    def wait(process):
        process.join(120)
        assert process.exitcode is not None, 'it does not end'
        return process.exitcode

    return wait


@pytest.fixture
def ended(start, exit_code):
    """Runs a function in as many processes as torchrun would, without what each would import; their
    exit codes."""
    import distributed_worker as worker  # imports the package, of which most tests need a part

    def run(world, work, *arguments):
        port = worker.free_port()
        ranks = [
            start(worker.as_rank, rank, world, port, work, *arguments) for rank in range(world)
        ]
        return [exit_code(process) for process in ranks]

    return run


@pytest.fixture
def file_server(tmp_path):
    """A folder and the address under which a server of this machine offers its files."""
    (tmp_path / 'public').mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / 'public')
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield tmp_path / 'public', f'http://127.0.0.1:{running.server_port}'
        running.shutdown()
        thread.join()
