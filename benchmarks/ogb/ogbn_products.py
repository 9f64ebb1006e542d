r"""Trains and measures a node classifier on ogbn-products.

python -m benchmarks.ogb.ogbn_products --root DATA [--protocol amazon2m] \
    [--model sgformer|nodeformer|difformer]

Classes are categories of products; products that are bought together have an edge. ``--protocol
amazon2m`` is the protocol of NodeFormer and SGFormer. It draws half of the nodes for training and a
quarter for validation, and trains on batches of 100,000 random nodes.
"""

import torch

from benchmarks.common.scripts import data_from, run_script
from benchmarks.large_graphs.datasets import load_ogb_task, random_split
from benchmarks.large_graphs.run import make_parser, run
from benchmarks.large_graphs.settings import make_config

LAYOUT = 'DIR/ogbn_products is the data set as the download of ogb leaves it'


def main() -> None:
    args = make_parser(__doc__, LAYOUT, ('published', 'amazon2m')).parse_args()
    with data_from(args.root, LAYOUT):
        task = load_ogb_task('ogbn-products', args.root, args.download)
    if args.protocol == 'amazon2m':
        task = task._replace(
            split=random_split(task.data.num_nodes, (0.5, 0.25), torch.Generator().manual_seed(0))
        )
    # NodeFormer's published weight, .01, is for a mean over edges, of which a node has 3 in such a
    # part.
    shared = {
        'lr': 1e-2,
        'domain': 'partition',
        'batch_size': 100_000,
        'inference_batch_size': 16_384,
    }
    nodeformer = {
        'num_layers': 3,
        'num_features': 50,
        'num_gumbel_samples': 5,
        'relational_weight': 'identity',
        'activate_layers': True,
        'jumping_knowledge': True,
    }
    defaults = {
        'sgformer': {
            **shared,
            'hidden_channels': 256,
            'options': {'gnn_num_layers': 3, 'gnn_residual': 'initial', 'gnn_use_init': True},
        },
        'nodeformer': {**shared, 'hidden_channels': 64, 'edge_loss': 0.003, 'options': nodeformer},
        'difformer': {**shared, 'hidden_channels': 256, 'options': {'num_layers': 3}},
    }
    run('ogbn-products', task, make_config(defaults, args), args)


if __name__ == '__main__':
    run_script(main)
