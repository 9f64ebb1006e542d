r"""Writes files and tells the user where they are."""

import sys
from pathlib import Path

from tqdm import tqdm

from torch_geometric_lgt._io import write_atomically

WRITTEN: dict[Path, str] = {}  # what each file is that this process wrote


def say(message: str) -> None:
    r"""Prints a line beside progress bars on the standard error."""
    tqdm.write(message, file=sys.stderr)


def write_file(path: Path, content: bytes, kind: str) -> None:
    r"""Writes a file, and its folder if it is not there. The end of the script names the file
    among those of its :obj:`kind`, such as ``pictures``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    WRITTEN[path] = kind


def say_files() -> None:
    r"""Names all files that this process wrote, with a line for each kind and folder."""
    groups: dict[tuple[str, Path], list[str]] = {}
    for path, kind in WRITTEN.items():
        groups.setdefault((kind, path.parent), []).append(path.name)
    for (kind, folder), names in groups.items():
        say(f'{kind} in {folder}: {", ".join(names)}')
