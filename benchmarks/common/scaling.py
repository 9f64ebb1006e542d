r"""Seconds and memory against the number of nodes: slopes and pictures."""

import math

import matplotlib.pyplot as plt

Line = dict[int, float]
FIGURES = {'seconds': 'seconds', 'peak_memory_mib': 'peak memory (MiB)'}
REFERENCES = {'quadratic': '--', 'peer': '--', 'products': ':', 'pyg-sgformer': ':'}


def slope(line: Line) -> str:
    r"""The exponent of the growth between the two largest sizes."""
    if len(line) < 2:
        return ''
    (n, low), (m, high) = sorted(line.items())[-2:]
    if low <= 0 or high <= 0:  # no more memory than stood before
        return ''
    return f'{math.log(high / low) / math.log(m / n):.2f}'


def scaling_figure(columns: dict[str, dict[str, dict[str, Line]]]) -> plt.Figure:
    r"""A column of two panels, seconds above and memory below, for each title; each panel has the lines by name, with their slopes."""
    out, panels = plt.subplots(2, len(columns), figsize=(max(5, 3.2 * len(columns)), 6.4), squeeze=False, layout='constrained')
    for (title, figures), column in zip(columns.items(), panels.T, strict=True):
        column[0].set_title(title, fontsize='medium')
        for axis, (figure, label) in zip(column, FIGURES.items(), strict=True):
            for name, line in sorted((name, line) for name, line in figures.get(figure, {}).items() if line):
                style = {'linestyle': REFERENCES.get(name, '-'), 'marker': 'o', 'markersize': 3}
                axis.loglog(list(line), list(line.values()), label=f'{name} ({slope(line) or "no slope"})', **style)
            axis.set(xlabel='nodes', ylabel=label if axis in panels[:, 0] else '')
            axis.legend(fontsize=7)
    return out
