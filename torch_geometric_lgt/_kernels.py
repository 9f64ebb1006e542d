import os
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import torch


def missing_for_kernels() -> str:
    r"""Returns what this machine lacks for Triton's kernels, an empty text if nothing.

    Triton compiles the code that launches a kernel when it is first called. For this it needs a C
    compiler and Python's headers, which images of containers often lack; on Windows it brings both.
    """
    if torch.version.hip is not None:
        return 'no Triton kernels on ROCm'
    if find_spec('triton') is None:
        return 'triton is not installed'
    if sys.platform == 'win32':
        return ''
    if 'CC' not in os.environ and not any(map(shutil.which, ('gcc', 'clang'))):
        return 'Triton finds no C compiler'
    scheme = sysconfig.get_default_scheme().replace('posix_local', 'posix_prefix')  # as Triton
    if not Path(sysconfig.get_path('include', scheme), 'Python.h').exists():
        return "Triton finds no headers of Python ('Python.h')"
    return ''
