import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from benchmarks.common import results
from benchmarks.common.command import ROOT, command
from benchmarks.common.files import DataError
from benchmarks.common.results import commit, read_results, write_result


def write(folder, seeds, values, data='digest', lr=0.1, metric='accuracy', **more):
    named = {
        'variant': '',
        'protocol': 'fixed',
        'seeds': seeds,
        'metrics': {metric: values},
        'config': {'lr': lr, 'sizes': (1, 2)},
    }
    return json.loads(
        write_result('task', 'mine', 'ours', folder=folder, data=data, **named | more).read_text()
    )


def test_seeds_accumulate(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, 'argv', [sys.argv[0], '--seeds', '3', '0'])
    write(tmp_path, [3, 0], [0.5, 0.25])
    first = command()
    assert capsys.readouterr().err == ''
    monkeypatch.setattr(sys, 'argv', [sys.argv[0], '--seeds', '1', '3'])
    record = write(tmp_path, [1, 3], [0.75, 1.0])
    assert record['seeds'] == [0, 1, 3]
    assert record['metrics']['accuracy']['values'] == [0.25, 0.75, 1.0]  # the newer one of seed 3
    assert record['metrics']['accuracy']['mean'] == pytest.approx(2 / 3)
    assert record['metrics']['accuracy']['std'] == pytest.approx(0.38188, abs=1e-5)
    assert record['command'] == f'{first} && {command()}'
    path = tmp_path / 'task' / 'ours-mine.json'
    assert (
        capsys.readouterr().err
        == f'{path}: now over the seeds [0, 1, 3], of which [0] were there\n'
    )
    assert write(tmp_path, [3, 1, 0], [1.0, 0.0, 0.5])['metrics']['accuracy']['values'] == [
        1.0,
        0.0,
        0.5,
    ]


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        ({'data': 'other'}, 'data'),
        ({'lr': 0.2}, 'config'),
        ({'protocol': 'random'}, 'protocol'),
        ({'metric': 'f1'}, 'metrics'),
        ({'data': 'other', 'lr': 0.2}, 'config, data'),
    ],
)
def test_a_result_of_something_else_is_replaced_aloud(change, named, tmp_path, capsys):
    write(tmp_path, [0, 1], [0.5, 0.25])
    record = write(tmp_path, [1], [0.75], **change)
    assert record['seeds'] == [1]
    path = tmp_path / 'task' / 'ours-mine.json'
    assert (
        capsys.readouterr().err
        == f'{path}: replaces a result that differs in {named}; its seeds [0] are gone\n'
    )


@pytest.mark.parametrize('data', ['digest', None])
def test_a_result_of_other_settings_and_the_same_seeds_is_replaced_aloud(data, tmp_path, capsys):
    """Nothing said that the values of the same variant were now those of other settings."""
    write(tmp_path, [0, 1], [0.5, 0.25], data)
    write(tmp_path, [0, 1], [0.5, 0.75], data)
    assert capsys.readouterr().err == ''
    assert write(tmp_path, [0, 1, 2], [0.75, 1.0, 0.5], data, lr=0.2)['seeds'] == [0, 1, 2]
    path = tmp_path / 'task' / 'ours-mine.json'
    assert capsys.readouterr().err == f'{path}: replaces a result that differs in config\n'


def test_a_result_of_another_version_is_replaced_aloud(tmp_path, capsys):
    write(tmp_path, [0], [0.5])
    path = tmp_path / 'task' / 'ours-mine.json'
    record = json.loads(path.read_text())
    record['versions']['torch-geometric-lgt'] = '0.0.1'
    path.write_text(json.dumps(record))
    assert write(tmp_path, [1], [0.75])['seeds'] == [1]
    assert 'differs in version of the package; its seeds [0] are gone' in capsys.readouterr().err


def test_commits_of_trainings_accumulate(tmp_path):
    first = write(tmp_path, [0], [0.5], training_commits=['a', 'b+'])
    assert first['training_commits'] == ['a', 'b+']
    second = write(tmp_path, [1], [0.75], training_commits=['c', 'a'])
    assert second['training_commits'] == ['a', 'b+', 'c']
    assert second['commit'] == commit()


@pytest.mark.parametrize(
    ('peaks', 'expected'), [((900.0, 100.0), 900.0), ((None, 100.0), 100.0), ((None, None), None)]
)
def test_the_memory_of_accumulated_seeds_is_the_highest(peaks, expected, tmp_path):
    for seed, peak in enumerate(peaks):
        record = write(tmp_path, [seed], [0.5], peak_memory_mib=peak)
    assert record['peak_memory_mib'] == expected


