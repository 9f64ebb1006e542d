import sys

import pytest

from benchmarks.runtime import loaders
from benchmarks.runtime.transform_cases import regular


@pytest.mark.sparse
def test_from_a_graph_to_the_table(monkeypatch, tmp_path, constants):
    constants(loader_graphs={'tiny': lambda: regular(200, 4)})
    for last in (['--rounds', '1'], ['--table']):
        argv = [
            'x',
            '--graphs',
            'tiny',
            '--batch-size',
            '20',
            '--batches',
            '2',
            '--output',
            str(tmp_path),
            *last,
        ]
        monkeypatch.setattr(sys, 'argv', argv)
        loaders.main()
        lines = (tmp_path / 'runtime' / 'loaders.csv').read_text().splitlines()
        assert [line.split(',')[:2] for line in lines[1:]] == [
            ['tiny', 'without replacement'],
            ['tiny', 'with replacement'],
        ]
        assert all(float(value) > 0 for line in lines[1:] for value in line.split(',')[2:])
