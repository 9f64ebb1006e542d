import os
from typing import TYPE_CHECKING

import numpy as np

from torch_geometric_lgt.diagnostics import AttentionReport
from torch_geometric_lgt.visualization._figure import COLORS, check_path, new_figure, saved

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_attention_report(
    report: AttentionReport, path: str | os.PathLike[str] | None = None, title: str | None = None
) -> 'Figure':
    r"""Plots three measures of a report against the layers: ``others``, ``beyond mean`` and
    ``entropy``.

    Args:
        report (AttentionReport): The report of
            :meth:`~torch_geometric_lgt.diagnostics.attention_report`, which describes the measures.
        path (str, optional): The PNG file to write. (default: :obj:`None`, none)
        title (str, optional): The title, for example the names of the model and of the data.
            (default: :obj:`None`)

    Returns:
        The :class:`matplotlib.figure.Figure`. Notebooks show it.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If :obj:`report` is no report.
        ValueError: If the report is empty, or :obj:`path` does not end in ``.png``.

    Example:
        >>> from pathlib import Path
        >>> from torch_geometric_lgt.diagnostics import AttentionReport
        >>> from torch_geometric_lgt.visualization import plot_attention_report
        >>> row = {'layer': 'convs.0', 'others': 0.9, 'beyond mean': 0.2, 'entropy': 0.7}
        >>> figure = plot_attention_report(AttentionReport([row]), 'report.png')
        >>> Path('report.png').exists()
        True
    """
    if not isinstance(report, list) or not all(isinstance(row, dict) for row in report):
        raise TypeError(
            "'report' must be the AttentionReport that attention_report returns (got "
            f'{type(report).__name__})'
        )
    if not report:
        raise ValueError("'report' must have a layer at least (got none)")
    check_path(path)
    figure, axes = new_figure(1, 1, (max(5.0, 0.5 * len(report)), 3.5))
    layers = range(len(report))
    names = 'others', 'beyond mean', 'entropy'
    low, high = 0.0, 1.0
    for name, color, marker in zip(names, COLORS, 'os^', strict=False):
        shares = [np.nan if row[name] is None else row[name] for row in report]
        axes[0, 0].plot(layers, shares, color=color, marker=marker, label=name)
        finite = [share for share in shares if np.isfinite(share)]
        low, high = min([low, *finite]), max([high, *finite])
    room = high - low
    ylim = low - 0.02 * room, high + 0.05 * room
    axes[0, 0].set(xlabel='layer', ylabel='share', ylim=ylim, title=title)
    axes[0, 0].set_xticks(layers, [str(row['layer']) for row in report], rotation=30, ha='right')
    axes[0, 0].legend(fontsize='small')
    return saved(figure, path)
