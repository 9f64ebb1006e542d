r"""Writes the tables and pictures of the results of one GPU."""

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.figures import can_draw, save_figure, subplots
from benchmarks.common.results import read_result
from benchmarks.common.tables import write_table
from benchmarks.gpu.device import fewest_seconds
from benchmarks.gpu.layers import DTYPES
from benchmarks.runtime.layers import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BESIDE = {'summary.json', 'autotuning.json'}
Records = list[dict[str, Any]]


def median(record: dict[str, Any], metric: str) -> float | None:
    values = record['metrics'].get(metric, {}).get('values')
    return statistics.median(values) if values else None


def write_report(folder: Path) -> str:
    r"""Writes all tables and pictures, and returns the tables as text."""
    records = [
        read_result(path) for path in sorted(folder.glob('*.json')) if path.name not in BESIDE
    ]
    bounds = next((record for record in records if record['model'] == 'device'), None)
    layers = [layer for layer in records if 'num_nodes' in layer['config']]
    layers.sort(
        key=lambda record: (record['model'], record['variant'], record['config']['num_nodes'])
    )
    tables = {
        'device': [device_row(bounds)] if bounds else [],
        'layers': [layer_row(record, bounds) for record in layers],
        'models': [row for record in records for row in model_rows(record)],
        'autotuning': read_list(folder / 'autotuning.json'),
        'summary': read_list(folder / 'summary.json'),
    }
    text = '\n'.join(write_table(folder / name, rows) for name, rows in tables.items() if rows)
    if layers and bounds and can_draw():
        save_figure(times_figure(layers, bounds), folder / 'times.png')
        save_figure(shares_figure(layers, bounds), folder / 'shares.png')
    return text


def read_list(path: Path) -> list[dict[str, str]]:
    return json.loads(path.read_text(encoding='utf-8')) if path.exists() else []


def device_row(record: dict[str, Any]) -> dict[str, str]:
    row = {
        'device': record['config']['device'],
        'copy (GB/s)': f'{(median(record, "bytes_per_second") or 0) / 1e9:.0f}',
    }
    for name in ('float32', 'tf32', 'bfloat16'):
        row[f'{name} (Tflop/s)'] = f'{(median(record, f"{name}_flops_per_second") or 0) / 1e12:.1f}'
    return row


def share(record: dict[str, Any], bounds: dict[str, Any] | None) -> float | None:
    r"""Returns the shortest time that the device's bounds allow, over the time that the layer
    takes."""
    seconds, flops, num_bytes = (
        median(record, name) for name in ('ours_seconds', 'flops', 'fewest_bytes')
    )
    if bounds is None or seconds is None or flops is None or num_bytes is None:
        return None
    return fewest_seconds(bounds, flops, num_bytes, record['config']['dtype']) / seconds


def layer_row(record: dict[str, Any], bounds: dict[str, Any] | None) -> dict[str, str]:
    ours, peer = (median(record, f'{method}_seconds') for method in ('ours', 'peer'))
    memory, peer_memory = (
        median(record, f'{method}_peak_memory_mib') for method in ('ours', 'peer')
    )
    of_bound = share(record, bounds)
    return {
        'layer': record['model'],
        'peer': peer_of(record['model']),
        'dtype': record['config']['dtype'],
        'nodes': f'{record["config"]["num_nodes"]:,}',
        'ours (ms)': 'does not fit' if ours is None else f'{1e3 * ours:.3g}',
        'peer (ms)': 'does not fit' if peer is None else f'{1e3 * peer:.3g}',
        'ours / peer': '' if ours is None or peer is None else f'{ours / peer:.2f}',
        'ours (MiB)': '' if memory is None else f'{memory:.0f}',
        'peer (MiB)': '' if peer_memory is None else f'{peer_memory:.0f}',
        'share of the bound': '' if of_bound is None else f'{100 * of_bound:.0f} %',
    }


