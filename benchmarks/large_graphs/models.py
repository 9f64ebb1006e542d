r"""Builds the models for one large graph and computes their losses."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from benchmarks.large_graphs.batches import Batch
from benchmarks.large_graphs.datasets import NodeTask
from torch_geometric_lgt.nn import DIFFormer, NodeFormer, SGFormer

MODELS = {'nodeformer': NodeFormer, 'difformer': DIFFormer, 'sgformer': SGFormer}


def network(task: NodeTask, config: dict[str, Any]) -> torch.nn.Module:
    r"""Builds the model of a configuration."""
    return MODELS[config['model']](
        task.data['x'].size(1), config['hidden_channels'], task.num_outputs, **config['options']
    )


def loss_of(
    model: Any, batch: Batch, binary: bool, edge_loss_weight: float, edge_loss_mean: str = 'nodes'
) -> Tensor:
    r"""Computes the loss of the training nodes of a batch plus NodeFormer's weighted edge loss.

    The edge loss is a mean over the nodes, or with ``edge_loss_mean='edges'`` over the edges of the
    first order of the relational bias, self loops included."""
    data, train, _ = batch
    arguments = batch.arguments
    if edge_loss_weight > 0:
        edges = data.edge_index
        if edge_loss_mean == 'edges':
            edges = model.hops(edges, data.num_nodes)
            edge_loss_weight *= data.num_nodes / edges[0].edge_index.size(1)
        out, edge_loss = model(data.x.float(), edges, return_edge_loss=True, **arguments)
    else:
        out, edge_loss = model(data.x.float(), data.edge_index, **arguments), 0.0
    out, y = out[train], data.y[train]
    loss = (
        binary_cross_entropy_with_logits(out, y.to(out.dtype))
        if binary
        else cross_entropy(out, y.squeeze(1).long())
    )
    return loss + edge_loss_weight * edge_loss
