r"""Stands in for the package `benchmarks` where a script is run by its path, ``python
benchmarks/sbm.py``, and puts the package in its place."""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE]
sys.path.insert(0, str(HERE.parent))
del sys.modules[__name__]
import_module('benchmarks')
