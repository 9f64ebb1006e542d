import json

import pytest

from benchmarks.runtime import startup

SPARSE = {'neighbor-loader': pytest.mark.sparse}


@pytest.mark.parametrize(
    'case', [pytest.param(case, marks=SPARSE.get(case, ())) for case in startup.CALLS]
)
def test_first_and_second_call(case):
    for method in startup.CALLS[case]:
        metrics = startup.work(case, method)
        assert metrics.keys() == {'first', 'second'}
        assert all(len(seconds) == 1 for seconds in metrics.values())


def test_table(tmp_path, monkeypatch, capsys):
    calls = []

    def fresh(module, work):
        calls.append((work['case'], work['method']))
        return {'first': [0.2], 'second': [0.1]}

    monkeypatch.setattr(startup, 'fresh', fresh)
    monkeypatch.setattr(startup, 'imported', lambda method: {'ours': 3.0, 'pyg': 2.0}[method])
    monkeypatch.setattr('sys.argv', ['x', '--rounds', '2', '--output', str(tmp_path)])
    startup.main()
    assert calls.count(('sgformer', 'pyg')) == 2
    first, second, *_ = capsys.readouterr().out.splitlines()[2:]
    assert first == '| import | 3000 |  | 2000 |  |'
    assert second == '| sgformer | 200 | 100 | 200 | 100 |'
    assert json.loads((tmp_path / 'runtime' / 'startup-random.json').read_text())['metrics'][
        'import/ours/first'
    ]['values'] == [3.0, 3.0]
