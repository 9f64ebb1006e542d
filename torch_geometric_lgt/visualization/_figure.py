import io
import os
from functools import partial
from pathlib import Path
from typing import Any

from torch_geometric_lgt._io import write_atomically

# Colours that stay apart without red or green cones (Okabe and Ito).
COLORS = '#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9', '#D55E00', '#000000', '#F0E442'


def new_figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    r"""Creates a figure of :obj:`size` (width and height in inches), and returns the figure with
    its grid of axes ``[rows, columns]``.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib: pip install "torch-geometric-lgt[visualization]"'
        ) from error
    figure: Any = Figure(figsize=size, layout='constrained')
    figure._repr_png_ = partial(_png, figure)  # what notebooks show without pyplot
    return figure, figure.subplots(rows, columns, squeeze=False)


def _png(figure: Any) -> bytes:
    r"""Returns a figure as the content of a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format='png', dpi=150, metadata={'Software': None})
    return content.getvalue()


def check_path(path: str | os.PathLike[str] | None) -> None:
    r"""Raises a ValueError unless :obj:`path` is :obj:`None` or ends in ``.png``."""
    if path is not None and Path(path).suffix.lower() != '.png':
        raise ValueError(
            f"'path' must end in .png (got {str(path)!r}); write other formats with "
            'figure.savefig(..) of the returned figure'
        )


def saved(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    r"""Writes a figure to :obj:`path` as PNG, atomically, unless it is :obj:`None`, and returns the
    figure."""
    if path is not None:
        write_atomically(path, _png(figure))
    return figure
