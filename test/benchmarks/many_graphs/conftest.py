import sys

import pytest

from benchmarks import sbm
from benchmarks.many_graphs.settings import PRESETS


def _run(monkeypatch, tmp_path, *more, script=sbm):
    tiny = {
        'graphs': {'train': 6, 'val': 3, 'test': 3},
        'layers': 1,
        'training': {'epochs': 3, 'batch_size': 3, 'hidden_channels': 16},
    }
    monkeypatch.setitem(PRESETS, 'small', tiny)
    folders = ['--root', str(tmp_path), '--output', str(tmp_path)]
    monkeypatch.setattr(
        sys, 'argv', ['x', *folders, '--preset', 'small', '--seeds', '0', '1', *more]
    )
    script.main()


@pytest.fixture
def run(constants, tmp_path):
    """Runs the script on small data."""
    constants(checkpoints=tmp_path / 'checkpoints')
    return _run
