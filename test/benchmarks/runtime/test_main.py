import pytest

from benchmarks.common.results import write_result
from benchmarks.runtime import __main__ as against

FAST = {
    'ours_forward': [0.1, 0.2, 0.9],
    'ours_forward_backward': [0.4],
    'ours_peak_memory_mib': [10.0],
    'formula_forward': [0.2],
    'formula_forward_backward': [1.0],
}


@pytest.fixture
def write(tmp_path):
    def write(folder, metrics, model='sgformer', **config):
        labels = {'variant': '', 'protocol': 'alternating', 'seeds': [0]}
        write_result(
            'runtime',
            'random-10',
            model,
            metrics=metrics,
            config={'num_nodes': 10, 'rounds': 3, **config},
            folder=tmp_path / folder,
            **labels,
        )

    return write


@pytest.fixture
def lines(tmp_path, monkeypatch, capsys):
    """The lines that the script prints: the changes, then what it does not compare."""

    def lines():
        folders = ['--output', str(tmp_path / 'new'), '--against', str(tmp_path / 'old')]
        monkeypatch.setattr('sys.argv', ['x', *folders])
        against.main()
        printed = capsys.readouterr()
        return printed.out.splitlines(), printed.err.splitlines()

    return lines


def test_prints_times_that_grew_by_more_than_15_percent(write, lines):
    """By the medians of our methods, the largest growth first. Memory and peers are no times of
    ours, and the number of rounds may differ."""
    write('old', FAST)
    write('new', FAST | {'ours_forward': [0.24], 'formula_forward': [0.3]}, rounds=5)
    assert lines() == (
        ['sgformer-random-10 ours_forward: 200 ms, now 240 ms (1.20, 0.80 beside the peer)'],
        [],
    )
    slow = {'ours_forward': [0.24], 'ours_forward_backward': [0.8], 'ours_peak_memory_mib': [99.0]}
    write('new', FAST | slow | {'formula_forward': [9.0]})
    assert lines()[0] == [
        'sgformer-random-10 ours_forward_backward: 400 ms, now 800 ms (2.00, 2.00 beside the peer)',
        'sgformer-random-10 ours_forward: 200 ms, now 240 ms (1.20, 0.03 beside the peer)',
    ]


@pytest.mark.parametrize('factor', [0.1, 1.0, 1.15])
def test_prints_nothing_where_little_changed(write, lines, factor):
    write('old', {'ours_seconds': [1.0]})
    write('new', {'ours_seconds': [factor]})
    assert lines() == ([], [])


@pytest.mark.parametrize(
    ('metrics', 'line'),
    [
        ({'eager': 1.0, 'graph_breaks': 1.0}, 'eager: 1 s, now 2 s (2.00)'),
        ({'import/ours/first': 0.5, 'import/pyg/first': 0.5}, 'import/ours/first: 500 ms, '),
        ({'epoch_seconds': 0.5, 'epoch_gib': 1.0}, 'epoch_seconds: 500 ms, now 1 s (2.00)'),
    ],
    ids=['no-ours', 'among-peers', 'no-memory'],
)
def test_times_of_our_methods(write, lines, metrics, line):
    write('old', {name: [value] for name, value in metrics.items()})
    write('new', {name: [2 * value] for name, value in metrics.items()})
    (printed,) = lines()[0]
    assert printed.startswith(f'sgformer-random-10 {line}')


def test_says_what_it_does_not_compare(write, lines, tmp_path):
    assert lines() == ([], [f'there are no results in {tmp_path / "new" / "runtime"}'])
    write('old', FAST)
    write('new', {'ours_forward': [9.0]}, heads=2)
    write('new', FAST, model='difformer')
    old = tmp_path / 'old' / 'runtime'
    assert lines() == (
        [],
        [
            f'difformer-random-10.json is not in {old}',
            f'sgformer-random-10.json has other settings than in {old}',
        ],
    )


def test_published_results_are_the_default(write, tmp_path, monkeypatch, capsys, constants):
    constants(published_times=tmp_path / 'old')
    monkeypatch.setattr('sys.argv', ['x', '--output', str(tmp_path / 'new'), '--against'])
    write('old', {'ours_seconds': [1.0]})
    write('new', {'ours_seconds': [2.0]})
    against.main()
    assert capsys.readouterr().out == 'sgformer-random-10 ours_seconds: 1 s, now 2 s (2.00)\n'
