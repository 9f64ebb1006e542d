r"""Trains and measures encoders of nodes that predict missing edges of one graph.

python -m benchmarks.link_prediction --root DATA --dataset cora --model graphtransformer \
    --seeds 0 1 2 3 4
python -m benchmarks.link_prediction --dataset cora --model graphtransformer --control mean
python -m benchmarks.link_prediction --dataset cora --model adamic-adar
python -m benchmarks.link_prediction --table   # only write the table of existing results

A random 5 % of the edges are for validation and 10 % for the test. The encoder reads the others and
learns to score them higher than random pairs of nodes. The score of a pair is the inner product of
two outputs. For each node with a held-out edge, all nodes but its known neighbours are ranked;
NDCG@20 and Recall@20 are means over these nodes. NDCG@20 of the validation edges chooses the epoch.
The same command continues a run that was killed. Seeds of later calls are added to the result.
"""

import argparse

from benchmarks.common.arguments import add_device, add_seeds, add_table, script_parser
from benchmarks.common.attentions import GRAPH_TRANSFORMER
from benchmarks.common.results import read_results
from benchmarks.common.scripts import run_script, source
from benchmarks.link_prediction.report import report
from benchmarks.link_prediction.run import TASK, run
from benchmarks.link_prediction.settings import CONTROLS, ENCODERS, HEURISTIC
from benchmarks.node_classification.datasets import add_dataset


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    r"""Parses the arguments."""
    parser = script_parser(__doc__)
    add_dataset(parser)
    parser.groups['model'].add_argument(
        '--model',
        choices=(*ENCODERS, HEURISTIC),
        default=GRAPH_TRANSFORMER,
        help='the encoder, or a sum over common neighbours, which is not trained',
    )
    parser.groups['model'].add_argument(
        '--control',
        choices=CONTROLS[GRAPH_TRANSFORMER],
        help=f'the mean of the graph in place of the attention of {GRAPH_TRANSFORMER}, or no '
        'attention in it or in sgformer',
    )
    add_seeds(parser, [0, 1, 2, 3, 4], 'a training for each; they also draw the splits')
    add_device(parser)
    add_table(parser)
    args = parser.parse_args(argv)
    if args.control is not None and args.control not in CONTROLS.get(args.model, {}):
        parser.error(f'--control {args.control} is not for --model {args.model}')
    return args


def main() -> None:
    args = parse()
    if not args.table:
        read_results(args.output / TASK)
        run(args)
    print(report(source(args, TASK), args.output / TASK))


if __name__ == '__main__':
    run_script(main)
