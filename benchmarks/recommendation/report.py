r"""The tables and the pictures of the recommendation benchmark, from the result files that are
there."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.figures import can_draw, save_figure, subplots
from benchmarks.common.results import read_results
from benchmarks.common.tables import mean, spread, write_table
from benchmarks.recommendation.settings import DEFAULTS, PUBLISHED, STUDIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = ('unpopular', 'normal', 'popular')
METRICS = {'recall@20': 'Recall@20', 'ndcg@20': 'NDCG@20'}
SWEEPS = {
    'heads': 'heads',
    'layers': 'layers',
    'gamma': 'weight of uniformity',
    'dim': 'learned channels',
    'encoding': 'encoding channels',
}
Record = dict[str, Any]


def report(source: Path, folder: Path, dataset: str) -> str:
    r"""Writes the tables and pictures of a data set, of its results in :obj:`source`, and returns
    the tables."""
    found = read_results(source)
    found = sorted(
        (record for record in found if record['dataset'] == dataset),
        key=lambda record: -mean(record, 'ndcg@20'),
    )
    models = [record for record in found if not record['variant']]
    own = {record['variant']: record for record in found if record['model'] == 'mgformer'}
    default, study = own.get(''), own.get('study')
    studied = {
        name: record
        for name, record in own.items()
        if any(name in variants for variants in ({'study'}, *STUDIES.values()))
    }
    others = [record for name, record in own.items() if name not in studied]
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
    }
    written = '\n'.join(
        write_table(folder / f'{dataset}{suffix}', rows) for suffix, rows in tables.items() if rows
    )
    drawing = bool(found) and can_draw()
    if models and drawing:
        save_figure(groups_figure(models), folder / f'{dataset}-groups.png')
    if studied and drawing:
        save_figure(ablation_figure(studied), folder / f'{dataset}-ablation.png')
        save_figure(sweeps_figure(studied), folder / f'{dataset}-sweeps.png')
    return written


def model_row(record: Record, default: Record | None) -> dict[str, str]:
    r"""Test figures, mean and standard deviation over the seeds, beside the published ones."""
    published = PUBLISHED.get(record['dataset'], {}).get(record['model'])
    gain = mean(default, 'ndcg@20') / mean(record, 'ndcg@20') - 1 if default else None
    return {
        'model': record['model'],
        'channels': ' + '.join(
            str(record['config'][name]) for name in ('dim', 'encoding') if name in record['config']
        ),
        **{name: spread(record, metric) for metric, name in METRICS.items()},
        'MGFormer is better by': '' if gain is None or record is default else f'{gain:+.1%}',
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
    r"""A model that is no part of this benchmark, by its published figures alone."""
    return dict.fromkeys(like, '') | {
        'model': name,
        'published': '{:.4f} / {:.4f}'.format(*figures),
        'seeds': 'quoted',
    }


def variant_row(record: Record, base: Record | None) -> dict[str, str]:
    r"""Figures of a configuration of MGFormer, and by how much its validation NDCG differs from
    that of the one it is a variant of."""
    change = mean(record, 'valid_ndcg@20') / mean(base, 'valid_ndcg@20') - 1 if base else None
    return {
        'variant': record['variant'] or 'default',
        'validation NDCG@20': spread(record, 'valid_ndcg@20'),
        'change': '' if change is None or record is base else f'{change:+.1%}',
        **{name: spread(record, metric) for metric, name in METRICS.items()},
        **_effort(record),
    }


def groups_figure(models: Sequence[Record]) -> 'Figure':
    r"""Recall of the wanted items of three groups, each with a third of the training pairs."""
    figure, panels = subplots(1, len(GROUPS), figsize=(9, 0.9 + 0.28 * len(models)), sharey=True)
    for axes, group in zip(panels, GROUPS, strict=True):
        _bars(
            axes,
            models[::-1],
            f'recall@20_{group}',
            [record['model'] for record in models[::-1]],
            'mgformer',
        )
        axes.set_title(f'{group} items')
    return figure


def ablation_figure(studied: dict[str, Record]) -> 'Figure':
    r"""What is left of the NDCG when a part of MGFormer is taken away or replaced."""
    names = [name for name in studied if name in ('study', *STUDIES['ablation'])][::-1]
    figure, axes = subplots(figsize=(7, 0.6 + 0.3 * len(names)))
    _bars(axes, [studied[name] for name in names], 'ndcg@20', names, 'study')
    return figure


def sweeps_figure(studied: dict[str, Record]) -> 'Figure':
    r"""Validation and test NDCG over one setting each, the others alike; settings of which there
    are several values."""
    lines = {
        setting: [
            record for name, record in studied.items() if name in ('study', *STUDIES[setting])
        ]
        for setting in SWEEPS
    }
    varied = [setting for setting, line in lines.items() if len(line) > 1] or [*SWEEPS]
    figure, panels = subplots(
        1, len(varied), figsize=(2.6 * len(varied), 2.8), sharey=True, squeeze=False
    )
    for axes, setting in zip(panels[0], varied, strict=True):
        label, line = (
            SWEEPS[setting],
            sorted(lines[setting], key=lambda record, setting=setting: record['config'][setting]),
        )
        for metric, name in (('valid_ndcg@20', 'validation'), ('ndcg@20', 'test')):
            values, spread = (
                [record['metrics'][metric][key] for record in line] for key in ('mean', 'std')
            )
            axes.errorbar(
                [str(record['config'][setting]) for record in line],
                values,
                spread,
                marker='o',
                capsize=3,
                label=name,
            )
        axes.set_xlabel(label)
    panels[0][0].set_ylabel('NDCG@20')
    panels[0][0].legend(fontsize='small')
    return figure


def _bars(
    axes: Any, found: Sequence[Record], metric: str, names: Sequence[str], marked: str
) -> None:
    values, spread = (
        [record['metrics'][metric][key] for record in found] for key in ('mean', 'std')
    )
    axes.barh(
        names, values, xerr=spread, color=['C1' if name == marked else 'C0' for name in names]
    )
    for name, value in zip(names, values, strict=True):
        inside = value > 0.25 * max(values)
        axes.text(
            0 if inside else value,
            name,
            f' {value:.4f}',
            va='center',
            color='white' if inside else 'black',
            fontsize='small',
        )
    axes.set_xlabel(METRICS[metric.split('_')[0]])


def _effort(record: Record) -> dict[str, str]:
    seconds = record['epoch_seconds']
    return {
        's / epoch': f'{seconds:.1f}' if seconds else '',
        'seeds': str(len(record['seeds']) or 'closed form'),
    }
