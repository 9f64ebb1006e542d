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


@pytest.mark.parametrize('world', worker.SIZES)
def test_processes_equal_one_process(world, tmp_path):
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', f'--nproc-per-node={world}', str(WORKER), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    for kind in worker.KINDS:
        results = [torch.load(tmp_path / f'{kind}-{rank}.pt', weights_only=True) for rank in range(world)]
        layer, x, batch, degree = worker.make(kind)
        out = layer(x, *degree, batch=batch)
        worker.squared_error(out).backward()
        torch.testing.assert_close(torch.cat([part for part, _ in results]), out.detach(), atol=1e-12, rtol=1e-10)
        for _, grads in results:
            for name, parameter in layer.named_parameters():
                torch.testing.assert_close(
                    grads[name], parameter.grad, atol=1e-12, rtol=1e-10, msg=lambda text, name=name: f'{name}: {text}'
                )
