"""What was measured on a GPU, from the tables and pictures of ``make gpu``."""

import csv
import json
from pathlib import Path

TITLE = 'On a GPU'
HOW = """``make gpu`` checks and measures everything that needs a GPU, on one CUDA device and
without a network, in at most 40 minutes. The same command goes on where an earlier one stopped.
It writes into ``benchmark-results/gpu``; ``python -m benchmarks.gpu --output FOLDER`` chooses
another folder, and ``--help`` lists the steps."""
VERDICT = """Up to some 100,000 nodes, the time of a step is that of launching its GPU kernels.
Attention between all nodes takes 0.8 to 2.0 times as long as its formula or PyG's layer there, and
layers over edges 0.4 to 3.4 times. A batch with half of its nodes in one graph and the others in
graphs of ten takes 3 to 5 times as long as one graph of all nodes, 8 times at a million nodes. At a
million nodes, in single precision (LiteGT's layer has a softmax at its sampled nodes only, its peer
at all nodes):"""
NODES = '1,000,000'
RUN = '1891abf'  # the commit of the results that the words below describe
MISSING = """This run ended at 10 million nodes. The table of models is of an earlier version, and
MGFormer, the inference from host memory and the trainings are not measured. Of 1048 tests 1047
passed on this device; the other had a fault of its own, and has been mended.

Since this run, the graphs of a batch are sorted by size in a tenth of the time, which was a large
part of the time of the batch above. The kernels of attention between all nodes have other blocks,
which fit the registers; their times are not measured yet."""
NONE = """No result of a GPU is published yet: the Triton kernels are compared with the dense
definitions in Triton's interpreter only. Please attach the ``gpu`` folder of a run on your device
to an issue."""
TABLES = {
    'summary': 'The steps of the run.',
    'device': (
        'What the device can do at most: bytes copied, read and written, and flops of a square '
        'product of width 8192.'
    ),
    'layers': (
        'Layers beside their peers, in one process, in turn; medians of forward and backward '
        'together. The share of the bound is the time in which the device could move the input and '
        'the output once and compute the counted flops, over the time that the layer takes.'
    ),
    'models': (
        'Epochs and inferences of whole models. Graphs have the sizes of those of OGB and random '
        'content.'
    ),
    'autotuning': (
        "The blocks of nodes and features that Triton's tuner chose, for each kernel and its sizes."
    ),
}
FOLDED = {
    'layers': 'Table: Layers',
    'models': 'Table: Models',
    'autotuning': 'Table: Blocks of the kernels',
}
PICTURES = {
    'times': 'Time over the number of nodes: our layers, their peers and the bound of the device.',
    'shares': 'The share of the bound at the largest number of nodes that was measured.',
}


COMPILED = """What the compiler says of each kernel, which needs no GPU: registers of a thread,
bytes that do not fit them, and shared memory of a program, for compute capability 9.0. The least
time is a bound by bytes and products, not a measurement.
``python -m benchmarks.runtime.kernels`` makes this table:"""


def csv_table(name: str) -> list[str]:
    """The table of a file of results, by its path from the folder of the generated page."""
    path = f'../../benchmarks/results/{name}.csv'
    return ['.. csv-table::', f'   :file: {path}', '   :header-rows: 1']


def verdict(results: Path) -> list[str]:
    """What the table of layers says, in words."""
    with (results / 'layers.csv').open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row['nodes'], row['dtype']) == (NODES, 'float32') and row['ours / peer']
        ]
    rows = [row for row in rows if row['peer']]
    bounds = results / 'device-bounds.json'
    if not rows or not json.loads(bounds.read_text())['commit'].startswith(RUN):
        return []
    lines = [VERDICT, '', '.. list-table::', '   :header-rows: 1', '']
    cells = [('layer', 'its peer', 'time / peer', 'memory / peer')]
    for row in sorted(rows, key=lambda row: float(row['ours / peer'])):
        memory = float(row['ours (MiB)']) / max(float(row['peer (MiB)']), 1.0)
        cells.append((row['layer'], row['peer'], row['ours / peer'], f'{memory:.2f}'))
    for first, *others in cells:
        lines += [f'   * - {first}', *(f'     - {cell}' for cell in others)]
    return [*lines, '', MISSING]


def page(results: Path) -> str:
    """The page, with each table and picture that is there."""
    compiled = ['', COMPILED, '', *csv_table('runtime/kernels')]
    lines = [TITLE, '=' * len(TITLE), '', HOW]
    if not (results / 'summary.csv').exists():
        return '\n'.join([*lines, '', NONE, *compiled]) + '\n'
    lines += ['', *verdict(results)]
    for name, text in TABLES.items():
        if (results / f'{name}.csv').exists():
            table = [text, '', *csv_table(f'gpu/{name}')]
            if name in FOLDED:
                folded = (f'   {line}' if line else '' for line in table)
                table = [f'.. dropdown:: {FOLDED[name]}', '', *folded]
            lines += ['', *table]
    for name, text in PICTURES.items():
        if (results / f'{name}.png').exists():
            lines += [
                '',
                f'.. figure:: ../../benchmarks/results/gpu/{name}.png',
                '   :width: 100%',
                '   :class: chart',
                '',
                f'   {text}',
            ]
    return '\n'.join([*lines, *compiled]) + '\n'
