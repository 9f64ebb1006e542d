import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name('distributed_worker.py')
SPEC = importlib.util.spec_from_file_location('distributed_worker', WORKER)
worker = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(worker)


def run(world, folder, *options):
    launch = [sys.executable, '-m', 'torch.distributed.run', '--standalone', f'--nproc-per-node={world}']
    return subprocess.run([*launch, str(WORKER), str(folder), *options], capture_output=True, text=True, timeout=180, check=False)


def same(folder, kind, world, module, out):
    results = [torch.load(folder / f'{kind}-{rank}.pt', weights_only=True) for rank in range(world)]
    worker.squared_error(out).backward()
    torch.testing.assert_close(torch.cat([part for part, *_ in results]), out.detach(), atol=1e-12, rtol=1e-10)
    for _, grads, buffers in results:
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(grads[name], parameter.grad, atol=1e-12, rtol=1e-10, msg=lambda text, name=name: f'{name}: {text}')
        torch.testing.assert_close(buffers, dict(module.named_buffers()), atol=1e-12, rtol=1e-10)


def assert_equal_to_one_process(world, folder, *options):
    done = run(world, folder, *options)
    assert done.returncode == 0, done.stderr
    for kind in worker.KINDS:
        layer, x, batch, degree = worker.make(kind)
        same(folder, kind, world, layer, layer(x, *degree, batch=batch))
    for name in worker.MODELS:
        model, x, edges = worker.make_model(name)
        same(folder, name, world, model, model(x, edges))


@pytest.mark.fault(38, 'Takes part like the others: any split of the nodes gives the outputs and gradients of one process.')
@pytest.mark.parametrize('world', worker.SIZES)
def test_processes_equal_one_process(world, tmp_path):
    assert_equal_to_one_process(world, tmp_path)


@pytest.mark.nccl
def test_processes_on_gpus_equal_one_process(tmp_path):
    assert_equal_to_one_process(2, tmp_path, 'nccl')


def test_a_lost_process_ends_in_an_error(tmp_path):
    done = run(2, tmp_path, 'lost')
    assert done.returncode != 0
    assert 'RuntimeError' in done.stderr
    assert not list(tmp_path.iterdir())


def test_example_prints_the_same_for_any_number_of_processes():
    path = Path(__file__).parents[1] / 'examples' / 'distributed.py'
    launch = [sys.executable, '-m', 'torch.distributed.run', '--standalone']
    options = {'capture_output': True, 'text': True, 'timeout': 180, 'check': True}
    printed = [subprocess.run([*launch, f'--nproc-per-node={world}', str(path)], **options).stdout.splitlines() for world in (1, 2)]
    lines = [[line for line in one if 'test accuracy' in line] for one in printed]  # gloo prints how many processes it joins
    assert lines[0] == lines[1]
    assert len(lines[0]) == 5
