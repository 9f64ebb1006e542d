r"""Pictures of the node classification benchmark: what attention has learned, and figures over one
setting each."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from benchmarks.common.figures import can_draw, save_figure, subplots
from benchmarks.common.tables import as_csv
from benchmarks.node_classification.models import OURS, Classifier
from torch_geometric_lgt._io import write_atomically
from torch_geometric_lgt.diagnostics import attention_report
from torch_geometric_lgt.visualization import plot_attention_report, plot_latent_structure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
NUMBERED = re.compile(r'(\w+)-(\d+(?:\.\d+)?)')
METRICS = {'valid_accuracy': 'validation', 'accuracy': 'test'}


def draw(classifier: Classifier, data: Data, path: Path, title: str) -> None:
    r"""Writes the attention report and the latent structure of a trained model beside :obj:`path`,
    from its name on."""
    model, name = classifier.model, path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    report = attention_report(
        model, data.x, data.edge_index, generator=torch.Generator().manual_seed(0)
    )
    plot_attention_report(report, path.with_name(f'{name}-attention.png'), title)
    generator = torch.Generator().manual_seed(0)
    figures = plot_latent_structure(
        model, data, path.with_name(f'{name}-structure.png'), generator=generator, title=title
    )
    for kind, rows in (('attention', report), ('structure', [figures])):
        content = as_csv(
            [
                {key: '' if value is None else f'{value:.4g}' for key, value in row.items()}
                for row in rows
            ]
        )
        write_atomically(path.with_name(f'{name}-{kind}.csv'), content.encode())


def save_sweeps(records: Iterable[Record], folder: Path) -> None:
    r"""One picture for each data set and model of which a setting was varied."""
    groups = defaultdict(list)
    for record in records:
        groups[record['model'], record['dataset']].append(record)
    for (model, dataset), group in groups.items():
        found = lines(model, group)
        if found and can_draw():
            save_figure(
                sweeps_figure(found, f'{model} on {dataset}'),
                folder / f'{model}-{dataset}-sweeps.png',
            )


def lines(model: str, records: list[Record]) -> dict[str, list[tuple[float, Record]]]:
    r"""The values of each varied setting and their results in order, the default among them if
    there is a result of it."""
    out: dict[str, list[tuple[float, Record]]] = defaultdict(list)
    for record in records:
        numbered = NUMBERED.fullmatch(record['variant'])
        if numbered:
            out[numbered[1]].append((float(numbered[2]), record))
    for setting, line in out.items():
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
    return {setting: line for setting, line in out.items() if len(line) > 1}


def default_value(model: str, setting: str, record: Record) -> float | None:
    r"""The value of a setting in a result that says nothing of it."""
    if setting in record['config']['options']:
        return float(record['config']['options'][setting])
    parameter = inspect.signature(OURS[model]).parameters.get(setting) if model in OURS else None
    return None if parameter is None else float(parameter.default)


def sweeps_figure(found: dict[str, list[tuple[float, Record]]], title: str) -> 'Figure':
    figure, panels = subplots(
        1, len(found), figsize=(2.8 * len(found) + 0.8, 2.8), sharey=True, squeeze=False
    )
    for axes, (setting, line) in zip(panels[0], found.items(), strict=True):
        for metric, name in METRICS.items():
            means, spreads = (
                [100 * record['metrics'][metric][key] for _, record in line]
                for key in ('mean', 'std')
            )
            axes.errorbar(
                [f'{value:g}' for value, _ in line],
                means,
                spreads,
                marker='o',
                capsize=3,
                label=name,
            )
        axes.set_xlabel(setting.replace('_', ' '))
    panels[0, 0].set_ylabel('accuracy (%)')
    figure.suptitle(title, fontsize='medium')
    panels[0, 0].legend(fontsize='small')
    return figure
