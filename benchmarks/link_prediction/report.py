r"""Writes the table of the link prediction benchmark."""

from pathlib import Path
from typing import Any

from benchmarks.common.results import read_results
from benchmarks.common.tables import mean, model_and_variant, spread, write_table


def report(source: Path, folder: Path) -> str:
    r"""Writes the table of the results in :obj:`source` into :obj:`folder`."""
    records = read_results(source)
    records.sort(key=lambda record: (record['dataset'], -mean(record, 'ndcg@20')))
    return write_table(folder / 'link_prediction', [row(record) for record in records])


def row(record: dict[str, Any]) -> dict[str, str]:
    r"""Formats a result; a heuristic has neither validation score nor time."""
    metrics = record['metrics']
    is_trained = 'epoch_ms' in metrics
    return {
        'data set': record['dataset'],
        'model': model_and_variant(record),
        'NDCG@20': spread(record, 'ndcg@20'),
        'Recall@20': spread(record, 'recall@20'),
        'validation NDCG@20': spread(record, 'valid_ndcg@20') if is_trained else '',
        'ms / epoch': f'{metrics["epoch_ms"]["median"]:.1f}' if is_trained else '',
        'MiB': f'{record["peak_memory_mib"]:.0f}',
        'seeds': str(len(record['seeds'])),
    }
