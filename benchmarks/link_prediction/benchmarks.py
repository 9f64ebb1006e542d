r"""Imports the package ``benchmarks`` where a script of this folder runs by its path.

Python then looks for modules in the folder of the script and finds this file in place of the
package.
"""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE]
sys.path.insert(0, str(HERE.parents[1]))
del sys.modules[__name__]
import_module('benchmarks')
