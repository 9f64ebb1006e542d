r"""Trains and measures a node classifier on ogbn-papers100M.

python -m benchmarks.ogb.ogbn_papers100m --root DATA --mapped FOLDER \
    [--domain memory --variant memory]

Classes are subject areas of arXiv papers among 111M papers. Citations are edges in both directions.
Batches are the sampled neighbourhoods of 1000 nodes, as the authors of SGFormer train. Validation
samples in the same way, after each epoch; the final metrics are those of all nodes with all
neighbours. Features and graph are mapped from the files of a folder, which the first call writes.
The scores of all nodes are computed in files of a folder beside it, in which a killed run goes on,
and which is removed at the end.
"""

from benchmarks.common.scripts import data_from, run_script
from benchmarks.large_graphs.datasets import load_ogb_task, map_graph
from benchmarks.large_graphs.run import make_parser, run
from benchmarks.large_graphs.settings import PAPERS100M, SAMPLED, make_config

LAYOUT = 'DIR/ogbn_papers100M is the data set as the download of ogb leaves it'


def main() -> None:
    parser = make_parser(__doc__, LAYOUT)
    parser.groups['data'].add_argument(
        '--mapped',
        required=True,
        help='folder of the graph in mapped files, written first if it does not exist',
    )
    args = parser.parse_args()
    if args.domain not in (None, *SAMPLED):
        parser.error(f'a graph in files takes --domain {" or ".join(SAMPLED)} (got {args.domain})')
    with data_from(args.root, LAYOUT):
        task = load_ogb_task('ogbn-papers100M', args.root, args.download)
    task = map_graph(task, args.mapped)
    run('ogbn-papers100M', task, make_config(PAPERS100M, args), args)


if __name__ == '__main__':
    run_script(main)
