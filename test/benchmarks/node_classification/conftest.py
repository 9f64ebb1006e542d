import sys

import numpy as np
import pytest

from benchmarks.node_classification import __main__ as node_classification


def _write_graph(path):
    """Three classes that the features give away, edges mostly within."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 60)
    edges = generator.integers(180, size=(900, 2))
    x = generator.standard_normal((180, 8)) + 2 * np.eye(3, 8)[y]
    np.savez(path, edges=edges[y[edges[:, 0]] == y[edges[:, 1]]], y=y, x=x)


@pytest.fixture
def write_graph():
    """Writes a small graph."""
    return _write_graph


def _run(monkeypatch, tmp_path, *arguments):
    command = [
        'x',
        '--root',
        str(tmp_path),
        '--output',
        str(tmp_path),
        '--dataset',
        'toy.npz',
        *arguments,
    ]
    monkeypatch.setattr(sys, 'argv', command)
    node_classification.main()


@pytest.fixture
def run(constants, tmp_path):
    """Runs the script on small data."""
    constants(checkpoints=tmp_path / 'checkpoints')
    return _run
