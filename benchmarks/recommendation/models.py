r"""Builds the recommenders: encoders with their losses, and closed forms."""

# U users, I items, N = U + I nodes, B pairs of a batch.
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, normalize
from torch_geometric.nn import LightGCN
from torch_geometric.utils import scatter, sort_edge_index

from benchmarks.recommendation.ranking import Rule, Scoring
from torch_geometric_lgt.functional import alignment_uniformity
from torch_geometric_lgt.functional.ranking import Scores, cosine_scores, item_factor
from torch_geometric_lgt.nn import MGFormer

RULES: tuple[Rule, ...] = ('inner', 'cosine', 0.1, 0.2, 0.3)  # values of MGFormer.scoring


class SymmetricProduct(torch.autograd.Function):
    r"""Multiplies by a symmetric sparse matrix. The backward pass uses the same matrix, without a
    transposed copy."""

    @staticmethod
    def forward(ctx, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _product(matrix, x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[None, Tensor]:
        return None, _product(ctx.matrix, grad)


def _product(matrix: Tensor, x: Tensor) -> Tensor:
    if x.device.type == 'cpu':
        return torch.sparse.mm(matrix, x, 'sum')  # faster, but only on a CPU
    with torch.autocast(x.device.type, enabled=False):
        return matrix @ x.to(matrix.dtype)


class GraphEncoder(LightGCN):
    r"""Applies PyG's LightGCN to a fixed graph; without layers it is a matrix factorisation. With
    :obj:`skip_input` the mean over the layers leaves out the embeddings themselves."""

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
        edges = torch.cat([pairs, pairs.flip(0)], 1)
        pair_number = torch.arange(pairs.size(1), device=pairs.device).repeat(2)
        self.edges, self.pair_number = sort_edge_index(edges, pair_number, self.num_nodes)
        self.edges = self.edges.contiguous()  # a sparse matrix on a GPU reads others wrongly
        self.pointer = torch.searchsorted(
            self.edges[0], torch.arange(self.num_nodes + 1, device=pairs.device)
        )
        self.adjacency = self.normalized_adjacency(torch.ones(pairs.size(1), device=pairs.device))

    def normalized_adjacency(self, pair_weight: Tensor) -> Tensor:
        r"""Computes the symmetrically normalised adjacency matrix of the training pairs with weight
        1; the weight of all other pairs is 0."""
        value = pair_weight[self.pair_number]
        degree = scatter(value, self.edges[0], 0, self.num_nodes, 'sum').clamp(min=1).rsqrt()
        value = value * degree[self.edges[0]] * degree[self.edges[1]]
        return torch.sparse_csr_tensor(
            self.pointer, self.edges[1], value, (self.num_nodes,) * 2, check_invariants=False
        )

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        out = self.propagate_layers(self.adjacency)
        return out if nodes is None else out[nodes]

    def encode_dropped(self, share: float) -> Tensor:
        r"""Encodes all nodes with a random share of the pairs left out."""
        return self.propagate_layers(
            self.normalized_adjacency(
                (
                    torch.rand(self.pair_number.numel() // 2, device=self.pair_number.device)
                    >= share
                ).float()
            )
        )

    def encode_perturbed(self, length: float) -> Tensor:
        r"""Encodes all nodes with noise of a given length after each layer. Noise has the signs of
        the values that it is added to."""
        return self.propagate_layers(
            self.adjacency, lambda x: x + length * x.sign() * normalize(torch.rand_like(x))
        )

    def propagate_layers(
        self, adjacency: Tensor, change: Callable[[Tensor], Tensor] = lambda x: x
    ) -> Tensor:
        r"""Sums the weighted outputs of the layers; :obj:`change` is applied to each output."""
        x = self.embedding.weight
        out = x * self.alpha[0]
        for alpha in self.alpha[1:]:
            x = change(SymmetricProduct.apply(adjacency, x))
            out = out + x * alpha
        return out


class AttentionEncoder(MGFormer):
    r"""Applies MGFormer to a fixed graph. In training the states of the keys are computed every
    :obj:`refresh` steps and are constants in between."""

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
        r"""Measures what the attention adds to the tokens.

        The share is its length relative to the tokens, the spread the part of its length that
        differs between nodes. The lengths of queries and keys are those in the first layer, scaled
        as for the feature map.
        """
        x, out = self.tokens(), self.encode()
        added = out - x if self.residual else out
        measures = {
            'attention_share': added.norm(dim=1).mean() / x.norm(dim=1).mean(),
            'attention_spread': (added - added.mean(0)).norm(dim=1).mean()
            / added.norm(dim=1).mean(),
        }
        for layer in self.layers[:1]:
            scale = layer.data_normalizer(False)
            measures |= {
                f'{name}_length': scale * getattr(layer, f'lin_{name}')(x).norm(dim=1).mean()
                for name in ('query', 'key')
            }
        return (
            {name: float(value) for name, value in measures.items()} if self.num_layers > 0 else {}
        )


def directau(encoder: torch.nn.Module, pairs: Tensor, weight: float, variant: str) -> Tensor:
    r"""Computes alignment and uniformity of the users and items of a batch of nodes ``[2, B]``."""
    users, items = encoder.encode(pairs.flatten()).chunk(2)
    return alignment_uniformity(users, items, weight, variant)


def bpr(encoder: torch.nn.Module, pairs: Tensor, num_users: int, regularization: float) -> Tensor:
    r"""Computes the Bayesian personalised ranking loss, with one random item for each pair."""
    negative = torch.randint(num_users, encoder.num_nodes, pairs.shape[1:], device=pairs.device)
    triples = torch.cat([pairs, negative[None]])
    user, item, other = encoder.encode(triples.flatten()).view(3, pairs.size(1), -1)
    ranking = -logsigmoid((user * (item - other)).sum(1)).mean()
    return ranking + regularization * encoder.embedding(triples).square().sum() / pairs.size(1)


def contrast(one: Tensor, other: Tensor, nodes: Tensor, temperature: float) -> Tensor:
    r"""Computes InfoNCE between two views of the distinct :obj:`nodes` of a batch."""
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
    r"""Adds to BPR the contrast of two views of users and of items: random parts of the graph (`SGL
    <https://arxiv.org/abs/2010.10783>`_) or noise (`SimGCL
    <https://arxiv.org/abs/2112.08679>`_)."""
    one, other = (
        encoder.encode_dropped(share) if share > 0 else encoder.encode_perturbed(length)
        for _ in range(2)
    )
    views = sum(contrast(one, other, nodes, temperature) for nodes in pairs)
    return bpr(encoder, pairs, num_users, regularization) + weight * views


def embedding_scoring(
    encoder: torch.nn.Module, num_users: int, rule: str, degree: Tensor
) -> Scoring:
    r"""Scores items by the cosine times the factor of each rule: 1 for ``'cosine'``, the length of
    the item's row for ``'inner'``, which ranks as the inner product does, and the power of the
    item's degree in training for a number.

    The configured rule ``'popularity'`` stands for all rules, of which validation data choose one.
    """
    users, items = encoder.encode().tensor_split([num_users])
    rules = RULES if rule == 'popularity' else (rule,)
    factors = {name: item_factor(name, items, degree) for name in rules}
    return Scoring(cosine_scores(users, items), factors)


def interaction_matrix(pairs: Tensor, num_users: int, num_items: int) -> csr_array:
    r"""Builds the binary matrix ``[U, I]`` of the pairs."""
    row, column = pairs.cpu().numpy()
    return csr_array((np.ones(row.size, np.float32), (row, column)), shape=(num_users, num_items))


def item_knn(matrix: csr_array, power: float) -> Scores:
    r"""Scores an item by how often it was chosen together with the items of a user. Items are
    weighted by a power of their degree."""
    weight = np.maximum(matrix.sum(0), 1) ** power
    weighted = csr_array(matrix * weight[None])
    similarity = csr_array(weighted.T @ weighted)
    similarity.setdiag(0)
    return lambda part: torch.from_numpy((matrix[part.numpy()] @ similarity).toarray())


def ease(matrix: csr_array, regularization: float) -> Scores:
    r"""Computes Eq. 8 of `"Embarrassingly Shallow Autoencoders for Sparse Data"
    <https://arxiv.org/abs/1905.03375>`_."""
    # Each step frees the matrix of the step before: two [I, I] in float64 exist at a time.
    inverse = torch.from_numpy((matrix.T @ matrix).toarray()).double()
    inverse.diagonal().add_(regularization)
    inverse = torch.linalg.cholesky(inverse)
    inverse = torch.cholesky_inverse(inverse)
    weight = inverse.div_(-inverse.diagonal()).fill_diagonal_(0)
    # LAPACK's columns come first in memory, and SciPy would copy them for each part
    rows = weight.to(torch.float32, memory_format=torch.contiguous_format).numpy()
    return lambda part: torch.from_numpy(matrix[part.numpy()] @ rows)
