r"""Makes and saves figures with matplotlib, which is optional."""

import io
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.results import say
from benchmarks.common.scripts import EXTRAS
from torch_geometric_lgt._io import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def can_draw() -> bool:
    r"""Tells whether matplotlib is installed, and prints a message if it is not."""
    if find_spec('matplotlib') is None:
        say(
            'no pictures are drawn: matplotlib is missing, pip install '
            f"'torch-geometric-lgt[{EXTRAS['matplotlib']}]'"
        )
        return False
    return True


def require_drawing() -> None:
    r"""Ends a script before it trains if matplotlib is missing."""
    import_module('matplotlib')


def subplots(
    rows: int = 1, columns: int = 1, figsize: tuple[float, float] | None = None, **options: Any
) -> tuple['Figure', Any]:
    r"""Makes a figure and its panels. Scripts start without matplotlib, which is imported here."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout='constrained')
    return figure, figure.subplots(rows, columns, **options)


def save_figure(figure: 'Figure', path: Path) -> None:
    r"""Writes a figure; equal figures give equal files."""
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format='png', metadata={'Software': None})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
