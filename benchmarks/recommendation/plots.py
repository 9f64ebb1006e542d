r"""Draws the pictures of the recommendation benchmark."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.common.figures import COLORS, WIDTH, draw_bars, subplots
from benchmarks.recommendation.datasets import GROUPS
from benchmarks.recommendation.settings import STUDIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = {'recall@20': 'Recall@20', 'ndcg@20': 'NDCG@20'}
SWEEPS = {
    'heads': 'heads',
    'layers': 'layers',
    'gamma': 'weight of uniformity',
    'dim': 'learned channels',
    'encoding': 'encoding channels',
}
PARTS = ('valid_ndcg@20', 'validation', 'o'), ('ndcg@20', 'test', 's')
Record = dict[str, Any]

# Words for the pictures: variants of the study, and models.
VARIANTS = {
    'study': 'small MGFormer',
    'no-attention': 'without attention',
    'no-encoding': 'without encoding',
    'no-mask': 'without degree mask',
    'no-residual': 'without residual',
    'adjacency-mask': 'mask of the adjacency',
    'elu': 'feature map ELU + 1',
    'focused': 'focused feature map',
}
TITLES = {
    'mgformer': 'MGFormer',
    'directau-lightgcn': 'DirectAU, LightGCN',
    'directau-mf': 'DirectAU, factors',
    'ease': 'EASE',
    'sgl': 'SGL',
    'itemknn': 'Item-kNN',
    'simgcl': 'SimGCL',
    'lightgcn': 'LightGCN',
    'bprmf': 'BPR, factors',
}


def scores_figure(models: Sequence[Record]) -> 'Figure':
    r"""Draws Recall@20 and NDCG@20 of each model side by side, best NDCG first."""
    names = [TITLES.get(record['model'], record['model']) for record in models]
    figure, panels = subplots(
        1, len(METRICS), figsize=(WIDTH, 0.9 + 0.28 * len(models)), sharey=True
    )
    for axes, (metric, title) in zip(panels, METRICS.items(), strict=True):
        values = [record['metrics'][metric]['mean'] for record in models]
        draw_bars(axes, names, values, marked=lambda name: name == TITLES['mgformer'])
        axes.set_xlabel(f'{title}, test')
    panels[0].invert_yaxis()  # the panels share the axis that each of them has turned
    return figure


def measured_groups(models: Sequence[Record]) -> list[str]:
    r"""Returns the groups of items whose recall all models have: those with test pairs."""
    return [
        group
        for group in GROUPS
        if all(f'recall@20_{group}' in record['metrics'] for record in models)
    ]


def groups_figure(models: Sequence[Record]) -> 'Figure':
    r"""Draws the recall of the measured groups of items, of three with a third of the training
    pairs each."""
    groups = measured_groups(models)
    figure, panels = subplots(
        1, len(groups), figsize=(WIDTH, 0.9 + 0.28 * len(models)), sharey=True, squeeze=False
    )
    for axes, group in zip(panels[0], groups, strict=True):
        _bars(
            axes,
            models[::-1],
            f'recall@20_{group}',
            [TITLES.get(record['model'], record['model']) for record in models[::-1]],
            TITLES['mgformer'],
        )
        axes.set_title(f'{group} items')
    return figure


def ablation_figure(studied: dict[str, Record]) -> 'Figure':
    r"""Draws the NDCG of MGFormer without one part, or with another in its place."""
    names = [name for name in studied if name in ('study', *STUDIES['ablation'])][::-1]
    titles = [VARIANTS.get(name, name) for name in names]
    figure, axes = subplots(figsize=(WIDTH, 0.6 + 0.3 * len(names)))
    _bars(axes, [studied[name] for name in names], 'ndcg@20', titles, VARIANTS['study'])
    return figure


def sweeps_figure(studied: dict[str, Record]) -> 'Figure':
    r"""Draws validation and test NDCG against each setting that has several values."""
    lines = {
        setting: [
            record for name, record in studied.items() if name in ('study', *STUDIES[setting])
        ]
        for setting in SWEEPS
    }
    varied = [setting for setting, line in lines.items() if len(line) > 1] or [*SWEEPS]
    figure, panels = subplots(
        1,
        len(varied),
        figsize=(min(max(3.5, 1.85 * len(varied)), WIDTH), 2.8),
        sharey=True,
        squeeze=False,
    )
    for axes, setting in zip(panels[0], varied, strict=True):
        line = sorted(lines[setting], key=lambda record, setting=setting: record['config'][setting])
        for metric, name, marker in PARTS:
            values, spread = (
                [record['metrics'][metric][key] for record in line] for key in ('mean', 'std')
            )
            axes.errorbar(
                [str(record['config'][setting]) for record in line],
                values,
                spread,
                marker=marker,
                capsize=3,
                label=name,
            )
        axes.set_xlabel(SWEEPS[setting])
    panels[0][0].set_ylabel('NDCG@20')
    panels[0][0].legend(fontsize='small')
    return figure


def _bars(
    axes: Any, records: Sequence[Record], metric: str, names: Sequence[str], marked: str
) -> None:
    values, spread = (
        [record['metrics'][metric][key] for record in records] for key in ('mean', 'std')
    )
    axes.barh(
        names,
        values,
        xerr=spread,
        color=[COLORS[0] if name == marked else '0.45' for name in names],
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
