r"""Formats results on large graphs for the leaderboards."""

import json
from pathlib import Path

from benchmarks.common.tables import spread


def leaderboard_row(path: Path, metric: str) -> str:
    r"""Formats the result of a file as a row of the leaderboard, with means and unbiased standard
    deviations, and the machine with the memory of the GPU. A variant is named as such, and so is
    any other protocol than that of the data set, whose figures do not belong on the leaderboard."""
    record = json.loads(path.read_text(encoding='utf-8'))
    protocol = f', protocol {record["protocol"]}' if record['protocol'] != 'published' else ''
    variant = f', variant {record["variant"]}' if record['variant'] else ''
    domain = record['config']['attention_over']
    machine = record['machine']
    gpu = f'{machine["gpu"]} ({machine["gpu_memory_gib"]} GiB), ' if machine['gpu'] else ''
    versions = ', '.join(
        f'{name} {record["versions"][name]}'
        for name in ('torch', 'torch-geometric', 'torch-geometric-lgt')
    )
    cells = [
        f'{record["model"]}{protocol}{variant} (attention over {domain})',
        spread(record, metric),
        spread(record, f'valid_{metric}'),
        f'{record["parameters"]:,}',
        f'{len(record["seeds"])} seeds',
        f'{gpu}{machine["cpu"]} ({machine["memory_gib"]} GiB)',
        versions,
    ]
    return f'| {" | ".join(cells)} |'
