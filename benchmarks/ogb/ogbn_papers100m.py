r"""Trains and measures a node classifier on ogbn-papers100M.

python -m benchmarks.ogb.ogbn_papers100m --root DATA --mapped FOLDER \
    [--domain memory --variant memory]

Classes are subject areas of arXiv papers among 111M papers. Citations are edges in both directions.
Batches are the sampled neighbourhoods of 1000 nodes, as the authors of SGFormer train. Validation
samples in the same way; the final metrics are those of all nodes with all neighbours. Features and
graph are mapped from the files of a folder, which the first call writes.
"""

from pathlib import Path

from benchmarks.common.scripts import data_from, run_script
from benchmarks.large_graphs.datasets import load_ogb_task
from benchmarks.large_graphs.run import make_parser, run
from benchmarks.large_graphs.settings import PAPERS100M, make_config
from torch_geometric_lgt.data import MappedGraph, write_graph

LAYOUT = 'DIR/ogbn_papers100M is the data set as the download of ogb leaves it'


def main() -> None:
    parser = make_parser(__doc__, LAYOUT)
    parser.groups['data'].add_argument(
        '--mapped',
        required=True,
        help='folder of the graph in mapped files, written first if it does not exist',
    )
    args = parser.parse_args()
    with data_from(args.root, LAYOUT):
        task = load_ogb_task('ogbn-papers100M', args.root, args.download)
    if not Path(args.mapped).exists():
        data = task.data
        attributes = {'x': data.x.half(), 'y': data.y}
        write_graph(
            args.mapped,
            data.edge_index,
            data.num_nodes,
            attributes,
            undirected=True,
            progress_bar=True,
        )
    task = task._replace(data=MappedGraph(args.mapped))
    run('ogbn-papers100M', task, make_config(PAPERS100M, args), args)


if __name__ == '__main__':
    run_script(main)
