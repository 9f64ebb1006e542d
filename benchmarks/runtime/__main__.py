r"""Compares times with those of other results, by default the published ones.

python -m benchmarks.runtime.layers --cases sgformer     # measure first
python -m benchmarks.runtime --against                   # then print what got slower
python -m benchmarks.runtime --against DIR               # than the results in DIR

Medians are compared, and only of the package's own methods. Results of other settings are named and
not compared. A second number follows if a peer was measured beside: by how much the ratio to
this peer grew, which depends less on what else the machine did.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common.arguments import output_folder, script_parser
from benchmarks.common.results import PUBLISHED, read_result, say
from benchmarks.common.scripts import run_script

SLOWER = 1.15
NO_TIME = re.compile('memory|gib|bytes|quality|breaks|recompilations|numbers|multiplications')
REPEATS = 'rounds', 'repeats', 'limit'
PEERS = 'formula', 'pyg', 'arpack', 'networkit', 'recbole'


class Change(NamedTuple):
    r"""Stores a time that grew: the result and its metric, the seconds before and after, and the
    growth of the ratio to a peer, :obj:`None` without one."""

    name: str
    before: float
    after: float
    beside_peer: float | None

    def __str__(self) -> str:
        beside = '' if self.beside_peer is None else f', {self.beside_peer:.2f} beside the peer'
        times = f'{time(self.before)}, now {time(self.after)}'
        return f'{self.name}: {times} ({self.after / self.before:.2f}{beside})'


def time(seconds: float) -> str:
    return f'{seconds:.3g} s' if seconds >= 1 else f'{1e3 * seconds:.3g} ms'


def own_times(record: dict[str, Any]) -> dict[str, float]:
    r"""Returns the median seconds of the package's own methods by metric. These have ``ours`` in
    their name, if any has."""
    names = [name for name in record['metrics'] if not NO_TIME.search(name)]
    ours = [name for name in names if 'ours' in re.split('[_/]', name)]
    return {name: record['metrics'][name]['median'] for name in ours or names}


def peer_time(record: dict[str, Any], name: str) -> float | None:
    r"""Returns the median seconds of the first peer that was measured like our metric
    :obj:`name`, or :obj:`None`."""
    for peer in PEERS:
        other = re.sub(r'(?<![^/_])ours(?![^/_])', peer, name)
        if other != name and other in record['metrics']:
            return record['metrics'][other]['median']
    return None


def slower(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    r"""Yields the times of a result that exceed those of an earlier one by more than
    :obj:`SLOWER`."""
    title = '-'.join(filter(None, (after['model'], after['dataset'], after['variant'])))
    times, earlier = own_times(after), own_times(before)
    for name in sorted(times.keys() & earlier.keys()):
        if times[name] > SLOWER * earlier[name]:
            peers = peer_time(before, name), peer_time(after, name)
            ratio = times[name] / earlier[name]
            beside = None if None in peers else ratio * peers[0] / peers[1]
            yield Change(f'{title} {name}', earlier[name], times[name], beside)


def settings(record: dict[str, Any]) -> list[Any]:
    r"""Returns the settings that times depend on: all but the numbers of measurements."""
    config = {name: value for name, value in record['config'].items() if name not in REPEATS}
    return [record['protocol'], config]


def compare(folder: Path, against: Path) -> list[Change]:
    r"""Compares the results in :obj:`folder` with those of the same name in :obj:`against`. The
    largest growth comes first."""
    changes: list[Change] = []
    paths = sorted(folder.glob('*.json'))
    if not paths:
        say(f'there are no results in {folder}')
    for path in paths:
        if not (against / path.name).exists():
            say(f'{path.name} is not in {against}')
            continue
        before, after = read_result(against / path.name), read_result(path)
        if settings(before) != settings(after):
            say(f'{path.name} has other settings than in {against}')
            continue
        if before.get('machine') != after.get('machine'):
            say(f'{path.name} was measured on another machine than in {against}')
        changes += slower(before, after)
    return sorted(changes, key=lambda change: change.before / change.after)


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['measurement'].add_argument(
        '--against',
        nargs='?',
        type=output_folder,
        const=PUBLISHED,
        required=True,
        metavar='DIR',
        help='the folder of earlier results (default: the published ones)',
    )
    args = parser.parse_args()
    for change in compare(args.output / 'runtime', args.against / 'runtime'):
        print(change)


if __name__ == '__main__':
    run_script(main)
