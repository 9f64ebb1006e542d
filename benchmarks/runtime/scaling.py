r"""Draws seconds and memory against the number of nodes, with slopes, and beside peers."""

import math
from typing import TYPE_CHECKING, Any

from benchmarks.common.figures import COLORS, WIDTH, subplots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = dict[int, float]
FIGURES = {'seconds': 'seconds', 'peak_memory_mib': 'peak memory (MiB)'}
MARKERS = 'os^DvPX*<>'


def slope(line: Line) -> str:
    r"""Returns the exponent of the growth between the two largest sizes."""
    if len(line) < 2:
        return ''
    (n, low), (m, high) = sorted(line.items())[-2:]
    if low <= 0 or high <= 0:  # no more memory than stood before
        return ''
    return f'{math.log(high / low) / math.log(m / n):.2f}'


def scaling_figure(columns: dict[str, dict[str, dict[str, Line]]]) -> 'Figure':
    r"""Draws a column of two panels for each title: seconds above and memory below. All panels
    share the lines by name, as the legend of the figure has them; that of a panel has the
    slopes."""
    from matplotlib.lines import Line2D

    names = list(
        dict.fromkeys(
            name for figures in columns.values() for lines in figures.values() for name in lines
        )
    )
    figure, panels = subplots(
        2, len(columns), figsize=(WIDTH, 5), sharex=True, sharey='row', squeeze=False
    )
    for column, (title, figures) in zip(panels.T, columns.items(), strict=True):
        column[0].set_title(title, fontsize=9)
        column[1].set_xlabel('nodes', fontsize=9)
        for axis, kind in zip(column, FIGURES, strict=True):
            draw_lines(axis, figures.get(kind, {}), names, 'slope {slope}')
    handles = [Line2D([], [], **style(place)) for place in range(len(names))]
    figure.legend(
        handles, names, loc='outside upper left', ncols=len(names), fontsize=9, frameon=False
    )
    for axis, label in zip(panels[:, 0], FIGURES.values(), strict=True):
        axis.set_ylabel(label, fontsize=9)
    return figure


def growth_figure(figures: dict[str, dict[str, Line]]) -> 'Figure':
    r"""Draws a panel of seconds and a panel of memory side by side, with the lines by name."""
    figure, panels = subplots(1, len(FIGURES), figsize=(WIDTH, 5), squeeze=False)
    names = list(figures['seconds'])
    for axis, (kind, label) in zip(panels[0], FIGURES.items(), strict=True):
        draw_lines(axis, figures[kind], names)
        place = {'loc': 'upper center', 'bbox_to_anchor': (0.5, -0.16), 'ncols': 2}
        axis.legend(fontsize=8, frameon=False, title='slope in brackets', **place)
        axis.set(xlabel='nodes', title=label)
    return figure


def style(place: int) -> dict[str, Any]:
    return {'color': COLORS[place % len(COLORS)], 'marker': MARKERS[place], 'markersize': 4}


def draw_lines(
    axis: Any, lines: dict[str, Line], names: list[str], label: str = '{name} ({slope})'
) -> None:
    r"""Draws lines on logarithmic axes. The place of a name in :obj:`names` is its style."""
    for name, line in lines.items():
        text = label.format(name=name, slope=slope(line) or 'unknown')
        axis.loglog(list(line), list(line.values()), label=text, **style(names.index(name)))
    axis.tick_params(which='both', labelsize=8)
    axis.spines[['top', 'right']].set_visible(False)
    axis.legend(fontsize=8, frameon=False)


def comparison_figure(rows: list[tuple[str, float, float]], label: str) -> 'Figure':
    r"""Draws a row for each comparison: our value, the value of the peer, and how many
    times as large the latter is.

    Args:
        rows (list): The title, our value and the value of the peer.
        label (str): What the values are.
    """
    rows = sorted(rows, key=lambda row: row[1] / row[2])
    figure, axis = subplots(figsize=(WIDTH, 0.36 * len(rows) + 1.1))
    titles = [title for title, _, _ in rows]
    ours, peers = ([row[i] for row in rows] for i in (1, 2))
    axis.hlines(titles, ours, peers, color='0.7', linewidth=2, zorder=1)
    axis.scatter(ours, titles, color=COLORS[0], marker=MARKERS[0], s=42, label='this package')
    axis.scatter(peers, titles, color=COLORS[1], marker=MARKERS[1], s=36, label='the other program')
    for title, own, peer in rows:
        text = f'× {peer / own:.1f}'
        place = (max(own, peer), title)
        offset = {'xytext': (8, 0), 'textcoords': 'offset points'}
        axis.annotate(text, place, **offset, va='center', fontsize=8)
    axis.set_xscale('log')
    low, high = min(*ours, *peers), max(*ours, *peers)
    axis.set_xlim(low / 1.5, high * (high / low) ** 0.2)  # room for the ratios
    axis.set_xlabel(label)
    axis.tick_params(labelsize=8)
    axis.invert_yaxis()
    axis.spines[['top', 'right']].set_visible(False)
    figure.legend(loc='outside upper left', ncols=2, fontsize=9, frameon=False)
    return figure
