# N nodes, C channels.
r"""Measures layers beside their peers, in turn in one process."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common.files import say
from benchmarks.gpu.run import Run
from benchmarks.runtime.layers import CASES, check, make
from benchmarks.runtime.measure import peak_memory_mib, seconds
from benchmarks.runtime.public_cases import PUBLIC_CASES

NODES = (10_000, 100_000, 1_000_000, 10_000_000)
LARGEST = {
    'exact-softmax': 100_000,
    'jaccard-subtractor': 1_000_000,
    'edge-softmax': 1_000_000,
    'edge-probability': 1_000_000,
}
SETTINGS = {'channels': 64, 'num_features': 128, 'heads': 1}
DTYPES = {'float32': None, 'bfloat16': torch.bfloat16}
METHODS = {'ours': 'ours', 'formula': 'peer'}
ROUNDS, SLOW_SECONDS = 5, 5.0


def measure_layers(run: Run) -> None:
    names = [name for name in CASES if name not in PUBLIC_CASES or run.public is not None]
    sizes, rounds = ((200,), 2) if run.rehearse else (NODES, ROUNDS)
    for num_nodes, dtype, name in product(sizes, DTYPES, names):
        if num_nodes <= LARGEST.get(name, num_nodes):
            config = {**SETTINGS, 'num_nodes': num_nodes, 'dtype': dtype, 'rounds': rounds}
            run.measure(
                name,
                f'random-{num_nodes}',
                dtype,
                config,
                partial(layer_metrics, run, name, config),
            )


def layer_metrics(run: Run, name: str, config: dict[str, Any]) -> dict[str, list[float]]:
    r"""Returns seconds and memory of both methods. A method that does not fit into memory has none.

    With bfloat16 the weights are float32 and :func:`torch.autocast` is on. Compilation and tuning
    come before.
    """
    device = str(run.device)
    config = config | {'device': device, 'public': run.public}
    if config['dtype'] == 'float32' and not run.rehearse:
        check(name, config)
    functions = make(name, config)
    steps: dict[str, Callable[[], None]] = {}
    metrics: dict[str, list[float]] = {}
    for method, kind in METHODS.items():
        try:
            step, counted = training_step(functions[method], run, DTYPES[config['dtype']])
            metrics[f'{kind}_peak_memory_mib'] = (
                [peak_memory_mib(step, device)] if run.device.type == 'cuda' else [0.0]
            )
        except torch.OutOfMemoryError:
            say(f'{kind} of {name} does not fit into memory at {config["num_nodes"]} nodes')
            torch.cuda.empty_cache()
            continue
        steps[kind] = step
        if kind == 'ours':
            metrics |= counted
    for _ in range(config['rounds']):
        for kind, step in steps.items():
            times = metrics.setdefault(f'{kind}_seconds', [])
            if not times or times[0] < SLOW_SECONDS:
                times += seconds(step, 1, device)
    return metrics


def training_step(
    forward: Callable[[], Tensor], run: Run, dtype: torch.dtype | None
) -> tuple[Callable[[], None], dict[str, list[float]]]:
    r"""Returns a forward and backward pass that ran once, and its flops and fewest bytes.

    The forward pass reads the input ``[N, C]`` once and writes the output once. The backward pass
    moves the input, its gradient and the gradient of the output once each.
    """

    def output() -> Tensor:
        with torch.autocast(run.device.type, dtype, enabled=dtype is not None):
            return forward()

    grad = torch.randn_like(output())
    with FlopCounterMode(display=False) as counter:
        output().backward(grad)
    input_bytes = grad.size(0) * SETTINGS['channels'] * torch.float32.itemsize
    counted = {
        'flops': [float(counter.get_total_flops())],
        'fewest_bytes': [float(3 * input_bytes + 2 * grad.nbytes)],
    }
    return lambda: output().backward(grad), counted


def autotuned() -> list[dict[str, str]]:
    r"""Returns the blocks that Triton's tuner chose in this process, for each kernel and its
    sizes."""
    if not torch.cuda.is_available():
        return []
    from torch_geometric_lgt.functional._triton import blocks

    return [
        {'kernel': name, 'sizes': str(sizes), 'chosen': str(config)}
        for name, kernel in blocks.KERNELS.items()
        for sizes, config in getattr(kernel, 'cache', {}).items()
    ]
