r"""Measures the bounds of the device: bytes copied and flops of matrix products per second."""

import statistics

import torch

from benchmarks.gpu.run import Run
from benchmarks.runtime.measure import seconds

PRECISIONS = {
    'float32': (torch.float32, 'highest'),
    'tf32': (torch.float32, 'high'),
    'bfloat16': (torch.bfloat16, 'highest'),
}
REPEATS = 10


def measure_bounds(run: Run) -> None:
    elements, width = run.size(1 << 28, 1 << 16), run.size(8192, 64)
    config = {'copied_elements': elements, 'matrix_width': width}
    run.measure('device', 'bounds', '', config, lambda: bounds(run, elements, width))


def bounds(run: Run, elements: int, width: int) -> dict[str, list[float]]:
    r"""Measures the bytes read and written per second, and the flops per second of a square
    product in each precision."""
    source, target = (torch.zeros(elements, device=run.device) for _ in range(2))
    target.copy_(source)
    times = seconds(lambda: target.copy_(source), REPEATS, str(run.device))
    metrics = {'bytes_per_second': [2 * source.nbytes / time for time in times]}
    before = torch.get_float32_matmul_precision()
    try:
        for name, (dtype, precision) in PRECISIONS.items():
            torch.set_float32_matmul_precision(precision)
            factor = torch.ones(width, width, dtype=dtype, device=run.device)
            torch.mm(factor, factor)
            metrics[f'{name}_flops_per_second'] = [
                2 * width**3 / time
                for time in seconds(
                    lambda factor=factor: torch.mm(factor, factor), REPEATS, str(run.device)
                )
            ]
    finally:
        torch.set_float32_matmul_precision(before)
    return metrics


def fewest_seconds(record: dict, flops: float, num_bytes: float, dtype: str) -> float:
    r"""Returns the time below which no program can move the bytes and compute the flops on the
    measured device."""
    metrics = record['metrics']
    bandwidth, peak = (
        statistics.median(metrics[name]['values'])
        for name in ('bytes_per_second', f'{dtype}_flops_per_second')
    )
    return max(num_bytes / bandwidth, flops / peak)
