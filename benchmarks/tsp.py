r"""Trains and measures networks that find the edges of the shortest tour.

python -m benchmarks.tsp --root DATA --preset small --models gt litegt-subtractor
python -m benchmarks.tsp --table          # only write the table of existing results

The metric is the test F1 of these edges at the best validation epoch. The graphs are made on the
first call, which takes some two hours of one core with --preset small, and most of a day for the
published number. All processors share this work. The same command continues a run that was killed.
"""

from benchmarks.common.scripts import run_script
from benchmarks.many_graphs.metrics import f1
from benchmarks.many_graphs.models import NETWORKS
from benchmarks.many_graphs.run import Task, make_parser, run_all
from torch_geometric_lgt.datasets import TSPDataset

# As in the authors' code, with the distance as the feature of an edge.
FULL = {'patience': 15, 'edge_channels': 1}
# Few edges are on the tour, so that a network needs many steps before it finds any.
SMALL = {'batch_size': 8, 'pe_channels': 0}


def main() -> None:
    args = make_parser(__doc__, NETWORKS).parse_args()
    args.dataset = 'TSP'
    task = Task(
        name='tsp',
        dataset=TSPDataset,
        level='edge',
        metric_name='f1',
        metric=f1,
        settings={'pe_channels': 8, 'layers': 12, 'full': FULL, 'small': SMALL},
    )
    run_all(task, args, args.root)


if __name__ == '__main__':
    run_script(main)
