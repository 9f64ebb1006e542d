r"""Draws the attention of trained node classifiers, and scores against varied settings."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from benchmarks.common.figures import COLORS, WIDTH, can_draw, save_figure, subplots
from benchmarks.common.files import write_file
from benchmarks.common.tables import as_csv
from benchmarks.node_classification.metrics import METRICS, metric_of
from benchmarks.node_classification.models import OURS, Classifier
from torch_geometric_lgt.diagnostics import attention_report
from torch_geometric_lgt.visualization import plot_attention_report, plot_latent_structure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
NUMBERED = re.compile(r'(\w+)-(\d+(?:\.\d+)?)')
PARTS = {'valid_': ('validation', 'o'), '': ('test', 's')}
# Words for the pictures: the models of the picture of all scores, in its order, data sets, settings
# and protocols.
TITLES = {
    'mlp': 'MLP',
    'gcn': 'GCN',
    'jknet': 'JK-Net',
    'nodeformer': 'NodeFormer',
    'difformer': 'DIFFormer',
    'sgformer': 'SGFormer',
    'polynormer': 'Polynormer',
    'graphtransformer': 'GraphTransformer',
}
DATASETS = {
    'actor': 'Actor',
    'amherst41': 'Amherst41',
    'chameleon-filtered': 'Chameleon',
    'citeseer': 'CiteSeer',
    'computers': 'Amazon Computers',
    'cora': 'Cora',
    'cs': 'Coauthor CS',
    'digits': 'digits',
    'facebook_pagepage': 'Facebook pages',
    'johnshopkins55': 'Johnshopkins55',
    'physics': 'Coauthor Physics',
    'reed98': 'Reed98',
    'squirrel-filtered': 'Squirrel',
}
SETTINGS = {
    'labels': 'labels per class',
    'laplacian_pe': 'Laplacian eigenvectors',
    'neighbors': 'nearest neighbours',
    'num_features': 'random features',
    'num_layers': 'layers',
    'temperature': 'temperature of the samples',
    'wrong_edges': 'share of wrong edges',
}
BASELINES = 'mlp', 'gcn', 'jknet', 'polynormer'
PROTOCOLS = {
    'fixed-splits': 'fixed splits',
    'published-20-per-class': '20 labels per class, one split',
    'random-20-per-class': '20 labels per class, random',
    'random-60-20-20': '60 % labelled, random',
}


def draw(classifier: Classifier, data: Data, path: Path, title: str) -> None:
    r"""Writes the attention report and the latent structure of a trained model.

    Args:
        classifier (Classifier): The trained model.
        data (Data): The graph.
        path (Path): The start of the paths of all files.
        title (str): The title of the figures.
    """
    model, name = classifier.model, path.name
    report = attention_report(
        model, data.x, data.edge_index, generator=torch.Generator().manual_seed(0)
    )
    save_figure(plot_attention_report(report, title=title), path.with_name(f'{name}-attention.png'))
    generator = torch.Generator().manual_seed(0)
    figure, numbers = plot_latent_structure(model, data, generator=generator, title=title)
    save_figure(figure, path.with_name(f'{name}-structure.png'))
    for kind, rows in (('attention', report), ('structure', [numbers])):
        content = as_csv([{key: _text(value) for key, value in row.items()} for row in rows])
        write_file(path.with_name(f'{name}-{kind}.csv'), content.encode(), 'tables')


def _text(value: str | float | None) -> str:
    return value if isinstance(value, str) else '' if value is None else f'{value:.4g}'


def model_on(model: str, dataset: str) -> str:
    r"""Names a model and a data set in words, for a title."""
    return f'{TITLES.get(model, model)} on {DATASETS.get(dataset, dataset)}'


def save_sweeps(records: Iterable[Record], folder: Path) -> None:
    r"""Draws one picture for each data set and model with a varied setting."""
    groups = defaultdict(list)
    for record in records:
        groups[record['model'], record['dataset']].append(record)
    for (model, dataset), group in groups.items():
        varied = lines(model, group)
        if varied and can_draw():
            save_figure(
                sweeps_figure(varied, model_on(model, dataset)),
                folder / f'{model}-{dataset}-sweeps.png',
            )


def scores_figure(records: Iterable[Record], least: int = 4) -> 'Figure | None':
    r"""Draws a panel for each data set and protocol with results of :obj:`least` models, and in it
    the test score of each model with its settings of the table."""
    groups: dict[tuple[str, str], dict[str, Record]] = defaultdict(dict)
    for record in records:
        if record['variant'] == '' and record['model'] in TITLES:
            groups[record['dataset'], record['protocol']][record['model']] = record
    groups = {key: group for key, group in groups.items() if len(group) >= least}
    if not groups:
        return None
    rows = -(-len(groups) // 3)
    figure, panels = subplots(
        rows, 3, figsize=(WIDTH, 0.5 + 1.9 * rows), sharey=True, squeeze=False
    )
    for axes in panels.flat[len(groups) :]:
        axes.set_axis_off()
    for axes, ((dataset, protocol), group) in zip(panels.flat, groups.items(), strict=False):
        for place, model in enumerate(TITLES):
            if model in group:
                record = group[model]
                score = record['metrics'][metric_of(record)]
                axes.errorbar(
                    100 * score['mean'],
                    place,
                    xerr=100 * score['std'],
                    marker='s' if model in BASELINES else 'o',
                    color='0.4' if model in BASELINES else COLORS[0],
                    capsize=2,
                )
        axes.set_title(
            f'{DATASETS.get(dataset, dataset)}\n{PROTOCOLS.get(protocol, protocol)}', fontsize=8
        )
        axes.tick_params(labelsize=8)
        axes.grid(axis='y', color='0.9')
        axes.spines[['top', 'right']].set_visible(False)
    panels[0, 0].set_yticks(range(len(TITLES)), TITLES.values())
    panels[0, 0].set_ylim(-0.6, len(TITLES) - 0.4)
    figure.supxlabel('test score (%)', fontsize=9)
    return figure


def lines(model: str, records: list[Record]) -> dict[str, list[tuple[float, Record]]]:
    r"""Collects the values of each varied setting with their results, in order. The default is
    among them if it has a result."""
    varied: dict[str, list[tuple[float, Record]]] = defaultdict(list)
    for record in records:
        numbered = NUMBERED.fullmatch(record['variant'])
        if numbered:
            varied[numbered[1]].append((float(numbered[2]), record))
    for setting, line in varied.items():
        protocols = {record['protocol'] for _, record in line}
        for record in records:
            value = default_value(model, setting, record)
            if (
                value is not None
                and record['variant'] == ''
                and record['protocol'] in protocols
                and value not in dict(line)
            ):
                line.append((value, record))
        line.sort(key=lambda pair: pair[0])
    return {setting: line for setting, line in varied.items() if len(line) > 1}


def default_value(model: str, setting: str, record: Record) -> float | None:
    r"""Returns the value of a setting that a result leaves at its default."""
    if setting in record['config']['options']:
        return float(record['config']['options'][setting])
    parameter = inspect.signature(OURS[model]).parameters.get(setting) if model in OURS else None
    return None if parameter is None else float(parameter.default)


def sweeps_figure(varied: dict[str, list[tuple[float, Record]]], title: str) -> 'Figure':
    r"""Draws validation and test score against each varied setting."""
    metric = metric_of(next(iter(varied.values()))[0][1])
    figure, panels = subplots(
        1,
        len(varied),
        figsize=(min(2.8 * len(varied) + 0.8, WIDTH), 2.8),
        sharey=True,
        squeeze=False,
    )
    for axes, (setting, line) in zip(panels[0], varied.items(), strict=True):
        for prefix, (name, marker) in PARTS.items():
            means, spreads = (
                [100 * record['metrics'][prefix + metric][key] for _, record in line]
                for key in ('mean', 'std')
            )
            axes.errorbar(
                [f'{value:g}' for value, _ in line],
                means,
                spreads,
                marker=marker,
                capsize=3,
                label=name,
            )
        axes.set_xlabel(SETTINGS.get(setting, setting))
    panels[0, 0].set_ylabel(f'{METRICS[metric].title} (%)')
    figure.suptitle(title)
    panels[0, 0].legend(fontsize='small')
    return figure
