r"""Makes and saves figures with matplotlib, which is optional."""

import io
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.files import say, write_file
from benchmarks.common.scripts import EXTRAS
from torch_geometric_lgt.visualization import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 7.5  # inches, the width of a page


def can_draw() -> bool:
    r"""Tells whether matplotlib is installed, and prints a message if it is not."""
    if find_spec('matplotlib') is None:
        say(
            'no pictures are drawn: matplotlib is missing, pip install '
            f'"torch-geometric-lgt[{EXTRAS["matplotlib"]}]"'
        )
        return False
    return True


def require_drawing() -> None:
    r"""Ends a script before it trains if matplotlib is missing."""
    import_module('matplotlib')


def subplots(
    rows: int = 1, columns: int = 1, figsize: tuple[float, float] | None = None, **options: Any
) -> tuple['Figure', Any]:
    r"""Makes a figure and its panels, with lines in ``COLORS``. Scripts start without matplotlib,
    which is imported here."""
    from matplotlib import cycler, rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout='constrained')
    with rc_context({'axes.prop_cycle': cycler(color=COLORS)}):
        return figure, figure.subplots(rows, columns, **options)


def save_figure(figure: 'Figure', path: Path) -> None:
    r"""Writes a figure; equal figures give equal files."""
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format='png', metadata={'Software': None})
    write_file(path, content.getvalue(), 'pictures')


def three_digits(value: float) -> str:
    r"""Formats a number with three digits, the last ones of which may be zeros."""
    return f'{value:#.3g}'.removesuffix('.')


def draw_bars(
    axis: Any, names: Sequence[str], values: Sequence[float], marked: Callable[[str], bool]
) -> None:
    r"""Draws a horizontal bar with its value for each name, the first name on top. Marked names
    have another colour."""
    colors = [COLORS[0] if marked(name) else '0.7' for name in names]
    bars = axis.barh(names, values, color=colors)
    axis.bar_label(bars, [three_digits(value) for value in values], padding=3, fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.tick_params(labelsize=8)
    axis.spines[['top', 'right']].set_visible(False)
