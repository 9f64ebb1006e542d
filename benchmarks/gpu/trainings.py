r"""Runs the tests that need a GPU, and trains LiteGT at the published size.

Both run as the commands that a user would type.
"""

import os
import subprocess
import sys
from unittest.mock import patch
from xml.etree import ElementTree

import torch

from benchmarks import sbm
from benchmarks.common.command import ROOT
from benchmarks.common.files import say
from benchmarks.gpu.run import OutOfTimeError, Run
from benchmarks.many_graphs.settings import PRESETS
from benchmarks.runtime.measure import environment

MODEL = 'litegt-jaccard-sampling'
TINY = {
    'graphs': {'train': 6, 'val': 3, 'test': 3},
    'layers': 2,
    'training': {'epochs': 1, 'hidden_channels': 16, 'batch_size': 3},
}
OUTCOMES = ('tests', 'failures', 'errors', 'skipped')


def run_tests(run: Run) -> None:
    r"""Runs the tests marked ``cuda`` and ``kernels``, with two devices also ``nccl``, and writes
    how many passed. Where some fail nothing is written, so that the same command runs them again.

    Raises:
        OutOfTimeError: If the time of the run is over.
    """
    selected = 'cuda or kernels or nccl' if torch.cuda.device_count() > 1 else 'cuda or kernels'
    report = (run.folder / 'tests.xml').resolve()
    report.parent.mkdir(parents=True, exist_ok=True)
    paths = (
        ['test/cuda/test_definitions.py::test_no_exported_layer_or_model_is_left_out']
        if run.rehearse
        else []
    )
    command = [sys.executable, '-m', 'pytest', '-q', '-m', selected, f'--junitxml={report}', *paths]
    if not run.rehearse:
        command += ['-n', str(workers(run.device)), '--dist', 'loadgroup']

    def metrics() -> dict[str, list[float]]:
        log = run.folder / 'tests.log'
        report.unlink(missing_ok=True)
        with log.open('w') as file:
            try:
                subprocess.run(
                    command,
                    cwd=ROOT,
                    env=environment() | visible(run.device),
                    stdout=file,
                    stderr=file,
                    timeout=max(1.0, run.seconds_left()),
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise OutOfTimeError from error
        if not report.exists():
            raise RuntimeError(f'pytest wrote no report; see {log}')
        suite = next(ElementTree.parse(report).iter('testsuite'))
        bad = [
            case.get('name', '')
            for case in suite.iter('testcase')
            if case.find('failure') is not None or case.find('error') is not None
        ]
        if bad:
            raise RuntimeError(f'{len(bad)} tests failed: {", ".join(bad[:5])} ..; see {log}')
        return {name: [float(suite.get(name, 0))] for name in OUTCOMES} | {
            'seconds': [float(suite.get('time', 0))]
        }

    run.measure('tests', 'pytest', '', {'selected': selected}, metrics)


def workers(device: torch.device) -> int:
    r"""Returns the number of processes that test at a time: one for each core, but none without
    4 GiB of the device."""
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(os.cpu_count() or 1, memory // 2**32))


def visible(device: torch.device) -> dict[str, str]:
    r"""Returns the variable that makes :obj:`device` the first of a process."""
    return {} if device.index is None else {'CUDA_VISIBLE_DEVICES': str(device.index)}


def train(run: Run) -> None:
    r"""Trains LiteGT on CLUSTER and PATTERN for the time that is left. Checkpoints let the same
    command go on.

    Raises:
        OutOfTimeError: If the time of the run is over before the training.
        RuntimeError: If a training fails.
    """
    for dataset in ('CLUSTER', 'PATTERN'):
        arguments = [
            '--root',
            str(run.folder / 'data'),
            '--dataset',
            dataset,
            '--models',
            MODEL,
            '--preset',
            'full',
        ]
        arguments += ['--seeds', '0', '--device', str(run.device), '--output', str(run.output)]
        if run.rehearse:
            with (
                patch.object(sys, 'argv', ['sbm', *arguments]),
                patch.dict(PRESETS, full=TINY),
            ):
                sbm.main()
            continue
        if run.seconds_left() < 0:
            raise OutOfTimeError
        command = [sys.executable, '-m', 'benchmarks.sbm', *arguments]
        say(f'{MODEL} on {dataset}, {run.seconds_left() / 60:.0f} minutes left')
        try:
            done = subprocess.run(
                command, env=environment(), timeout=run.seconds_left(), check=False
            )
        except subprocess.TimeoutExpired as error:
            raise OutOfTimeError from error
        if done.returncode != 0:
            raise RuntimeError(f'the training on {dataset} failed')
