r"""Draws seconds and memory against the number of nodes, with slopes."""

import math
from typing import TYPE_CHECKING

from benchmarks.common.figures import subplots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = dict[int, float]
WIDTH = 4
FIGURES = {'seconds': 'seconds', 'peak_memory_mib': 'peak memory (MiB)'}
REFERENCES = {'quadratic': '--', 'peer': '--', 'products': ':', 'pyg-sgformer': ':'}


def slope(line: Line) -> str:
    r"""Returns the exponent of the growth between the two largest sizes."""
    if len(line) < 2:
        return ''
    (n, low), (m, high) = sorted(line.items())[-2:]
    if low <= 0 or high <= 0:  # no more memory than stood before
        return ''
    return f'{math.log(high / low) / math.log(m / n):.2f}'


def scaling_figure(columns: dict[str, dict[str, dict[str, Line]]]) -> 'Figure':
    r"""Draws a column of two panels for each title: seconds above and memory below. Four columns
    make a band. Each panel has the lines by name, with their slopes."""
    width = min(len(columns), WIDTH)
    bands = math.ceil(len(columns) / width)
    out, panels = subplots(
        2 * bands, width, figsize=(max(5, 3.2 * width), 6.4 * bands), squeeze=False
    )
    for axis in panels.flat:
        axis.set_axis_off()
    for i, (title, figures) in enumerate(columns.items()):
        band, place = divmod(i, width)
        panels[2 * band, place].set_title(title, fontsize='medium')
        for axis, (figure, label) in zip(
            panels[2 * band : 2 * band + 2, place], FIGURES.items(), strict=True
        ):
            axis.set_axis_on()
            for name, line in sorted(
                (name, line) for name, line in figures.get(figure, {}).items() if line
            ):
                style = {'linestyle': REFERENCES.get(name, '-'), 'marker': 'o', 'markersize': 3}
                axis.loglog(
                    list(line),
                    list(line.values()),
                    label=f'{name} ({slope(line) or "no slope"})',
                    **style,
                )
            axis.set(xlabel='nodes', ylabel='' if place else label)
            axis.legend(fontsize=7)
    return out
