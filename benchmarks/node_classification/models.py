r"""The models of the node classification benchmark behind one call: a full graph in, scores and a
loss of the model's own out."""

# N nodes, E edges.
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import to_torch_csr_tensor

from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.nn import DIFFormer, NodeFormer, SGFormer

OURS = {'nodeformer': NodeFormer, 'difformer': DIFFormer, 'sgformer': SGFormer}
NETWORKS = {
    'gcn': partial(pyg.GCN, cached=True),
    'gat': pyg.GAT,
    'sage': pyg.GraphSAGE,
    'mlp': pyg.MLP,
}
BY_MATRIX = (
    'gcn',
    'sage',
)  # networks that are faster with the transposed adjacency as a sparse matrix
BRANCHES = {'sage': pyg.GraphSAGE, 'gat': pyg.GAT}  # local branches of SGFormer beside its own
MODELS = (*OURS, *NETWORKS, 'pyg-sgformer', 'polynormer')
SPARSE_INPUT = (
    *OURS,
    'gcn',
    'gat',
    'mlp',
)  # models that begin with a linear layer and take a CSR matrix, in training, too


class Classifier(torch.nn.Module):
    r"""A model over one graph: :meth:`forward` gives scores ``[N, *]`` and the model's own loss,
    the edge loss of NodeFormer. Products with a sparse adjacency are in single precision only."""

    def __init__(
        self, name: str, model: torch.nn.Module, edge_index: Tensor, num_nodes: int, precision: str
    ) -> None:
        super().__init__()
        self.name, self.model = name, model
        self.edges: Any = edge_index
        by_matrix = name in BY_MATRIX or (
            name == 'sgformer' and isinstance(model.gnn, BRANCHES['sage'])
        )
        if by_matrix and precision == 'float32':
            self.edges = to_torch_csr_tensor(edge_index.flip(0), size=(num_nodes, num_nodes))
        elif name == 'nodeformer' and model.relational_order > 0:
            self.edges = model.hops(edge_index, num_nodes)
        elif name in OURS and not by_matrix:
            self.edges = sorted_edges(edge_index, num_nodes, num_nodes)
        self.batch = edge_index.new_zeros(num_nodes)

    def forward(self, x: Tensor, with_loss: bool = False) -> tuple[Tensor, Tensor]:
        nothing = torch.zeros((), device=x.device)
        if self.name == 'mlp':
            return self.model(x), nothing
        if self.name == 'nodeformer' and with_loss:
            return self.model(x, self.edges, return_edge_loss=True)
        if self.name in ('pyg-sgformer', 'polynormer'):
            return self.model(x, self.edges, self.batch), nothing
        return self.model(x, self.edges), nothing


def make(
    name: str,
    in_channels: int,
    out_channels: int,
    edge_index: Tensor,
    num_nodes: int,
    options: dict[str, Any],
    precision: str = 'float32',
) -> Classifier:
    r"""The model :obj:`name` with options of its own."""
    options = dict(options)
    hidden = options.pop('hidden_channels')
    if (branch := BRANCHES.get(options.pop('gnn', None))) is not None:
        width = in_channels if options['gnn_input'] == 'input' else hidden
        norm = 'batch_norm' if options.get('layer_norm', True) else None
        options['gnn'] = branch(
            width,
            hidden,
            options.pop('gnn_num_layers'),
            dropout=options.pop('gnn_dropout'),
            norm=norm,
        )
    if name in OURS:
        model = OURS[name](in_channels, hidden, out_channels, **options)
    elif name == 'mlp':
        layers = options.pop('num_layers')
        model = pyg.MLP([in_channels, *[hidden] * (layers - 1), out_channels], **options)
    elif name in NETWORKS:
        model = NETWORKS[name](in_channels, hidden, out_channels=out_channels, **options)
    else:
        model = (pyg.SGFormer if name == 'pyg-sgformer' else pyg.Polynormer)(
            in_channels, hidden, out_channels, **options
        )
    return Classifier(name, model, edge_index, num_nodes, precision)


def parameter_groups(
    classifier: Classifier, weight_decay: float, attention_weight_decay: float | None
) -> list[dict[str, Any]]:
    r"""All parameters, or those of SGFormer's attention branch with a weight decay of their own."""
    if attention_weight_decay is None:
        return [{'params': list(classifier.parameters()), 'weight_decay': weight_decay}]
    local = [*classifier.model.gnn.parameters(), *classifier.model.lin_out.parameters()]
    known = {id(parameter) for parameter in local}
    attention = [parameter for parameter in classifier.parameters() if id(parameter) not in known]
    return [
        {'params': local, 'weight_decay': weight_decay},
        {'params': attention, 'weight_decay': attention_weight_decay},
    ]
