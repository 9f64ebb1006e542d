import json
import math
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from benchmarks.common.command import ROOT, command
from benchmarks.common.files import DataError, say, write_file, writing
from torch_geometric_lgt import __version__
from torch_geometric_lgt._io import open_regular

PUBLISHED = Path(__file__).resolve().parents[1] / 'results'
OUTPUT = Path('benchmark-results')
SAME = ('protocol', 'config', 'data')
FIELDS = {
    'dataset': str,
    'model': str,
    'variant': str,
    'protocol': str,
    'seeds': list,
    'metrics': dict,
    'config': dict,
    'command': str,
}


def summary(values: Sequence[float]) -> dict[str, Any]:
    r"""Summarises values by mean, sample standard deviation, median and minimum."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        'mean': statistics.fmean(values),
        'std': spread,
        'median': statistics.median(values),
        'min': min(values),
        'values': list(values),
    }


def read_results(folder: Path, pattern: str = '*.json') -> list[dict[str, Any]]:
    r"""Reads the results in a folder, which need not exist. Call this before a run, as a damaged
    result would end the run after the training.

    Raises:
        DataError: If the folder is a file, or a file in it is no result.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f'{folder} must be a folder; remove the file or choose another --output')
    return [read_result(path) for path in sorted(folder.glob(pattern))]


def read_result(path: Path) -> dict[str, Any]:
    r"""Reads one result that :meth:`write_result` wrote.

    Raises:
        DataError: If the file is no result.
    """
    try:
        with open_regular(path) as file:
            record = json.loads(file.read())
    except (OSError, ValueError) as error:
        raise DataError(f'{path} is no result ({error}); remove it') from error
    wrong = [
        name
        for name, kind in FIELDS.items()
        if not isinstance(record, dict) or not isinstance(record.get(name), kind)
    ]
    if wrong:
        raise DataError(f'{path} is no result (it lacks {", ".join(wrong)}); remove it')
    return record


def write_result(
    task: str,
    dataset: str,
    model: str,
    *,
    variant: str,
    protocol: str,
    seeds: Sequence[int],
    metrics: Mapping[str, Sequence[float]],
    config: Mapping[str, Any],
    folder: Path,
    data: str | None = None,
    parameters: int | None = None,
    epoch_seconds: float | None = None,
    peak_memory_mib: float | None = None,
    training_commits: Sequence[str] = (),
    protocol_in_name: bool = False,
) -> Path:
    r"""Writes one finished run as JSON, with all that is needed to repeat it, and returns the
    path. The name of the file has the protocol if :obj:`protocol_in_name` is set. :obj:`data` is
    the fingerprint of the training data; with it :obj:`metrics` has a value for each seed, and
    the seeds of an earlier result of the same run stay in the result. :obj:`training_commits` are
    the commits of the trainings, which may be older than the commit that measures them.

    Raises:
        DataError: If a metric is not finite, or the result cannot be written.
    """
    wrong = {
        name: list(values)
        for name, values in metrics.items()
        if not all(map(math.isfinite, values))
    }
    if wrong:
        runs = f' of the seeds {list(seeds)}' if seeds else ''
        raise DataError(
            f'no result is written: metrics{runs} are not finite ({wrong}), as after a training '
            'that diverged; try a smaller learning rate, or other seeds'
        )
    record = {
        'task': task,
        'dataset': dataset,
        'model': model,
        'variant': variant,
        'protocol': protocol,
        'seeds': list(seeds),
        'metrics': {name: summary(values) for name, values in metrics.items()},
        'parameters': parameters,
        'epoch_seconds': epoch_seconds,
        'peak_memory_mib': peak_memory_mib,
        'config': json.loads(json.dumps(config)),
        'data': data,
        'command': command(),
        'commit': commit(),
        'training_commits': list(training_commits) or [commit()],
        'versions': {**versions(), 'python': platform.python_version()},
        'machine': machine(),
        'date': datetime.now(timezone.utc).isoformat(timespec='seconds'),
    }
    parts = (model, dataset, protocol if protocol_in_name else '', variant)
    path = folder / task / ('-'.join(filter(None, parts)) + '.json')
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may add its seeds to the same result.
        with FileLock(path.parent / '.lock'):
            if path.exists():
                record = accumulated(record, read_result(path), path)
            write_file(path, (json.dumps(record, indent=2) + '\n').encode(), 'results')
    return path


