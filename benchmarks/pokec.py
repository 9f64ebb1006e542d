r"""Trains and measures a node classifier on pokec.

python -m benchmarks.pokec --root DATA [--model sgformer|nodeformer|difformer]

Classes are the genders of the users of a social network. The file ``pokec.mat`` is that of "Large
Scale Learning on Non-Homophilous Graphs" (https://arxiv.org/abs/2110.14446). A tenth of the users
at random is for training and a tenth for validation, the same for all seeds. Edges count in both
directions.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.io import loadmat
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks.common.arrays_only import require_regular
from benchmarks.common.scripts import data_from, run_script
from benchmarks.large_graphs.datasets import NodeTask, accuracy, random_split
from benchmarks.large_graphs.run import make_parser, run
from benchmarks.large_graphs.settings import make_config

LAYOUT = 'DIR/pokec.mat is the file'
SOURCE = 'https://github.com/CUAI/Non-Homophily-Large-Scale'


def check_arrays(arrays: dict[str, Any], path: Path) -> None:
    r"""Checks that the arrays of a file are those of a graph with two classes.

    Raises:
        ValueError: If an array is missing or does not fit the others.
    """
    found = {name: arrays[name] for name in ('edge_index', 'node_feat', 'label') if name in arrays}
    shapes = {name: array.shape for name, array in found.items()}
    if len(found) == 3:
        num_nodes, edges = found['label'].size, found['edge_index']
        fit = (
            shapes['edge_index'] == (2, edges.size // 2)
            and (edges.size == 0 or (edges.min() >= 0 and edges.max() < num_nodes))
            and shapes['node_feat'][0] == num_nodes
            and set(np.unique(found['label'])) <= {-1, 0, 1}
        )
        if fit:
            return
    raise ValueError(
        f"{path} must hold 'edge_index' [2, E] with ids of N nodes from 0, 'node_feat' [N, F], and "
        f"'label' [N] of classes 0 and 1, or -1 for none (got {shapes}); fetch it again"
    )


def load_pokec(root: str) -> NodeTask:
    r"""Loads the graph and splits its labelled nodes.

    Raises:
        FileNotFoundError: If the file is missing.
        ValueError: If it is another file.
    """
    path = Path(root) / 'pokec.mat'
    if not path.exists():
        raise FileNotFoundError(
            f'{path} is missing: put the file of this name there, to be found through {SOURCE}'
        )
    require_regular(path)
    arrays = loadmat(path)
    check_arrays(arrays, path)
    label = torch.from_numpy(arrays['label'].flatten()).long()
    edges = torch.from_numpy(arrays['edge_index']).long()
    x = torch.from_numpy(arrays['node_feat']).float()
    data = Data(x=x, edge_index=to_undirected(edges, num_nodes=label.numel()), y=label[:, None])
    labelled = (label >= 0).nonzero().flatten()
    split = random_split(labelled.numel(), (0.1, 0.1), torch.Generator().manual_seed(0))
    return NodeTask(
        data,
        {part: labelled[nodes] for part, nodes in split.items()},
        2,
        False,
        'accuracy',
        accuracy,
    )


def main() -> None:
    args = make_parser(__doc__, LAYOUT, ('random-10-10-80',)).parse_args()
    with data_from(args.root, LAYOUT):
        task = load_pokec(args.root)
    shared = {
        'hidden_channels': 64,
        'lr': 1e-2,
        'domain': 'partition',
        'batch_size': 100_000,
        'inference_batch_size': 16_384,
    }
    defaults = {
        'sgformer': {**shared, 'options': {'gnn_residual': 'initial', 'gnn_use_init': True}},
        'nodeformer': {**shared, 'options': {'num_layers': 3, 'num_gumbel_samples': 5}},
        'difformer': {**shared, 'options': {'num_layers': 3}},
    }
    run('pokec', task, make_config(defaults, args), args)


if __name__ == '__main__':
    run_script(main)