def test_commits_of_a_result_of_an_earlier_form_are_its_commit(tmp_path):
    record = write(tmp_path, [0], [0.5])
    assert record.pop('training_commits') == [commit()]
    path = tmp_path / 'task' / 'ours-mine.json'
    path.write_text(json.dumps(record | {'commit': 'old'}))
    assert write(tmp_path, [1], [0.75])['training_commits'] == ['old', commit()]


def test_measurements_do_not_accumulate(tmp_path):
    write(tmp_path, [0], [1.0, 2.0, 3.0], data=None)
    assert write(tmp_path, [1], [4.0, 5.0], data=None)['metrics']['accuracy']['values'] == [
        4.0,
        5.0,
    ]


def test_processes_that_end_at_the_same_time_keep_all_seeds(monkeypatch, tmp_path):
    read = results.read_result

    def read_slowly(path):
        record = read(path)
        time.sleep(0.05)
        return record

    write(tmp_path, [0], [0.0])
    monkeypatch.setattr(results, 'read_result', read_slowly)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda seed: write(tmp_path, [seed], [float(seed)]), (1, 2, 3)))
    assert read(tmp_path / 'task' / 'ours-mine.json')['seeds'] == [0, 1, 2, 3]


@pytest.mark.parametrize('name', ['file/x', 'x' * 300])
def test_results_that_cannot_be_written_are_named(name, tmp_path):
    (tmp_path / 'task').mkdir()
    (tmp_path / 'task' / 'ours-mine-file').touch()
    with pytest.raises(DataError, match=rf'ours-mine-{name}.json cannot be written \(.+\); make'):
        write(tmp_path, [0], [0.5], variant=name)


def test_a_training_that_diverged_has_no_result(tmp_path):
    with pytest.raises(
        DataError, match=r"seeds \[0, 1\] are not finite \(\{'accuracy': \[0.5, nan"
    ):
        write(tmp_path, [0, 1], [0.5, float('nan')])
    assert not (tmp_path / 'task').exists()


def test_command_names_folders_without_the_way_there(monkeypatch):
    monkeypatch.setattr(
        sys, 'argv', [sys.argv[0], '--root', '/home/someone/data sets', '--seeds', '0', 'a/b']
    )
    assert command().endswith(" --root 'data sets' --seeds 0 a/b")


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('benchmarks.sbm', 'python -m benchmarks.sbm'),
        ('benchmarks.recommendation.__main__', 'python -m benchmarks.recommendation'),
        ('__main__', 'python benchmarks/gpu'),
        (None, 'python benchmarks/gpu'),
    ],
)
def test_command_names_the_module_or_the_path(name, expected, monkeypatch):
    spec = None if name is None else SimpleNamespace(name=name)
    monkeypatch.setattr(sys.modules['__main__'], '__spec__', spec)
    monkeypatch.setattr(sys, 'argv', [str(ROOT / 'benchmarks' / 'gpu')])
    assert command() == expected


def test_command_names_a_script_that_was_reached_by_a_link(monkeypatch, tmp_path):
    """On Windows no relative path leads from the drive of a network folder to its address."""
    (tmp_path / 'link').symlink_to(ROOT, target_is_directory=True)
    monkeypatch.setattr(sys.modules['__main__'], '__spec__', None)
    monkeypatch.setattr(sys, 'argv', [str(tmp_path / 'link' / 'benchmarks' / 'sbm.py')])
    assert command() == 'python benchmarks/sbm.py'


@pytest.mark.parametrize('name', ['no git', 'no checkout'])
def test_the_commit_is_unknown(name, monkeypatch, tmp_path):
    if name == 'no git':
        monkeypatch.setenv('PATH', str(tmp_path))
    monkeypatch.setattr(results, 'ROOT', tmp_path)
    assert commit.__wrapped__() == 'unknown'


@pytest.mark.parametrize(
    'content', ['[]', '{}', '{"seeds": [0]', 'null', '{"seeds": 1, "metrics": {}}', '\x00', None]
)
def test_a_damaged_result_is_named(content, tmp_path):
    write(tmp_path, [0], [0.5])
    assert [record['seeds'] for record in read_results(tmp_path / 'task')] == [[0]]
    path = tmp_path / 'task' / 'ours-mine.json'
    path.unlink()
    if content is None:
        os.mkfifo(path)
    else:
        path.write_text(content)
    for read in (lambda: read_results(tmp_path / 'task'), lambda: write(tmp_path, [1], [0.5])):
        with pytest.raises(DataError, match=rf'^{path} is no result \(.*\); remove it$'):
            read()
    assert read_results(tmp_path / 'none') == []
    (tmp_path / 'file').touch()
    with pytest.raises(DataError, match='file must be a folder'):
        read_results(tmp_path / 'file')
