"""Compiles the kernels for a GPU that need not be there, in a process whose Triton does not
interpret. Of the package, the process imports the kernels only."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

PACKAGE = 'torch_geometric_lgt'
ROOMS = ['functional', '_engine', 'triton']
FOLDER = Path(find_spec(PACKAGE).origin).parent
for depth in range(len(ROOMS) + 1):  # packages without their imports
    package = ModuleType('.'.join([PACKAGE, *ROOMS[:depth]]))
    package.__path__ = [str(FOLDER.joinpath(*ROOMS[:depth]))]
    sys.modules[package.__name__] = package
keys, queries, blocks = (
    import_module('.'.join([PACKAGE, *ROOMS, name])) for name in ('keys', 'queries', 'blocks')
)

KERNELS = [keys.build, keys.key_grads, queries.read, queries.query_grads, queries.sums_grads]
NUMBERS = {'n', 'span', 'H', 'M'}
CONSTANTS = {
    'C': 16,
    'D': 12,
    'CP': 16,
    'DP': 16,
    'BN': 32,
    'BM': 32,
    'LEAST': -8.5e37,
    'LOG_TINY': -87.3,
    'PRECISION': 'tf32x3',
}
VARIANTS = [{'R': 2, 'RP': 2, 'MASKED': True}, {'R': 1, 'RP': 1, 'MASKED': False}]

for kernel in KERNELS:
    for variant in VARIANTS:
        constants = CONSTANTS | variant
        kinds = {
            name: 'constexpr' if name in constants else 'i32' if name in NUMBERS else '*fp32'
            for name in kernel.arg_names
        }
        source = ASTSource(
            kernel, kinds, {name: value for name, value in constants.items() if name in kinds}
        )
        compiled, name = (
            triton.compile(source, target=GPUTarget('cuda', 90, 32)),
            kernel.fn.__name__,
        )
        least = 4 * blocks.SIZES[name](*(constants[size] for size in ('BN', 'BM', 'CP', 'DP', 'R')))
        print(name, 'cubin' in compiled.asm, least <= compiled.metadata.shared)
