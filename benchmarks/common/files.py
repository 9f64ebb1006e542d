r"""Writes files and tells the user where they are."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock
from tqdm import tqdm

from torch_geometric_lgt._io import write_atomically

WRITTEN: dict[Path, str] = {}  # what each file is that this process wrote


class DataError(Exception):
    r"""Says that data cannot be read or written, in one line."""


def say(message: str) -> None:
    r"""Prints a line beside progress bars on the standard error."""
    tqdm.write(message, file=sys.stderr)


def write_file(path: Path, content: bytes, kind: str) -> None:
    r"""Writes a file, and its folder if it is not there. The end of the script names the file
    among those of its :obj:`kind`, such as ``pictures``."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    WRITTEN[path] = kind


def check_folder(path: Path, rest: str = '') -> None:
    r"""Checks that a folder to write to, which need not exist, can be written. Messages end in
    :obj:`rest`.

    Raises:
        DataError: If it cannot, or is a file.
    """
    first = next((part for part in (path, *path.parents) if part.exists()), path)
    if first.exists() and not first.is_dir():
        raise DataError(f'{str(first)!r} must be a folder{rest}')
    if first.exists() and not os.access(first, os.W_OK):
        raise DataError(f'{str(first)!r} must be a folder that can be written{rest}')


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    r"""Lets one process at a time read the data in a folder, as the first may have to prepare
    them. A folder that cannot be written is read without a lock."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    is_writable = os.access(folder, os.W_OK)
    with FileLock(folder / '.lock') if is_writable else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    r"""Turns a failure to write into one line that names the path.

    Raises:
        DataError: If the path cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f'{path} cannot be written ({error.strerror or error}); make room, change its rights '
            'or choose another path'
        ) from error


def say_files() -> None:
    r"""Names all files that this process wrote, with a line for each kind and folder."""
    groups: dict[tuple[str, Path], list[str]] = {}
    for path, kind in WRITTEN.items():
        groups.setdefault((kind, path.parent), []).append(path.name)
    for (kind, folder), names in groups.items():
        say(f'{kind} in {folder}: {", ".join(names)}')
