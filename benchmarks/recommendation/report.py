r"""Writes the tables and pictures of the recommendation benchmark from its result files."""

from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks.common.figures import can_draw, save_figure
from benchmarks.common.files import say
from benchmarks.common.results import read_results
from benchmarks.common.tables import mean, spread, write_table
from benchmarks.recommendation.plots import (
    METRICS,
    ablation_figure,
    groups_figure,
    measured_groups,
    scores_figure,
    sweeps_figure,
)
from benchmarks.recommendation.settings import DEFAULTS, PUBLISHED, STUDIES

Record = dict[str, Any]


def report(source: Path, folder: Path, dataset: str) -> str:
    r"""Writes the tables and pictures of one data set and returns the tables.

    Args:
        source (Path): The folder of the results.
        folder (Path): The folder of the tables and pictures.
        dataset (str): The name of the data set.
    """
    records = comparable(
        [record for record in read_results(source) if record['dataset'] == dataset]
    )
    records.sort(key=lambda record: -mean(record, 'ndcg@20'))
    models = [record for record in records if not record['variant']]
    variants = {record['variant']: record for record in records if record['model'] == 'mgformer'}
    default, study = variants.get(''), variants.get('study')
    study_variants = {'study', *(name for changes in STUDIES.values() for name in changes)}
    studied = {name: record for name, record in variants.items() if name in study_variants}
    others = [record for name, record in variants.items() if name not in studied]
    defaults = {record['model']: record for record in models}
    baselines = [
        record for record in records if record['model'] != 'mgformer' and record['variant']
    ]
    rows = [model_row(record, default) for record in models]
    rows += [
        quoted_row(rows[0], name, figures)
        for name, figures in PUBLISHED.get(dataset, {}).items()
        if rows and name not in DEFAULTS
    ]
    tables = {
        '': rows,
        '-mgformer': [variant_row(record, default) for record in others],
        '-study': [variant_row(record, study) for record in studied.values()],
        '-baselines': [
            {'model': record['model']} | variant_row(record, defaults.get(record['model']))
            for record in baselines
        ],
    }
    text = '\n'.join(
        write_table(folder / f'{dataset}{suffix}', rows) for suffix, rows in tables.items() if rows
    )
    drawing = bool(records) and can_draw()
    if drawing and models and measured_groups(models):
        save_figure(groups_figure(models), folder / f'{dataset}-groups.png')
    if len(models) > 1 and drawing:
        save_figure(scores_figure(models), folder / f'{dataset}-scores.png')
    if studied and drawing:
        save_figure(ablation_figure(studied), folder / f'{dataset}-ablation.png')
        save_figure(sweeps_figure(studied), folder / f'{dataset}-sweeps.png')
    return text


def comparable(records: list[Record]) -> list[Record]:
    r"""Returns the results that have the data of the newest, and names the others. Results of older
    versions do not record their data; they are kept."""
    known = sorted((record for record in records if record.get('data')), key=itemgetter('date'))
    others = [record for record in known if record['data'] != known[-1]['data']]
    if others:
        names = [' '.join(filter(None, (record['model'], record['variant']))) for record in others]
        say(
            f'not in the tables: {", ".join(names)}, as {others[0]["dataset"]} has changed since; '
            'run them again'
        )
    return [record for record in records if record not in others]


def model_row(record: Record, default: Record | None) -> dict[str, str]:
    r"""Formats the test metrics of a model beside the published ones."""
    published = PUBLISHED.get(record['dataset'], {}).get(record['model'])
    return {
        'model': record['model'],
        'channels': ' + '.join(
            str(record['config'][name]) for name in ('dim', 'encoding') if name in record['config']
        ),
        **{name: spread(record, metric) for metric, name in METRICS.items()},
        'MGFormer is better by': _change(default, record, 'ndcg@20'),
        'by inner product': ' / '.join(
            f'{mean(record, f"{metric}_inner"):.4f}' for metric in METRICS
        )
        if record['seeds']
        else '',
        'validation NDCG@20': f'{mean(record, "valid_ndcg@20"):.4f}',
        'published': '{:.4f} / {:.4f}'.format(*published) if published else '',
        **_effort(record),
    }


def quoted_row(like: dict[str, str], name: str, figures: tuple[float, float]) -> dict[str, str]:
    r"""Formats the published metrics of a model that this benchmark does not run."""
    return dict.fromkeys(like, '') | {
        'model': name,
        'published': '{:.4f} / {:.4f}'.format(*figures),
        'seeds': 'quoted',
    }


def variant_row(record: Record, base: Record | None) -> dict[str, str]:
    r"""Formats the metrics of a variant, and the change of its validation NDCG against the
    :obj:`base`."""
    return {
        'variant': record['variant'] or 'default',
        'validation NDCG@20': spread(record, 'valid_ndcg@20'),
        'change': _change(record, base, 'valid_ndcg@20'),
        **{name: spread(record, metric) for metric, name in METRICS.items()},
        **_effort(record),
    }


def _change(record: Record | None, base: Record | None, metric: str) -> str:
    r"""Formats how much larger a metric of :obj:`record` is than that of :obj:`base`. The text is
    empty if one is missing, both are the same, or the base is 0."""
    if record is None or base is None or record is base or mean(base, metric) == 0:
        return ''
    return f'{mean(record, metric) / mean(base, metric) - 1:+.1%}'


def _effort(record: Record) -> dict[str, str]:
    seconds = record['epoch_seconds']
    return {
        's / epoch': f'{seconds:.1f}' if seconds else '',
        'seeds': str(len(record['seeds']) or 'closed form'),
    }
