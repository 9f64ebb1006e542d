import csv
import json

import pytest

from benchmarks.common.results import write_result
from benchmarks.recommendation.report import report
from benchmarks.recommendation.settings import DEFAULTS, STUDIES, STUDY

PNG = b'\x89PNG\r\n'
NAMES = ('recall@20', 'ndcg@20', 'recall@20_inner', 'ndcg@20_inner', 'valid_ndcg@20')
GROUPS = ('recall@20_unpopular', 'recall@20_normal', 'recall@20_popular')


def write(folder, model, values, variant='', config=None, groups=GROUPS, data=None):
    metrics = {name: values for name in (*NAMES, *groups)}
    arguments = {
        'protocol': 'given-split',
        'seeds': range(len(values)),
        'metrics': metrics,
        'config': config or DEFAULTS[model],
    }
    return write_result(
        'recommendation',
        'amazon-beauty',
        model,
        variant=variant,
        folder=folder,
        epoch_seconds=1.0,
        data=data,
        **arguments,
    )


def test_tables_and_pictures(tmp_path):
    write(tmp_path, 'mgformer', [0.07, 0.09])
    write(tmp_path, 'ease', [0.05])
    write(tmp_path, 'mgformer', [0.04], 'wide')
    studied = {'study': {}, **STUDIES['ablation'], **STUDIES['gamma']}
    for variant, changes in studied.items():
        write(
            tmp_path,
            'mgformer',
            [0.06 if changes else 0.05],
            variant,
            DEFAULTS['mgformer'] | STUDY | changes,
        )
    folder = tmp_path / 'recommendation'
    text = report(folder, folder, 'amazon-beauty')
    assert (
        '| mgformer | 256 + 256 | 0.0800 ± 0.0141 | 0.0800 ± 0.0141 |  | 0.0800 / 0.0800 | 0.0800 '
        '| 0.1531 / 0.0748 | 1.0 | 2 |' in text
    )
    assert '| ease |  | 0.0500 | 0.0500 | +60.0% |' in text
    assert '| gotnet |  |  |  |  |  |  | 0.1309 / 0.0650 |  | quoted |' in text
    assert text == '\n'.join(
        (folder / f'amazon-beauty{table}.md').read_text() for table in ('', '-mgformer', '-study')
    )
    changes = [
        {
            row['variant']: row['change']
            for row in csv.DictReader(
                (folder / f'amazon-beauty-{table}.csv').read_text().splitlines()
            )
        }
        for table in ('mgformer', 'study')
    ]
    assert changes == [
        {'default': '', 'wide': '-50.0%'},
        {variant: '+20.0%' if change else '' for variant, change in studied.items()},
    ]
    for name in ('scores', 'groups', 'ablation', 'sweeps'):
        assert (folder / f'amazon-beauty-{name}.png').read_bytes().startswith(PNG)


@pytest.mark.parametrize(('model', 'tables'), [('ease', ['']), ('mgformer', ['', '-mgformer'])])
def test_one_result_is_enough(tmp_path, model, tables):
    write(tmp_path, model, [0.05])
    report(tmp_path / 'recommendation', tmp_path / 'recommendation', 'amazon-beauty')
    names = sorted(path.stem for path in (tmp_path / 'recommendation').glob('*.md'))
    assert names == [f'amazon-beauty{table}' for table in tables]
    assert [path.stem for path in (tmp_path / 'recommendation').glob('*.png')] == [
        'amazon-beauty-groups'
    ]


@pytest.mark.parametrize(('groups', 'pictures'), [(GROUPS[:1], ['amazon-beauty-groups']), ((), [])])
def test_groups_without_test_pairs_are_not_drawn(tmp_path, groups, pictures):
    write(tmp_path, 'ease', [0.05], groups=groups)
    report(tmp_path / 'recommendation', tmp_path / 'recommendation', 'amazon-beauty')
    assert [path.stem for path in (tmp_path / 'recommendation').glob('*.png')] == pictures


def test_no_result_at_all(tmp_path):
    assert report(tmp_path, tmp_path, 'amazon-beauty') == ''
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_zero_has_no_ratio(tmp_path):
    """A model without a hit ended the table in a ZeroDivisionError."""
    write(tmp_path, 'ease', [0.0])
    write(tmp_path, 'mgformer', [0.05])
    write(tmp_path, 'mgformer', [0.0], 'study')
    write(tmp_path, 'mgformer', [0.05], 'heads-2')
    folder = tmp_path / 'recommendation'
    text = report(folder, folder, 'amazon-beauty')
    assert '| ease |  | 0.0000 | 0.0000 |  |' in text
    assert '| heads-2 | 0.0500 |  | 0.0500 |' in text


def test_results_of_earlier_data_are_left_out(tmp_path, capsys):
    """EASE of other data stood beside MGFormer as if both had the same."""
    folder = tmp_path / 'recommendation'
    results = [('ease', '', 'old', 2), ('mgformer', '', 'new', 3), ('mgformer', 'wide', 'old', 1)]
    for model, variant, data, day in [*results, ('bprmf', '', None, 1)]:
        path = write(tmp_path, model, [0.05], variant, data=data)
        record = json.loads(path.read_text()) | {'date': f'2026-01-0{day}T00:00:00+00:00'}
        path.write_text(json.dumps(record))
    text = report(folder, folder, 'amazon-beauty')
    rows = [line.split('|')[1].strip() for line in text.splitlines() if '0.0500' in line]
    assert rows == ['bprmf', 'mgformer', 'default']
    assert (
        'not in the tables: mgformer wide, ease, as amazon-beauty has changed since; run them again'
        in capsys.readouterr().err
    )


def test_other_settings_of_a_baseline_have_a_table(tmp_path):
    """A run that was none of MGFormer and had other settings was in no table."""
    folder = tmp_path / 'recommendation'
    write(tmp_path, 'ease', [0.05])
    write(tmp_path, 'ease', [0.06], 'regularization20.0')
    write(tmp_path, 'lightgcn', [0.04, 0.04], 'dim16')
    report(folder, folder, 'amazon-beauty')
    assert (folder / 'amazon-beauty-baselines.csv').read_text().splitlines() == [
        'model,variant,validation NDCG@20,change,Recall@20,NDCG@20,s / epoch,seeds',
        'ease,regularization20.0,0.0600,+20.0%,0.0600,0.0600,1.0,1',
        'lightgcn,dim16,0.0400 ± 0.0000,,0.0400 ± 0.0000,0.0400 ± 0.0000,1.0,2',
    ]
