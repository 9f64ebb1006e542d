"""A strict type checker knows what the calls of a user return: ``make types`` reads this file."""

# pyright: strict, reportMissingTypeStubs=false
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from typing_extensions import assert_type

from torch_geometric_lgt.diagnostics import check_fresh
from torch_geometric_lgt.functional import AttentionState, sorted_edges
from torch_geometric_lgt.nn import (
    DIFFormer,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)
from torch_geometric_lgt.transforms import NodeDegree

X, EDGES = torch.eye(4), torch.tensor([[0, 0, 1, 1], [2, 3, 2, 3]])


@pytest.mark.parametrize('cls', [NodeFormer, DIFFormer, SGFormer])
def test_models_of_nodes(cls: type[NodeFormer | DIFFormer | SGFormer]) -> None:
    out = cls(4, 8, 2).forward(X, EDGES, batch_size=1)
    assert assert_type(out, Tensor).shape == (4, 2)


def test_edge_loss() -> None:
    out = NodeFormer(4, 8, 2).forward(X, EDGES, return_edge_loss=True)
    assert assert_type(out, tuple[Tensor, Tensor])[1].shape == ()


def test_edge_scores() -> None:
    conv = JaccardSubtractorConv(4, 8, kernel='subtractor', edge_channels=4)
    assert assert_type(conv.forward(X, EDGES, edge_attr=X), Tensor).shape == (4, 8)
    out = conv.forward(X, EDGES, edge_attr=X, return_edge_scores=True)
    assert assert_type(out, tuple[Tensor, Tensor])[1].shape == (4, 8)


def test_shared_edges() -> None:
    edges = sorted_edges(EDGES, 4, 4)
    out = LiteGT(4, 8, 2, num_layers=1, kernel='subtractor').forward(X, edges)
    assert assert_type(out, Tensor).shape == (4, 2)
    model = GraphTransformer(4, 8, 2, num_layers=1, encodings={'pe': 4}, act=torch.nn.GELU())
    out = model.forward(X, edges, pe=X)
    assert assert_type(out, Tensor).shape == (4, 2)


def test_recommender() -> None:
    model = MGFormer(2, 2, 4)
    assert assert_type(model.get_embedding(EDGES, nodes=[1]), Tensor).shape == (1, 4)
    assert assert_type(model.recommend(EDGES, [0]), Tensor).shape == (1, 1)
    loss = model.link_pred_loss(torch.zeros(2), torch.ones(2), reduction='sum')
    assert assert_type(loss, Tensor).shape == ()


@pytest.mark.parametrize('kind', [str, Path])
def test_state(kind: type[str] | type[Path], tmp_path: Path) -> None:
    state = KernelAttentionConv(4, 8).attention_state(X)
    state.save(kind(tmp_path / 'state'))
    loaded = AttentionState.load(kind(tmp_path / 'state'))
    assert assert_type(loaded.numerator, Tensor).equal(state.numerator)


def test_transforms() -> None:
    degree = NodeDegree()
    check_fresh(degree.forward(Data(edge_index=EDGES, num_nodes=4)), [degree])
