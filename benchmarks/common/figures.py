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
    r"""Returns whether matplotlib is there, and says so if it is not."""
    if find_spec('matplotlib') is None:
        say(
            'no pictures are drawn: matplotlib is missing, pip install '
            f"'torch-geometric-lgt[{EXTRAS['matplotlib']}]'"
        )
        return False
    return True


def require_drawing() -> None:
    r"""Ends a script before it trains, if it is to draw and cannot."""
    import_module('matplotlib')


def subplots(
    rows: int = 1, columns: int = 1, figsize: tuple[float, float] | None = None, **how: Any
) -> tuple['Figure', Any]:
    r"""Makes a figure and its panels; matplotlib is imported here, so that scripts start without
    it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout='constrained')
    return figure, figure.subplots(rows, columns, **how)


def save_figure(figure: 'Figure', path: Path) -> None:
    r"""Writes a picture that is the same for the same figure."""
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format='png', metadata={'Software': None})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
