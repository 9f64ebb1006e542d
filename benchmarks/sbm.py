r"""Trains and measures node classifiers on many graphs of stochastic block models.

python -m benchmarks.sbm --root DATA --dataset CLUSTER --preset small \
    --models gt litegt-jaccard litegt-jaccard-sampling
python -m benchmarks.sbm --root DATA --dataset PATTERN --models litegt-subtractor --seeds 0 1 2 3
python -m benchmarks.sbm --root DATA --dataset CLUSTER --preset small --models gt gcn --layers 16
python -m benchmarks.sbm --root DATA --preset medium --models graphtransformer --epochs 40
python -m benchmarks.sbm --root DATA --dataset CLUSTER --source pyg --models litegt-jaccard
python -m benchmarks.sbm --table   # only write the table of existing results

The metric is the weighted test accuracy at the best validation epoch. The graphs are made on the
first call, or with --source pyg they are the published ones, from the file of PyG's
GNNBenchmarkDataset. The same command continues a run that was killed. The memory is that of the
process: to compare the memory of models, run one model per call.
"""

from benchmarks.common.scripts import run_script
from benchmarks.many_graphs.metrics import weighted_accuracy
from benchmarks.many_graphs.models import NETWORKS
from benchmarks.many_graphs.published import PublishedSBM
from benchmarks.many_graphs.run import Task, make_parser, run_all
from torch_geometric_lgt.datasets import SBMDataset

SOURCES = {'generated': SBMDataset, 'pyg': PublishedSBM}
LAYERS, ENCODINGS = {'PATTERN': 8, 'CLUSTER': 12}, {'PATTERN': 2, 'CLUSTER': 10}


def main() -> None:
    parser = make_parser(__doc__, NETWORKS)
    parser.groups['data'].add_argument(
        '--dataset', choices=LAYERS, default='CLUSTER', help='the data set'
    )
    parser.groups['data'].add_argument(
        '--source',
        choices=SOURCES,
        default='generated',
        help='graphs that are made, or the published ones in DIR/NAME/raw/NAME_v2.pt, where PyG '
        'has them; they are downloaded if they are not there',
    )
    args = parser.parse_args()
    task = Task(
        name='sbm',
        dataset=SOURCES[args.source],
        level='node',
        metric_name='accuracy',
        metric=weighted_accuracy,
        settings={'pe_channels': ENCODINGS[args.dataset], 'layers': LAYERS[args.dataset]},
        graphs='pyg' if args.source == 'pyg' else '',
    )
    run_all(task, args, args.root, args.dataset)


if __name__ == '__main__':
    run_script(main)
