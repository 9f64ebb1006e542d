r"""Writes the tables of ``benchmarks.sbm`` and ``benchmarks.tsp``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.figures import WIDTH, can_draw, draw_bars, save_figure, subplots
from benchmarks.common.results import read_results
from benchmarks.common.tables import mean, spread, write_table
from benchmarks.many_graphs.models import CONVOLUTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Table 4 of "LiteGT: Efficient and Lightweight Graph Transformers"; Table 5 for networks with two
# equal branches. On TSP the published networks have features of edges, ours with the full preset.
# The authors' convolutions have other widths and outputs than those here.
PUBLISHED: dict[str, dict[str, float]] = {
    'pattern': {
        'gcn': 0.71892, 'sage': 0.50492, 'monet': 0.85582,
        'gat': 0.78271, 'gin': 0.85387, 'gatedgcn': 0.86508,
        'gt': 0.84808,
        'litegt-jaccard': 0.85752, 'litegt-jaccard-sampling': 0.84977,
        'litegt-jaccard-sampling-reduced': 0.84809,
        'litegt-subtractor': 0.85648, 'litegt-subtractor-sampling': 0.84504,
        'litegt-subtractor-sampling-reduced': 0.84323,
        'jaccard-alone': 0.79614, 'subtractor-alone': 0.74277, 'mean-alone': 0.54362,
    },
    'cluster': {
        'gcn': 0.68498, 'sage': 0.63844, 'monet': 0.66407,
        'gat': 0.70587, 'gin': 0.64716, 'gatedgcn': 0.76082,
        'gt': 0.73169,
        'litegt-jaccard': 0.74199, 'litegt-jaccard-sampling': 0.75344,
        'litegt-jaccard-sampling-reduced': 0.75387,
        'litegt-subtractor': 0.73830, 'litegt-subtractor-sampling': 0.74276,
        'litegt-subtractor-sampling-reduced': 0.73748,
        'jaccard-alone': 0.74403, 'subtractor-alone': 0.74277, 'mean-alone': 0.74336,
    },
    'tsp': {
        'gcn': 0.630, 'sage': 0.665, 'monet': 0.641,
        'gat': 0.671, 'gin': 0.656, 'gatedgcn': 0.838,
        'gt': 0.830,
        'litegt-jaccard': 0.842, 'litegt-jaccard-sampling': 0.758,
        'litegt-jaccard-sampling-reduced': 0.739,
        'litegt-subtractor': 0.846, 'litegt-subtractor-sampling': 0.842,
        'litegt-subtractor-sampling-reduced': 0.828,
        'jaccard-alone': 0.739, 'subtractor-alone': 0.734, 'mean-alone': 0.798,
    },
}  # fmt: skip


# Table 6 of the same paper: accuracy by depth, for the protocols of ``--layers``. LiteGT has the
# Jaccard kernel and sampling there.
PUBLISHED_DEPTHS: dict[tuple[str, str], dict[str, float]] = {
    ('cluster', 'gt'): {
        '8-layers': 0.71394, '10-layers': 0.73169, '14-layers': 0.23219, '16-layers': 0.26205,
    },
    ('cluster', 'litegt-jaccard-sampling'): {
        '8-layers': 0.74283, '10-layers': 0.74853, '14-layers': 0.75915, '16-layers': 0.75137,
    },
}  # fmt: skip


# Networks in words, for the pictures; the others are kernels of LiteGT.
TITLES = {
    'graphtransformer': 'GraphTransformer',
    'gt': 'GT (Dwivedi and Bresson)',
    'gcn': 'GCN',
    'gin': 'GIN',
    'gat': 'GAT',
    'sage': 'GraphSAGE',
    'monet': 'MoNet',
    'gatedgcn': 'GatedGCN',
}


def title(network: str) -> str:
    kernel = network.removeprefix('litegt-').replace('-alone', ' alone').replace('-', ', ')
    return TITLES.get(network, f'LiteGT: {kernel}')


def report(source: Path, folder: Path, metric: str) -> str:
    r"""Writes one table of all results in :obj:`source` and returns the table."""
    records = read_results(source)
    records.sort(
        key=lambda record: (record['dataset'], record['protocol'], -mean(record, f'valid_{metric}'))
    )
    rows = [row(record, metric) for record in records]
    if not rows:
        return ''
    picture = scores_figure(records, metric) if can_draw() else None
    if picture is not None:
        save_figure(picture, folder / 'scores.png')
    return write_table(folder / folder.name, rows)


def scores_figure(records: list[dict[str, Any]], metric: str) -> 'Figure | None':
    r"""Draws the networks of each data set with the small preset, best first. A data set has a
    panel if it has results of at least two networks."""
    chosen: dict[str, dict[str, float]] = {}
    for record in records:
        if record['protocol'] == 'small':
            scores = chosen.setdefault(record['dataset'], {})
            scores[record['model']] = 100 * mean(record, metric)
    chosen = {dataset: scores for dataset, scores in chosen.items() if len(scores) > 1}
    if not chosen:
        return None
    longest = max(len(scores) for scores in chosen.values())
    figure, panels = subplots(1, len(chosen), figsize=(WIDTH, 0.9 + 0.26 * longest), squeeze=False)
    convolutions = {title(name) for name in CONVOLUTIONS}
    for axes, (dataset, scores) in zip(panels[0], chosen.items(), strict=True):
        names = sorted(scores, key=lambda name: scores[name], reverse=True)
        values = [scores[name] for name in names]
        titles = [title(name) for name in names]
        draw_bars(axes, titles, values, marked=lambda name: name not in convolutions)
        axes.set_xlabel(f'test {metric} (%)')
        axes.set_title(dataset.upper(), fontsize=9)
    return figure


def row(record: dict[str, Any], metric: str) -> dict[str, str]:
    r"""Formats the metric in per cent, with the standard deviation over the seeds, beside the
    published value for the full number of graphs. With another number of layers the published
    value is that of this depth, if there is one."""
    published = PUBLISHED[record['dataset']].get(record['model'])
    depths = PUBLISHED_DEPTHS.get((record['dataset'], record['model']), {})
    published = depths.get(record['protocol'], published)
    return {
        'data set': record['dataset'],
        'protocol': record['protocol'],
        'model': record['model'],
        f'test {metric}': spread(record, metric, 100, 2),
        'published': '' if published is None else f'{100 * published:.2f}',
        f'validation {metric}': spread(record, f'valid_{metric}', 100, 2),
        'parameters': f'{record["parameters"]:,}',
        's / epoch': f'{record["epoch_seconds"]:.1f}',
        'MiB': f'{record["peak_memory_mib"]:.0f}',
        'seeds': str(len(record['seeds'])),
    }
