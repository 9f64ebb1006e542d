import io
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

from torch_geometric_lgt._io import write_atomically

matplotlib.use('Agg')


def save_figure(figure: plt.Figure, path: Path) -> None:
    r"""Writes a picture that is the same for the same figure, and closes it."""
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format='png', metadata={'Software': None})
    plt.close(figure)
    write_atomically(path, content.getvalue())
