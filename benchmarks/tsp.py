r"""Which edges lie on the shortest tour: test F1 of these edges at the epoch that is best on
validation graphs.

python -m benchmarks.tsp --root DATA --preset small --models gt litegt-subtractor
python -m benchmarks.tsp --table          # the table alone, of results that are there

The graphs are made on the first call, which takes hours for the published number. A run that was
killed goes on where it was when the same command is given again.
"""

from benchmarks.common.scripts import run_script
from benchmarks.many_graphs.models import NETWORKS
from benchmarks.many_graphs.run import arguments, f1, run_all
from torch_geometric_lgt.datasets import TSPDataset


def main() -> None:
    args = arguments(__doc__, NETWORKS).parse_args()
    args.dataset = 'TSP'
    small = {
        'batch_size': 8,
        'pe_channels': 0,
    }  # few edges are on the tour: it takes many steps until a network finds any
    settings = {'pe_channels': 8, 'layers': 12, 'full': {'patience': 15}, 'small': small}
    run_all('tsp', args, TSPDataset, (args.root,), settings, 'edge', ('f1', f1))


if __name__ == '__main__':
    run_script(main)
