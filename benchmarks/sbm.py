r"""Node classification on many graphs of stochastic block models (PATTERN, CLUSTER): weighted test
accuracy at the epoch that is best on validation graphs.

python -m benchmarks.sbm --root DATA --dataset CLUSTER --preset small --models gt litegt-jaccard litegt-jaccard-sampling
python -m benchmarks.sbm --root DATA --dataset PATTERN --models litegt-subtractor --seeds 0 1 2 3
python -m benchmarks.sbm --root DATA --dataset CLUSTER --preset small --models gt gcn --layers 16
python -m benchmarks.sbm --table          # the table alone, of results that are there

The graphs are made on the first call. A run that was killed goes on where it was when the same
command is given again. The memory is that of the process: give it one model to compare models.
"""

from benchmarks.common.scripts import run_script
from benchmarks.many_graphs.models import NETWORKS
from benchmarks.many_graphs.run import arguments, run_all, weighted_accuracy
from torch_geometric_lgt.datasets import SBMDataset

LAYERS, ENCODINGS = {'PATTERN': 8, 'CLUSTER': 12}, {'PATTERN': 2, 'CLUSTER': 10}


def main() -> None:
    parser = arguments(__doc__, NETWORKS)
    parser.add_argument('--dataset', choices=LAYERS, default='CLUSTER', help='the data set')
    args = parser.parse_args()
    settings = {'pe_channels': ENCODINGS[args.dataset], 'layers': LAYERS[args.dataset]}
    run_all(
        'sbm',
        args,
        SBMDataset,
        (args.root, args.dataset),
        settings,
        'node',
        ('accuracy', weighted_accuracy),
    )


if __name__ == '__main__':
    run_script(main)
