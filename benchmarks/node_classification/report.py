r"""Writes the tables and curves of the node classification benchmark."""

from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.common.figures import COLORS, can_draw, save_figure, subplots
from benchmarks.common.results import read_results
from benchmarks.common.tables import mean, model_and_variant, spread, write_table
from benchmarks.node_classification.metrics import METRICS, metric_of
from benchmarks.node_classification.plots import save_sweeps, scores_figure
from benchmarks.node_classification.settings import PUBLISHED


def report(source: Path, folder: Path) -> str:
    r"""Writes a table of the models and one of the variants of studies, and draws varied settings.

    Args:
        source (Path): The folder of the results.
        folder (Path): The folder of the tables and pictures.
    """
    records = read_results(source)
    records.sort(
        key=lambda record: (
            record['dataset'],
            record['protocol'],
            -mean(record, f'valid_{metric_of(record)}'),
        )
    )
    tables: dict[str, list[dict[str, str]]] = {'accuracy': [], 'variants': []}
    for record in records:
        is_variant = bool(record['variant']) and not record['variant'].startswith('searched')
        published = PUBLISHED.get((record['dataset'], record['protocol']), {})
        if is_variant:
            tables['variants'].append(row(record, None))
        else:
            tables['accuracy'].append(row(record, published.get(record['model'])))
    text = '\n'.join(write_table(folder / name, rows) for name, rows in tables.items() if rows)
    save_sweeps(records, folder)
    picture = scores_figure(records) if records and can_draw() else None
    if picture is not None:
        save_figure(picture, folder / 'scores.png')
    return text


def row(record: dict[str, Any], published: float | None) -> dict[str, str]:
    r"""Formats scores in per cent, with the standard deviation over the seeds, beside the
    published mean."""
    metric = metric_of(record)
    return {
        'data set': record['dataset'],
        'protocol': record['protocol'],
        'model': model_and_variant(record),
        'metric': METRICS[metric].title,
        'test score': spread(record, metric, 100, 2),
        'published': '' if published is None else f'{100 * published:.2f}',
        'validation score': spread(record, f'valid_{metric}', 100, 2),
        'ms / epoch': f'{record["metrics"]["epoch_ms"]["median"]:.1f}',
        'ms inference': f'{record["metrics"]["inference_ms"]["median"]:.1f}',
        'MiB': f'{record["peak_memory_mib"]:.0f}',
        'seeds': str(len(record['seeds'])),
    }


def save_curves(history: Tensor, path: Path, title: str, metric: str) -> None:
    r"""Draws the training loss and the validation score against the epochs.

    Args:
        history (torch.Tensor): Epoch, loss and score of each of T epochs ``[T, 3]``.
        path (Path): The file.
        title (str): The title of the figure.
        metric (str): The name of the score.
    """
    epoch, loss, score = history.t()
    figure, axes = subplots(figsize=(6, 3))
    axes.plot(epoch, loss, label='training loss')
    axes.set_xlabel('epoch')
    axes.set_ylabel('training loss')
    score_axes = axes.twinx()
    score_axes.plot(epoch, score, color=COLORS[1], label=f'validation {metric}')
    score_axes.set_ylabel(f'validation {metric}')
    figure.legend(loc='outside upper right', ncols=2, fontsize='small')
    axes.set_title(title, loc='left', fontsize='medium')
    save_figure(figure, path)
