r"""pokec: the gender of the users of a social network, from the file ``pokec.mat`` of "Large Scale
Learning on Non-Homophilous Graphs" (https://arxiv.org/abs/2110.14446); a tenth of the users at
random for training and a tenth for validation, the same for all seeds. Edges are taken in both
directions.

python -m benchmarks.pokec --root DATA [--model sgformer|nodeformer|difformer]
"""

from pathlib import Path

import torch
from scipy.io import loadmat
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks.common.arrays_only import require_regular
from benchmarks.common.scripts import data_from, run_script
from benchmarks.large_graphs.datasets import NodeTask
from benchmarks.large_graphs.run import arguments, configured, random_split, run

LAYOUT = 'DIR/pokec.mat is the file'
SOURCE = 'https://github.com/CUAI/Non-Homophily-Large-Scale'


def accuracy(scores: Tensor, labels: Tensor) -> float:
    return float((scores.argmax(1, keepdim=True) == labels).double().mean())


def pokec(root: str) -> NodeTask:
    path = Path(root) / 'pokec.mat'
    if not path.exists():
        raise FileNotFoundError(
            f'{path} is missing: put the file of this name there, to be found through {SOURCE}'
        )
    require_regular(path)
    held = loadmat(path)
    label = torch.from_numpy(held['label'].flatten()).long()
    edges, x = (
        torch.from_numpy(held['edge_index']).long(),
        torch.from_numpy(held['node_feat']).float(),
    )
    data = Data(x=x, edge_index=to_undirected(edges, num_nodes=label.numel()), y=label[:, None])
    known = (label >= 0).nonzero().flatten()
    split = random_split(known.numel(), (0.1, 0.1), torch.Generator().manual_seed(0))
    return NodeTask(
        data, {part: known[nodes] for part, nodes in split.items()}, 2, False, 'accuracy', accuracy
    )


def main() -> None:
    args = arguments(__doc__, LAYOUT).parse_args()
    with data_from(args.root, LAYOUT):
        task = pokec(args.root)
    shared = {
        'hidden_channels': 64,
        'lr': 1e-2,
        'domain': 'partition',
        'batch_size': 100_000,
        'inference_batch_size': 16_384,
    }
    defaults = {
        'sgformer': {**shared, 'options': {'gnn_residual': True}},
        'nodeformer': {**shared, 'options': {'num_layers': 3, 'num_gumbel_samples': 5}},
        'difformer': {**shared, 'options': {'num_layers': 3}},
    }
    run('pokec', task, configured(defaults, args), args)


if __name__ == '__main__':
    run_script(main)
