r"""Builds the node classifiers, which all map a graph to scores and an auxiliary loss."""

# N nodes, E edges.
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import to_torch_csr_tensor

from benchmarks.common.attentions import GRAPH_TRANSFORMER, with_attention
from benchmarks.node_classification.attentions import REPLACEMENTS, replace_attention
from benchmarks.node_classification.baselines import SIGN, appnp, gprgnn, mixhop
from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.nn import DIFFormer, GraphTransformer, NodeFormer, SGFormer

OURS = {
    'nodeformer': NodeFormer,
    'difformer': DIFFormer,
    'sgformer': SGFormer,
    'graphtransformer': GraphTransformer,
}
NETWORKS = {
    'gcn': partial(pyg.GCN, cached=True),
    'gat': pyg.GAT,
    'sage': pyg.GraphSAGE,
    'sgc': partial(pyg.SGConv, cached=True),
    'jknet': partial(pyg.GCN, cached=True),
    'appnp': appnp,
    'gprgnn': gprgnn,
    'mixhop': mixhop,
    'sign': SIGN,
    'mlp': pyg.MLP,
}
# networks that are faster with a sparse matrix, the transposed adjacency
BY_MATRIX = (
    'gcn',
    'sage',
    'sgc',
    'jknet',
    'appnp',
    'gprgnn',
    'mixhop',
    'polynormer',
)
BRANCHES = {'sage': pyg.GraphSAGE, 'gat': pyg.GAT}  # replace the local branch of SGFormer
MODELS = (*OURS, *NETWORKS, 'pyg-sgformer', 'polynormer')
# models whose first linear layer can be trained on a CSR matrix
SPARSE_INPUT = (
    *OURS,
    'gcn',
    'gat',
    'jknet',
    'mlp',
)


def takes_sparse(name: str, options: dict[str, Any]) -> bool:
    r"""Tells whether a model with these options can be trained on a CSR matrix of features."""
    reads_by_matrix = options.get('gnn') == 'sage' and options['gnn_input'] == 'input'
    return name in SPARSE_INPUT and not reads_by_matrix and options.get('attention') != 'groups'


class Classifier(torch.nn.Module):
    r"""Applies a model to one graph. :meth:`forward` returns scores ``[N, *]`` and an auxiliary
    loss, which is 0 for all models but NodeFormer. It takes dense features or a CSR matrix, which
    becomes dense unless :obj:`sparse_input` is set. Products with a sparse adjacency need single
    precision."""

    def __init__(
        self,
        name: str,
        model: torch.nn.Module,
        edge_index: Tensor,
        num_nodes: int,
        precision: str,
        sparse_input: bool,
    ) -> None:
        super().__init__()
        self.name, self.model, self.sparse_input = name, model, sparse_input
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

    def start_attention(self) -> None:
        r"""Adds the attention of PyG's ``Polynormer``, which is made without it."""
        self.model._global = True

    def forward(self, x: Tensor, with_loss: bool = False) -> tuple[Tensor, Tensor]:
        x = x if self.sparse_input else x.to_dense()
        no_loss = torch.zeros((), device=x.device)
        if self.name == 'mlp':
            return self.model(x), no_loss
        if self.name == 'nodeformer' and with_loss:
            return self.model(x, self.edges, return_edge_loss=True)
        if self.name in ('pyg-sgformer', 'polynormer'):
            return self.model(x, self.edges, self.batch), no_loss
        if self.name == GRAPH_TRANSFORMER and self.model.position == 'features':
            return self.model(x, self.edges, features=x), no_loss
        return self.model(x, self.edges), no_loss


def make(
    name: str,
    in_channels: int,
    out_channels: int,
    edge_index: Tensor,
    num_nodes: int,
    options: dict[str, Any],
    precision: str = 'float32',
) -> Classifier:
    r"""Builds the model :obj:`name` for a graph with the options of its configuration."""
    if name in NETWORKS:
        model = NETWORKS[name](in_channels, out_channels=out_channels, **options)
    else:
        model = _make_transformer(name, in_channels, out_channels, edge_index, dict(options))
    sparse_input = takes_sparse(name, options)
    return Classifier(name, model, edge_index, num_nodes, precision, sparse_input)


def _make_transformer(
    name: str, in_channels: int, out_channels: int, edge_index: Tensor, options: dict[str, Any]
) -> torch.nn.Module:
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
    if name == GRAPH_TRANSFORMER:
        options = with_attention(options)
        if options.get('position') == 'features':
            options['encodings'] = {'features': in_channels}
    if name in OURS:
        attention = options.pop('attention', 'simple')
        model = OURS[name](in_channels, hidden, out_channels, **options)
        if attention != 'simple':
            heads, value_projection = options.get('heads', 1), options.get('value_projection', True)
            make_layer = REPLACEMENTS[name][attention]
            replace_attention(model, make_layer, heads, value_projection, edge_index)
        return model
    network = pyg.SGFormer if name == 'pyg-sgformer' else pyg.Polynormer
    return network(in_channels, hidden, out_channels, **options)


def parameter_groups(
    classifier: Classifier, weight_decay: float, attention_weight_decay: float | None
) -> list[dict[str, Any]]:
    r"""Groups the parameters by weight decay; a second value is for SGFormer's attention branch.
    The weights of the steps of GPR-GNN do not decay."""
    if classifier.name == 'gprgnn':
        *others, propagation = classifier.model.children()
        parameters = [parameter for module in others for parameter in module.parameters()]
        return [
            {'params': parameters, 'weight_decay': weight_decay},
            {'params': [propagation.gamma], 'weight_decay': 0.0},
        ]
    if attention_weight_decay is None:
        return [{'params': list(classifier.parameters()), 'weight_decay': weight_decay}]
    local = [*classifier.model.gnn.parameters(), *classifier.model.lin_out.parameters()]
    local_ids = {id(parameter) for parameter in local}
    attention = [
        parameter for parameter in classifier.parameters() if id(parameter) not in local_ids
    ]
    return [
        {'params': local, 'weight_decay': weight_decay},
        {'params': attention, 'weight_decay': attention_weight_decay},
    ]
