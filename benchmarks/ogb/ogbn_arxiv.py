r"""Trains and measures a node classifier on ogbn-arxiv.

python -m benchmarks.ogb.ogbn_arxiv --root DATA [--model sgformer|nodeformer|difformer] \
    [--domain memory --variant memory]

Classes are subject areas of papers. Citations are edges in both directions. Each step trains on the
whole graph.
"""

from torch_geometric.transforms import ToUndirected

from benchmarks.common.scripts import data_from, run_script
from benchmarks.large_graphs.datasets import load_ogb_task
from benchmarks.large_graphs.run import make_parser, run
from benchmarks.large_graphs.settings import make_config

LAYOUT = 'DIR/ogbn_arxiv is the data set as the download of ogb leaves it'


def main() -> None:
    args = make_parser(__doc__, LAYOUT).parse_args()
    with data_from(args.root, LAYOUT):
        task = load_ogb_task('ogbn-arxiv', args.root, args.download)
    task = task._replace(data=ToUndirected()(task.data))
    # SGFormer has the published settings, except that both branches read one input layer. The other
    # models share them where they apply.
    shared = {'hidden_channels': 256, 'lr': 1e-3}
    defaults = {
        'sgformer': {
            **shared,
            'options': {'gnn_num_layers': 3, 'gnn_residual': 'initial', 'dropout': 0.5},
        },
        'nodeformer': {
            **shared,
            'hidden_channels': 64,
            'options': {'num_layers': 2, 'num_gumbel_samples': 5},
        },
        'difformer': {**shared, 'options': {'num_layers': 3, 'dropout': 0.5}},
    }
    run('ogbn-arxiv', task, make_config(defaults, args), args)


if __name__ == '__main__':
    run_script(main)
