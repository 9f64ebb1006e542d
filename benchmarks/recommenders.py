r"""The recommenders that benchmarks/recommendation.py compares: encoders with a loss, and closed forms."""

# U users, I items, N = U + I nodes, B pairs of a batch.
import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize
from torch_geometric.nn import LightGCN
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_csr_tensor

from benchmarks.common.ranking import Scores
from torch_geometric_lgt.functional import alignment_uniformity
from torch_geometric_lgt.nn import MGFormer

EXPONENTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)


class GraphEncoder(LightGCN):
    r"""PyG's LightGCN over a fixed graph; without layers it is a matrix factorisation."""

    def __init__(self, pairs: Tensor, num_users: int, num_items: int, embedding_dim: int, num_layers: int) -> None:
        super().__init__(num_users + num_items, embedding_dim, num_layers, normalize=False)
        pairs = pairs + pairs.new_tensor([[0], [num_users]])
        edge_index, weight = gcn_norm(torch.cat([pairs, pairs.flip(0)], 1), None, self.num_nodes, add_self_loops=False)
        self.register_buffer('adjacency', to_torch_csr_tensor(edge_index, weight, (self.num_nodes,) * 2), persistent=False)

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        out = self.get_embedding(self.adjacency)
        return out if nodes is None else out[nodes]


class AttentionEncoder(MGFormer):
    r"""MGFormer over a fixed graph."""

    edge_index: Tensor | None = None

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        return self.get_embedding(self.edge_index, nodes)


def directau(encoder: torch.nn.Module, pairs: Tensor, weight: float, variant: str) -> Tensor:
    r"""Alignment and uniformity of the users and items of a batch ``[2, B]`` of nodes."""
    users, items = encoder.encode(pairs.flatten()).chunk(2)
    return alignment_uniformity(users, items, weight, variant)


def bpr(encoder: torch.nn.Module, pairs: Tensor, num_users: int, regularization: float) -> Tensor:
    r"""Bayesian personalised ranking against one item for each pair, drawn from all items."""
    negative = torch.randint(num_users, encoder.num_nodes, pairs.shape[1:])
    triples = torch.cat([pairs, negative[None]])
    user, item, other = encoder.encode(triples.flatten()).view(3, pairs.size(1), -1)
    ranking = -logsigmoid((user * (item - other)).sum(1)).mean()
    return ranking + regularization * encoder.embedding(triples).square().sum() / pairs.size(1)


def scorings(encoder: torch.nn.Module, num_users: int, rule: str, degree: Tensor) -> dict[float, Scores]:
    r"""The ways to score items ``[B, I]`` under a rule, by a parameter that validation data choose: the inner product of the rows, their
    cosine, or their cosine times a power of the item's degree in training."""
    users, items = encoder.encode().tensor_split([num_users])
    if rule == 'inner':
        return {0.0: lambda part: users[part] @ items.t()}
    users, items = normalize(users), normalize(items)
    exponents = (0.0,) if rule == 'cosine' else EXPONENTS
    return {power: lambda part, power=power: users[part] @ (items * degree[:, None] ** power).t() for power in exponents}


def interaction_matrix(pairs: Tensor, num_users: int, num_items: int) -> csr_array:
    row, column = pairs.cpu().numpy()
    return csr_array((np.ones(row.size, np.float32), (row, column)), shape=(num_users, num_items))


def item_knn(matrix: csr_array, power: float) -> Scores:
    r"""A user's score of an item: how many of his items were chosen together with it, items weighted by a power of their degree."""
    weight = np.maximum(matrix.sum(0), 1) ** power
    weighted = csr_array(matrix * weight[None])
    similarity = csr_array(weighted.T @ weighted)
    similarity.setdiag(0)
    return lambda part: torch.from_numpy((matrix[part.numpy()] @ similarity).toarray())


def ease(matrix: csr_array, regularization: float) -> Scores:
    r"""`"Embarrassingly Shallow Autoencoders for Sparse Data" <https://arxiv.org/abs/1905.03375>`_, Eq. 8."""
    gram = torch.from_numpy((matrix.T @ matrix).toarray()).double()
    gram.diagonal().add_(regularization)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    weight = (-inverse / inverse.diagonal()).fill_diagonal_(0).float()
    return lambda part: torch.from_numpy(matrix[part.numpy()].toarray()) @ weight