@cache
def versions() -> dict[str, str]:
    r"""Returns the versions of the packages that run. This one need not be installed."""
    others = {name: version(name) for name in ('torch', 'torch-geometric', 'numpy', 'scipy')}
    return {**others, 'torch-geometric-lgt': __version__}


def accumulated(record: dict[str, Any], earlier: dict[str, Any], path: Path) -> dict[str, Any]:
    r"""Adds the seeds that only the earlier result has, which a measurement, without data, leaves
    out. An earlier result of other settings, data or code is replaced with a message."""
    has_seeds = record['data'] is not None and record['seeds']
    rest = sorted(set(earlier['seeds']) - set(record['seeds'])) if has_seeds else []
    differing = [name for name in SAME if earlier.get(name) != record[name]]
    code = 'torch-geometric-lgt'
    differing += (
        ['version of the package'] if earlier['versions'][code] != record['versions'][code] else []
    )
    differing += ['metrics'] if earlier['metrics'].keys() != record['metrics'].keys() else []
    if differing:
        gone = f'; its seeds {rest} are gone' if rest else ''
        say(f'{path}: replaces a result that differs in {", ".join(differing)}{gone}')
    if differing or not rest:
        return record
    metrics = {}
    for name, new in record['metrics'].items():
        values = dict(zip(earlier['seeds'], earlier['metrics'][name]['values'], strict=True))
        values |= dict(zip(record['seeds'], new['values'], strict=True))
        metrics[name] = summary([values[seed] for seed in sorted(values)])
    commands = dict.fromkeys([*earlier['command'].split(' && '), record['command']])
    seeds = sorted({*rest, *record['seeds']})
    peaks = [part['peak_memory_mib'] for part in (earlier, record)]
    commits = dict.fromkeys(
        [*earlier.get('training_commits', [earlier['commit']]), *record['training_commits']]
    )
    say(f'{path}: now over the seeds {seeds}, of which {rest} were there')
    return record | {
        'seeds': seeds,
        'metrics': metrics,
        'peak_memory_mib': max((peak for peak in peaks if peak is not None), default=None),
        'command': ' && '.join(commands),
        'training_commits': list(commits),
    }


@cache
def commit() -> str:
    r"""Returns the commit of the working tree when this process first asked, with ``+`` if the
    tree was changed since the commit."""
    git = ['git', '-C', str(ROOT)]
    try:
        head = subprocess.run([*git, 'rev-parse', 'HEAD'], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        return 'unknown'
    changed = subprocess.run(
        [*git, 'status', '--porcelain', '--', 'torch_geometric_lgt', 'benchmarks/*.py'],
        capture_output=True,
        check=True,
    )
    return head.stdout.decode().strip() + ('+' if changed.stdout else '')


def machine() -> dict[str, Any]:
    names = [
        line.split(':', 1)[1].strip()
        for line in _lines('/proc/cpuinfo')
        if line.startswith('model name')
    ]
    memory = [
        int(line.split()[1]) / 2**20
        for line in _lines('/proc/meminfo')
        if line.startswith('MemTotal')
    ]
    gpu = torch.cuda.get_device_properties() if torch.cuda.is_available() else None
    return {
        'cpu': names[0] if names else platform.processor(),
        'threads': torch.get_num_threads(),
        'gpu': gpu.name if gpu else None,
        'gpu_memory_gib': round(gpu.total_memory / 2**30, 1) if gpu else None,
        'memory_gib': round(memory[0], 1) if memory else None,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding='utf-8').splitlines() if Path(path).exists() else []