def model_rows(record: dict[str, Any]) -> list[dict[str, str]]:
    config, what = record['config'], f'{record["model"]} {record["dataset"]}'
    if record['model'] == 'ogb-shape':
        seconds = {
            'epoch': median(record, 'epoch_seconds'),
            'inference': median(record, 'inference_seconds'),
        }
    elif record['model'] == 'epoch':
        seconds, what = {'epoch': median(record, 'seconds')}, config['interactions']
    elif record['model'] == 'inference':
        seconds = {
            f'inference, {kind} memory': median(record, f'{kind}_seconds')
            for kind in ('pinned', 'pageable')
        }
    else:
        return []
    memory = median(record, 'gib')
    gib = '' if memory is None else f'{memory:.1f}'
    text = {
        step: 'does not fit' if value is None else f'{value:.3g}' for step, value in seconds.items()
    }
    return [
        {'of': what, 'model': record['variant'], 'step': step, 'seconds': value, 'GiB': gib}
        for step, value in text.items()
    ]


def layer_of(name: str) -> str:
    r"""Returns the layer of a case in words."""
    return TITLES[name][0] if name in TITLES else name


def peer_of(name: str) -> str:
    r"""Returns the peer of a case in words; nothing for a case without."""
    return TITLES[name][1] if name in TITLES else ''


def times_figure(layers: Records, bounds: dict[str, Any]) -> 'Figure':
    r"""Draws seconds against the number of nodes, with a panel for each layer: ours, the peer,
    and the bound of the device."""
    names = list(dict.fromkeys(record['model'] for record in layers))
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure, panels = subplots(
        rows, columns, figsize=(2.3 * columns, 2.2 * rows + 0.5), squeeze=False, sharex=True
    )
    for panel in panels.flat[len(names) :]:
        panel.set_axis_off()
    for name, panel in zip(names, panels.flat, strict=False):
        chosen = [
            record
            for record in layers
            if record['model'] == name and record['config']['dtype'] == 'float32'
        ]
        for metric, label, style in (
            ('ours_seconds', 'ours', 'o-'),
            ('peer_seconds', 'peer', 's--'),
        ):
            line = {record['config']['num_nodes']: median(record, metric) for record in chosen}
            line = {nodes: value for nodes, value in line.items() if value is not None}
            panel.loglog(list(line), list(line.values()), style, label=label, markersize=4)
        bound = {
            r['config']['num_nodes']: (share(r, bounds) or 0) * (median(r, 'ours_seconds') or 0)
            for r in chosen
        }
        bound = {nodes: value for nodes, value in bound.items() if value > 0}
        panel.loglog(list(bound), list(bound.values()), 'k.:', label='bound')
        panel.set_title(f'{layer_of(name)}\nbeside {peer_of(name) or "its peer"}', fontsize=8)
        panel.tick_params(which='both', labelsize=6)
    for panel in panels.flat[: len(names)][-columns:]:
        panel.tick_params(labelbottom=True)
    panels[0, 0].legend(fontsize=7)
    figure.supxlabel('nodes', fontsize=9)
    figure.supylabel('seconds, forward and backward, float32', fontsize=9)
    return figure


def shares_figure(layers: Records, bounds: dict[str, Any]) -> 'Figure':
    r"""Draws the share of the bound at the largest size of each layer, for the dtypes that were
    measured at this size."""
    sizes = {
        name: max(record['config']['num_nodes'] for record in layers if record['model'] == name)
        for name in dict.fromkeys(record['model'] for record in layers)
    }
    largest = {
        (record['model'], record['config']['dtype']): share(record, bounds) or 0.0
        for record in layers
        if record['config']['num_nodes'] == sizes[record['model']]
    }
    names = [f'{layer_of(name)}, {num_nodes:,} nodes' for name, num_nodes in sizes.items()]
    figure, panel = subplots(figsize=(7, 0.3 * len(names) + 1.2))
    for shift, dtype in enumerate(DTYPES):
        places = [place + 0.4 * shift - 0.2 for place in range(len(names))]
        panel.barh(
            places, [100 * largest.get((name, dtype), 0.0) for name in sizes], 0.38, label=dtype
        )
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel('share of the bound at the largest size (%)')
    panel.legend(fontsize=8)
    return figure
