import csv
import sys
from types import SimpleNamespace

from distributed_worker import run_module

from benchmarks.runtime import processes


def test_processes(monkeypatch, tmp_path, ended):
    def run(command, check, env):
        """Does what torchrun would do, in forks of a process that has imported PyTorch."""
        assert check
        assert command[:4] == [sys.executable, '-m', 'torch.distributed.run', '--standalone']
        assert command[5:7] == ['-m', processes.__name__]
        world = int(command[4].removeprefix('--nproc-per-node='))
        assert ended(world, run_module, command[6], command[7:], env) == [0] * world

    monkeypatch.setattr(processes, 'subprocess', SimpleNamespace(run=run))
    monkeypatch.setattr(
        sys,
        'argv',
        [
            'x',
            '--processes',
            '1',
            '2',
            '--nodes',
            '300',
            '--repeats',
            '1',
            '--output',
            str(tmp_path),
        ],
    )
    processes.main()
    rows = list(csv.DictReader((tmp_path / 'runtime' / 'processes.csv').read_text().splitlines()))
    assert [(row['nodes'], row['processes']) for row in rows] == [('300', '1'), ('300', '2')]
    assert rows[0]['times one process'] == '1.00'
    assert {row['kB exchanged per layer'] for row in rows} == {f'{4 * (64 * 66 + 2) / 1000:.1f}'}
