r"""Tells which command runs, as a user types it and as a result records it."""

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def program() -> str:
    r"""Returns the name of the script that runs: its file, or the folder of a package."""
    path = Path(sys.argv[0])
    return path.parent.name if path.name == '__main__.py' else path.name


def invocation() -> str:
    r"""Returns the start of the command that runs, without its arguments."""
    module = sys.modules['__main__'].__spec__
    if module is None or module.name == '__main__':  # run by the path of a file or a folder
        path = os.path.relpath(Path(sys.argv[0]).resolve(), ROOT)  # on one drive of Windows
        return shlex.join(['python', Path(path).as_posix()])
    return shlex.join(['python', '-m', module.name.removesuffix('.__main__')])


def command() -> str:
    r"""Returns the command that runs. Absolute paths lose all but the last part, so that the
    result does not tell where the data are."""
    words = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
    return ' '.join([invocation(), *map(shlex.quote, words)])
