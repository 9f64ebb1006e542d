r"""Compiles the Triton kernels for a GPU that need not be there, and shows what each config takes.

python -m benchmarks.runtime.kernels                    # all sizes, some two minutes
python -m benchmarks.runtime.kernels --sizes 64/64/2    # 64 channels of keys and values, rank 2

Registers that do not suffice are spilled to memory, in the innermost loop. The least time is no
measurement. It is the larger of two times of an H200-class card for one head with a million nodes
and 64 features: the bytes of inputs and results at 4.8 TB/s, and the products at 495 TFLOP/s, for
float32 three of TF32 each.
"""

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.common.arguments import script_parser
from benchmarks.common.scripts import run_script
from benchmarks.common.tables import write_table

SIZES = ['64/64/1', '64/64/2', '128/128/1', '128/128/2']
NUMBERS = ('n', 'span', 'H', 'M')
NODES, FEATURES = 1_000_000, 64
BANDWIDTH, FLOPS = 4.8e12, 495e12


def size(text: str) -> str:
    r"""Checks the channels of a key, those of a value and the rank of the mask."""
    if not re.fullmatch(r'(16|32|64|128)/(16|32|64|128)/[1-9]', text):
        raise argparse.ArgumentTypeError(
            f'{text} must be KEYS/VALUES/RANK, as 64/64/2, with powers of 2 from 16 to 128'
        )
    return text


def resources(kernel: Any, config: Any, keys: int, values: int, rank: int) -> dict[str, int]:
    r"""Compiles a kernel for compute capability 9.0 (H100, H200). Returns the registers of a
    thread, the bytes it spills and the bytes of shared memory of a block."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from torch_geometric_lgt.functional._engine.fused import Sizes
    from torch_geometric_lgt.functional.inputs import KernelInput

    x, mask = torch.empty(1, keys), torch.empty(1, rank) if rank > 1 else None
    inputs = KernelInput(x=x, heads=1, kind='softmax', mask=mask, projection=x)
    sizes = Sizes(inputs, num_graphs=1, nodes=1, channels=values)
    constants = sizes.constants | sizes.least | sizes.padded_rank | config.kwargs
    kinds = {
        name: 'constexpr' if name in constants else 'i32' if name in NUMBERS else '*fp32'
        for name in kernel.arg_names
    }
    aligned = {
        (i,): [['tt.divisibility', 16]]
        for i, (name, kind) in enumerate(kinds.items())
        if kind == '*fp32' or name in ('span', 'M')
    }
    used = {name: value for name, value in constants.items() if name in kinds}
    compiled = triton.compile(
        ASTSource(kernel, kinds, used, aligned),
        target=GPUTarget('cuda', 90, 32),
        options={
            'num_warps': config.num_warps,
            'num_stages': config.num_stages,
            'maxnreg': config.maxnreg,
        },
    )
    tool = Path(triton.__file__).parent / 'backends' / 'nvidia' / 'bin' / 'cuobjdump'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'kernel.cubin'
        path.write_bytes(compiled.asm['cubin'])
        command = [tool, '-res-usage', path]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.findall(rf'{name}:(\d+)', text)[-1]) for name in ('REG', 'STACK'))
    return {'registers': registers, 'spilled': stack, 'shared': compiled.metadata.shared}


def least_seconds(kernel: str, keys: int, values: int, rank: int) -> float:
    r"""Returns the least time of a kernel on an H200-class card, by bytes and by products."""
    mask = rank if rank > 1 else 0
    products, numbers = {
        'build': (rank * (keys + values), keys + values + mask),
        'key_grads': (3 * keys + 2 * rank * values, 2 * (keys + values + mask)),
        'read': (keys + rank * values, keys + values + mask + 1),
        'query_grads': (3 * keys + 2 * rank * values, 2 * keys + values + 2 * mask + 3),
        'sums_grads': (rank * (keys + values), keys + values + mask + 3),
    }[kernel]
    return max(4 * NODES * numbers / BANDWIDTH, 3 * 2 * NODES * FEATURES * products / FLOPS)


def rows(sizes: list[str]) -> Iterator[dict[str, str]]:
    r"""Compiles every kernel with every config that is tried for the sizes."""
    from torch_geometric_lgt.functional._triton.blocks import CONFIGS, KERNELS, launchable

    cases = [
        (name, config, widths)
        for widths in (tuple(map(int, text.split('/'))) for text in sizes)
        for name in KERNELS
        for config in launchable(CONFIGS, {}, CP=widths[0], DP=widths[1], R=widths[2])
    ]
    for name, config, widths in tqdm(cases):
        taken = resources(KERNELS[name].fn, config, *widths)
        yield {
            'kernel': name,
            'channels of keys / values': f'{widths[0]} / {widths[1]}',
            'rank': str(widths[2]),
            'nodes x features': f'{config.kwargs["BN"]} x {config.kwargs["BM"]}',
            'channels at a time': str(config.kwargs['BK']),
            'warps': str(config.num_warps),
            'stages': str(config.num_stages),
            'registers': str(taken['registers']),
            'spilled (bytes)': str(taken['spilled']),
            'shared (KiB)': f'{taken["shared"] / 1024:.0f}',
            'least time (us)': f'{1e6 * least_seconds(name, *widths):.0f}',
        }


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['model'].add_argument(
        '--sizes',
        nargs='+',
        type=size,
        default=SIZES,
        metavar='KEYS/VALUES/RANK',
        help='channels of a key and of a value, and the rank of the mask',
    )
    args = parser.parse_args()
    from torch_geometric_lgt.functional._triton import blocks

    if blocks.INTERPRETED:
        parser.error('kernels are not compiled with TRITON_INTERPRET=1; unset it')
    print(write_table(args.output / 'runtime' / 'kernels', [*rows(args.sizes)]))


if __name__ == '__main__':
    run_script(main)
