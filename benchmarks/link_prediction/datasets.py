r"""Splits the edges of a graph and ranks the nodes that an edge may lead to."""

# E edges, P pairs.
import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import to_undirected

from benchmarks.recommendation.models import interaction_matrix
from benchmarks.recommendation.ranking import LENGTH, Scoring, evaluate
from torch_geometric_lgt.functional.ranking import Scores

PROTOCOL = 'random-85-5-10'


class Split:
    r"""Holds the edges of a graph by part: ``train`` ``[2, E]`` with both directions of each edge,
    ``valid`` and ``test`` ``[2, P]`` with one.

    Raises:
        ValueError: If there are too few nodes for a ranking, or edges for a validation part.
    """

    def __init__(self, graph: Data, seed: int, device: torch.device) -> None:
        rule = RandomLinkSplit(0.05, 0.1, is_undirected=True, neg_sampling_ratio=0.0)
        edges = Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            train, valid, test = rule(edges)
        self.num_nodes, num_edges = edges.num_nodes, edges.num_edges // 2
        if self.num_nodes < LENGTH or valid.edge_label_index.size(1) == 0:
            raise ValueError(
                f'the graph must have at least {LENGTH} nodes to rank and 20 edges to split (got '
                f'{self.num_nodes} nodes and {num_edges} edges)'
            )
        self.train = train.edge_index.to(device)
        self.valid = valid.edge_label_index.to(device)
        self.test = test.edge_label_index.to(device)

    def validate(self, scores: Scores) -> float:
        r"""Computes NDCG@20 of the validation edges."""
        return self._rank(scores, self.valid, self.train)['ndcg@20']

    def measure(self, scores: Scores) -> dict[str, float]:
        r"""Computes the metrics of the test edges. The validation edges are known then."""
        known = torch.cat([self.train, to_undirected(self.valid)], 1)
        return self._rank(scores, self.test, known)

    def _rank(self, scores: Scores, held_out: Tensor, known: Tensor) -> dict[str, float]:
        node = torch.arange(self.num_nodes, device=known.device)
        excluded = torch.cat([known, torch.stack([node, node])], 1)
        scoring = Scoring(scores, {'inner': torch.ones(self.num_nodes, device=known.device)})
        return evaluate(scoring, to_undirected(held_out), excluded, self.num_nodes)['inner']


def adamic_adar(edge_index: Tensor, num_nodes: int) -> Scores:
    r"""Returns the scores :math:`\sum_k 1 / \log d_k` over the common neighbours :math:`k` of two
    nodes, with degrees :math:`d_k`."""
    adjacency = interaction_matrix(edge_index, num_nodes, num_nodes)
    degree = np.maximum(adjacency.sum(0), 2)  # no two nodes share a neighbour of degree 1
    weighted = csr_array(adjacency / np.log(degree)[:, None])
    return lambda part: torch.from_numpy((adjacency[part.numpy()] @ weighted).toarray())
