"""Run in a fork: what ``python -m`` does, without importing PyTorch anew."""

import os
import runpy
import sys


def run_module(command, folder, environment, log):
    """Runs a module with its arguments in a folder. What it prints goes to a file."""
    os.chdir(folder)
    os.environ.update(environment)
    with open(log, 'w') as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.argv = [*command]
    runpy.run_module(command[0], run_name='__main__', alter_sys=True)
