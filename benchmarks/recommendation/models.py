r"""The recommenders that benchmarks/recommendation compares: encoders with a loss, and closed
forms."""

# U users, I items, N = U + I nodes, B pairs of a batch.
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, normalize
from torch_geometric.nn import LightGCN
from torch_geometric.utils import scatter, sort_edge_index

from torch_geometric_lgt.functional import alignment_uniformity
from torch_geometric_lgt.functional.ranking import Scores, Scoring, cosine_scores, item_factor
from torch_geometric_lgt.nn import MGFormer

INNER, COSINE, POWERS = -1.0, 0.0, (0.1, 0.2, 0.3)
RULES: dict[float, str | float] = {INNER: 'inner', COSINE: 'cosine'} | {
    power: power for power in POWERS
}  # as MGFormer names them


class SymmetricProduct(torch.autograd.Function):
    r"""The product with a symmetric sparse matrix. Its gradient is the same product, without a
    transposed copy of the matrix."""

    @staticmethod
    def forward(ctx, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _product(matrix, x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[None, Tensor]:
        return None, _product(ctx.matrix, grad)


def _product(matrix: Tensor, x: Tensor) -> Tensor:
    return (
        torch.sparse.mm(matrix, x, 'sum') if x.device.type == 'cpu' else matrix @ x
    )  # the reduction is the faster one, and a CPU's


class GraphEncoder(LightGCN):
    r"""PyG's LightGCN over a fixed graph; without layers it is a matrix factorisation. With
    :obj:`skip_input` the embeddings themselves are no part of the mean over the layers."""

    def __init__(
        self,
        pairs: Tensor,
        num_users: int,
        num_items: int,
        embedding_dim: int,
        num_layers: int,
        skip_input: bool = False,
    ) -> None:
        alpha = torch.full((num_layers + 1,), 1 / (num_layers + (not skip_input)))
        alpha[0] = 0 if skip_input else alpha[0]
        super().__init__(num_users + num_items, embedding_dim, num_layers, alpha, normalize=False)
        pairs = pairs + pairs.new_tensor([[0], [num_users]])
        edges, number = (
            torch.cat([pairs, pairs.flip(0)], 1),
            torch.arange(pairs.size(1), device=pairs.device).repeat(2),
        )
        self.edges, self.number = sort_edge_index(edges, number, self.num_nodes)
        self.pointer = torch.searchsorted(
            self.edges[0].contiguous(), torch.arange(self.num_nodes + 1, device=pairs.device)
        )
        self.adjacency = self.graph(torch.ones(pairs.size(1), device=pairs.device))

    def graph(self, keep: Tensor) -> Tensor:
        r"""The symmetrically normalised adjacency matrix of the training pairs that :obj:`keep`
        marks with a 1."""
        value = keep[self.number]
        degree = scatter(value, self.edges[0], 0, self.num_nodes, 'sum').clamp(min=1).rsqrt()
        value = value * degree[self.edges[0]] * degree[self.edges[1]]
        return torch.sparse_csr_tensor(
            self.pointer, self.edges[1], value, (self.num_nodes,) * 2, check_invariants=False
        )

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        out = self.propagated(self.adjacency)
        return out if nodes is None else out[nodes]

    def dropped(self, share: float) -> Tensor:
        r"""The encoding over a random part of the graph."""
        return self.propagated(
            self.graph(
                (torch.rand(self.number.numel() // 2, device=self.number.device) >= share).float()
            )
        )

    def perturbed(self, length: float) -> Tensor:
        r"""The encoding with noise of a given length after each layer, in the orthant of what it is
        added to."""
        return self.propagated(
            self.adjacency, lambda x: x + length * x.sign() * normalize(torch.rand_like(x))
        )

    def propagated(
        self, adjacency: Tensor, change: Callable[[Tensor], Tensor] = lambda x: x
    ) -> Tensor:
        r"""The weighted sum of the layers, each of which :obj:`change` may change."""
        x = self.embedding.weight
        out = x * self.alpha[0]
        for alpha in self.alpha[1:]:
            x = change(SymmetricProduct.apply(adjacency, x))
            out = out + x * alpha
        return out


class AttentionEncoder(MGFormer):
    r"""MGFormer over a fixed graph. In training the keys are computed every :obj:`refresh` steps
    only; between, their state is a constant."""

    edge_index: Tensor | None = None
    refresh, steps = 1, 0

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        if nodes is None or self.refresh == 1:
            self.steps = 0
            return self.get_embedding(self.edge_index, nodes)
        if self.steps % self.refresh == 0:
            states = self.attention_states(self.edge_index)
            self.states = [state.detach() for state in states]
        else:
            states = self.states
        self.steps += 1
        return self.get_embedding(self.edge_index, nodes, states)

    def diagnosis(self) -> dict[str, float]:
        r"""What the attention adds to the tokens: its length beside theirs, the share of its length
        that is not the same for all nodes, and the lengths of the queries and keys of the first
        layer as the feature map sees them."""
        x, out = self.tokens(), self.encode()
        added = out - x if self.residual else out
        found = {
            'attention_share': added.norm(dim=1).mean() / x.norm(dim=1).mean(),
            'attention_spread': (added - added.mean(0)).norm(dim=1).mean()
            / added.norm(dim=1).mean(),
        }
        for layer in self.layers[:1]:
            scale = layer._scale(False)
            found |= {
                f'{name}_length': scale * getattr(layer, f'lin_{name}')(x).norm(dim=1).mean()
                for name in ('query', 'key')
            }
        return {name: float(value) for name, value in found.items()} if self.num_layers > 0 else {}


def directau(encoder: torch.nn.Module, pairs: Tensor, weight: float, variant: str) -> Tensor:
    r"""Alignment and uniformity of the users and items of a batch ``[2, B]`` of nodes."""
    users, items = encoder.encode(pairs.flatten()).chunk(2)
    return alignment_uniformity(users, items, weight, variant)


def bpr(encoder: torch.nn.Module, pairs: Tensor, num_users: int, regularization: float) -> Tensor:
    r"""Bayesian personalised ranking against one item for each pair, drawn from all items."""
    negative = torch.randint(num_users, encoder.num_nodes, pairs.shape[1:], device=pairs.device)
    triples = torch.cat([pairs, negative[None]])
    user, item, other = encoder.encode(triples.flatten()).view(3, pairs.size(1), -1)
    ranking = -logsigmoid((user * (item - other)).sum(1)).mean()
    return ranking + regularization * encoder.embedding(triples).square().sum() / pairs.size(1)


def contrast(one: Tensor, other: Tensor, nodes: Tensor, temperature: float) -> Tensor:
    r"""InfoNCE between two views of the distinct :obj:`nodes` of a batch."""
    one, other = (normalize(view[nodes.unique()]) for view in (one, other))
    return cross_entropy(
        one @ other.t() / temperature, torch.arange(one.size(0), device=one.device)
    )


def contrastive(
    encoder: GraphEncoder,
    pairs: Tensor,
    num_users: int,
    regularization: float,
    weight: float,
    temperature: float,
    share: float = 0.0,
    length: float = 0.0,
) -> Tensor:
    r"""BPR and the contrast of two views of users and of items: parts of the graph (`SGL
    <https://arxiv.org/abs/2010.10783>`_) or noise (`SimGCL
    <https://arxiv.org/abs/2112.08679>`_)."""
    one, other = (
        encoder.dropped(share) if share > 0 else encoder.perturbed(length) for _ in range(2)
    )
    views = sum(contrast(one, other, nodes, temperature) for nodes in pairs)
    return bpr(encoder, pairs, num_users, regularization) + weight * views


def scorings(encoder: torch.nn.Module, num_users: int, rule: str, degree: Tensor) -> Scoring:
    r"""The ways to score items under a rule, one of which validation data choose: the cosine of the
    rows (``COSINE``), the cosine times the length of the item's row, which ranks as the inner
    product does (``INNER``), or times a power of the item's degree in training (the power). The
    rule ``popularity`` has all of them."""
    users, items = encoder.encode().tensor_split([num_users])
    scoring = Scoring(
        cosine_scores(users, items),
        {way: item_factor(name, items, degree) for way, name in RULES.items()},
    )
    return (
        scoring if rule == 'popularity' else scoring.only({'inner': INNER, 'cosine': COSINE}[rule])
    )


def interaction_matrix(pairs: Tensor, num_users: int, num_items: int) -> csr_array:
    row, column = pairs.cpu().numpy()
    return csr_array((np.ones(row.size, np.float32), (row, column)), shape=(num_users, num_items))


def item_knn(matrix: csr_array, power: float) -> Scores:
    r"""A user's score of an item: how many of his items were chosen together with it, items
    weighted by a power of their degree."""
    weight = np.maximum(matrix.sum(0), 1) ** power
    weighted = csr_array(matrix * weight[None])
    similarity = csr_array(weighted.T @ weighted)
    similarity.setdiag(0)
    return lambda part: torch.from_numpy((matrix[part.numpy()] @ similarity).toarray())


def ease(matrix: csr_array, regularization: float) -> Scores:
    r"""`"Embarrassingly Shallow Autoencoders for Sparse Data" <https://arxiv.org/abs/1905.03375>`_,
    Eq. 8."""
    gram = torch.from_numpy((matrix.T @ matrix).toarray()).double()
    gram.diagonal().add_(regularization)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    weight = (-inverse / inverse.diagonal()).fill_diagonal_(0).float().numpy()
    return lambda part: torch.from_numpy(matrix[part.numpy()] @ weight)
