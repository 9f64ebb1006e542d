import csv
import json
import sys
from types import SimpleNamespace

from distributed_worker import as_rank, free_port, torchrun

from benchmarks.runtime import processes


def test_processes(monkeypatch, tmp_path, start, exit_code):
    under_torchrun = processes.launch

    def launch(world, num_nodes, repeats):
        """Under torchrun where there are several processes; one has what torchrun would give it."""
        if world > 1:
            return under_torchrun(world, num_nodes, repeats)
        path = tmp_path / 'figures.json'
        assert (
            exit_code(start(as_rank, 0, 1, free_port(), processes.work, num_nodes, repeats, path))
            == 0
        )
        return json.loads(path.read_text())

    def run(command, check, env):
        """Runs the command in a fork of a process that has imported PyTorch."""
        assert check
        assert command[:4] == [sys.executable, '-m', 'torch.distributed.run', '--standalone']
        errors = tmp_path / 'errors'
        assert exit_code(start(torchrun, errors, command[4:], env)) == 0, errors.read_text()

    monkeypatch.setattr(processes, 'launch', launch)
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
