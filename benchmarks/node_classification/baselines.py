r"""Builds baselines of the papers' tables from layers of PyG."""

# N nodes, F features, D hidden channels, C classes.
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import Dropout, Linear, ModuleList, Parameter, ReLU
from torch.nn.functional import dropout
from torch_geometric import transforms
from torch_geometric.data import Data

NODES, GRAPH = 'x -> x', 'x, edge_index -> x'  # what a layer reads


class GeneralizedPageRank(torch.nn.Module):
    r"""Sums the node features of all propagation steps with learned weights, from the `"Adaptive
    Universal Generalized PageRank Graph Neural Network" <https://arxiv.org/abs/2006.07988>`_ paper:

    .. math::
        \mathbf{X}^{\prime} = \sum_{k=0}^{K} \gamma_k
        {\left(\mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}} \mathbf{\hat{D}}^{-1/2} \right)}^k
        \mathbf{X}

    The weights begin as those of personalized PageRank, :math:`\gamma_k = \alpha (1 - \alpha)^k`
    and :math:`\gamma_K = (1 - \alpha)^K`.

    Args:
        K (int): Number of steps.
        alpha (float): Teleport probability of the first weights.
    """

    def __init__(self, K: int, alpha: float) -> None:
        super().__init__()
        self.step = pyg.APPNP(K=1, alpha=0.0, cached=True)
        gamma = alpha * (1 - alpha) ** torch.arange(K + 1)
        gamma[K] = (1 - alpha) ** K
        self.gamma = Parameter(gamma)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = self.gamma[0] * x
        for weight in self.gamma[1:]:
            x = self.step(x, edge_index)
            out = out + weight * x
        return out


class SIGN(torch.nn.Module):
    r"""Maps the features of each propagation step by a layer of its own and classifies their
    concatenation, as PyG's example of the `"SIGN: Scalable Inception Graph Neural Networks"
    <https://arxiv.org/abs/2004.11198>`_ paper. The first call propagates the features, later calls
    use the same."""

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int, K: int, dropout: float
    ) -> None:
        super().__init__()
        self.transform, self.dropout = transforms.SIGN(K), dropout
        self.lins = ModuleList(Linear(in_channels, hidden_channels) for _ in range(K + 1))
        self.lin_out = Linear((K + 1) * hidden_channels, out_channels)
        self.steps: list[Tensor] = []

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if not self.steps:
            with torch.autocast(x.device.type, enabled=False):
                data = self.transform(Data(x=x, edge_index=edge_index))
            self.steps = [x, *(data[f'x{k}'] for k in range(1, len(self.lins)))]
        hidden = [lin(step).relu() for lin, step in zip(self.lins, self.steps, strict=True)]
        return self.lin_out(dropout(torch.cat(hidden, 1), self.dropout, self.training))


def _mlp(
    in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, dropout: float
) -> list[tuple[torch.nn.Module, str]]:
    channels = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
    mlp = pyg.MLP(channels, dropout=float(dropout), norm=None)
    return [(Dropout(dropout), NODES), (mlp, NODES)]


def appnp(
    in_channels: int,
    hidden_channels: int,
    out_channels: int,
    num_layers: int,
    K: int,
    alpha: float,
    dropout: float,
) -> torch.nn.Module:
    r"""Builds the network of the `"Predict then Propagate" <https://arxiv.org/abs/1810.05997>`_
    paper: an MLP and :math:`K` steps of personalized PageRank. As in PyG's benchmark it drops
    features and no edges."""
    layers = [
        *_mlp(in_channels, hidden_channels, out_channels, num_layers, dropout),
        (pyg.APPNP(K, alpha, cached=True), GRAPH),
    ]
    return pyg.Sequential('x, edge_index', layers)


def gprgnn(
    in_channels: int,
    hidden_channels: int,
    out_channels: int,
    num_layers: int,
    K: int,
    alpha: float,
    dropout: float,
    propagation_dropout: float,
) -> torch.nn.Module:
    r"""Builds GPR-GNN: an MLP and :class:`GeneralizedPageRank`, with a dropout between them."""
    layers = [
        *_mlp(in_channels, hidden_channels, out_channels, num_layers, dropout),
        (Dropout(propagation_dropout), NODES),
        (GeneralizedPageRank(K, alpha), GRAPH),
    ]
    return pyg.Sequential('x, edge_index', layers)


def mixhop(
    in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, dropout: float
) -> torch.nn.Module:
    r"""Builds the network of the `"MixHop" <https://arxiv.org/abs/1905.00067>`_ paper with the
    powers 0, 1 and 2 of the adjacency, each of :obj:`hidden_channels`, and a linear output layer
    in place of the weighted sum over the powers."""
    layers: list[tuple[torch.nn.Module, str]] = []
    for _ in range(num_layers - 1):
        layers += [
            (pyg.MixHopConv(in_channels, hidden_channels), GRAPH),
            (pyg.BatchNorm(3 * hidden_channels), NODES),
            (ReLU(), NODES),
            (Dropout(dropout), NODES),
        ]
        in_channels = 3 * hidden_channels
    layers += [
        (pyg.MixHopConv(in_channels, out_channels), GRAPH),
        (Linear(3 * out_channels, out_channels), NODES),
    ]
    return pyg.Sequential('x, edge_index', layers)
