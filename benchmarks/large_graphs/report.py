r"""Formats results on large graphs for the leaderboards."""

import json
from pathlib import Path

from benchmarks.common.results import machine
from benchmarks.common.tables import spread


def leaderboard_row(path: Path, metric: str) -> str:
    r"""Formats the result of a file as a row of the leaderboard, with means and unbiased standard
    deviations."""
    record = json.loads(path.read_text())
    hardware = machine()['gpu'] or machine()['cpu']
    versions = ', '.join(
        f'{name} {record["versions"][name]}'
        for name in ('torch', 'torch-geometric', 'torch-geometric-lgt')
    )
    cells = [
        f'{record["model"]} (attention over {record["config"]["attention_over"]})',
        spread(record, metric),
        spread(record, f'valid_{metric}'),
        f'{record["parameters"]:,}',
        f'{len(record["seeds"])} seeds',
        f'{hardware}, {machine()["memory_gib"]} GiB',
        versions,
    ]
    return f'| {" | ".join(cells)} |'
