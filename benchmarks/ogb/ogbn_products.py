r"""Trains and measures a node classifier on ogbn-products.

python -m benchmarks.ogb.ogbn_products --root DATA [--protocol amazon2m] \
    [--model sgformer|nodeformer|difformer]
python -m benchmarks.ogb.ogbn_products --root DATA --model nodeformer --protocol nodeformer

Classes are categories of products; products that are bought together have an edge. Batches are
random parts of 100,000 nodes. ``--protocol amazon2m`` has the split of the papers of NodeFormer and
SGFormer, which draws half of the nodes for training and a quarter for validation. ``--protocol
nodeformer`` has the same split, and batches of the training nodes alone, as the authors of
NodeFormer train; see the README of ``benchmarks/large_graphs``.
"""

import torch

from benchmarks.common.scripts import data_from, run_script
from benchmarks.large_graphs.datasets import load_ogb_task, random_split
from benchmarks.large_graphs.run import make_parser, run
from benchmarks.large_graphs.settings import (
    NODEFORMER_OPTIONS,
    NODEFORMER_PROTOCOL,
    check_protocol,
    make_config,
)

LAYOUT = 'DIR/ogbn_products is the data set as the download of ogb leaves it'


def main() -> None:
    parser = make_parser(__doc__, LAYOUT, ('published', 'amazon2m', 'nodeformer'))
    args = parser.parse_args()
    check_protocol(parser, args)
    with data_from(args.root, LAYOUT):
        task = load_ogb_task('ogbn-products', args.root, args.download)
    if args.protocol != 'published':
        task = task._replace(
            split=random_split(task.data.num_nodes, (0.5, 0.25), torch.Generator().manual_seed(0))
        )
    # NodeFormer's published weight, 0.01, is for a mean over edges, of which a node has 3 in such a
    # part.
    shared = {
        'lr': 1e-2,
        'domain': 'partition',
        'batch_size': 100_000,
        'inference_batch_size': 16_384,
    }
    nodeformer = (
        {**NODEFORMER_PROTOCOL, 'edge_loss': 0.01}
        if args.protocol == 'nodeformer'
        else {'hidden_channels': 64, 'edge_loss': 0.003, 'options': NODEFORMER_OPTIONS}
    )
    defaults = {
        'sgformer': {
            **shared,
            'hidden_channels': 256,
            'options': {'gnn_num_layers': 3, 'gnn_residual': 'initial', 'gnn_use_init': True},
        },
        'nodeformer': {**shared, **nodeformer},
        'difformer': {**shared, 'hidden_channels': 256, 'options': {'num_layers': 3}},
    }
    run('ogbn-products', task, make_config(defaults, args), args)


if __name__ == '__main__':
    run_script(main)
