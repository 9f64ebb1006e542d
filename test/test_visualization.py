import builtins

import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_lgt.diagnostics import AttentionReport, attention_report
from torch_geometric_lgt.nn import DIFFormer, NodeFormer, SGFormer
from torch_geometric_lgt.visualization import plot_attention_report, plot_latent_structure

PNG = b'\x89PNG\r\n'


@pytest.fixture
def data():
    """A path through each of two classes, and node 39 without an edge."""
    pairs = torch.stack([torch.arange(37), torch.arange(2, 39)])
    return Data(x=torch.randn(40, 6), edge_index=torch.cat([pairs, pairs.flip(0)], 1), y=torch.arange(40) % 2)


@pytest.mark.parametrize('model', [NodeFormer, DIFFormer, SGFormer])
def test_figures_of_the_latent_structure(model, data, tmp_path):
    found = plot_latent_structure(model(6, 8, 2), data, tmp_path / 'structure.png', num_rows=40, num_edges=50)
    assert (tmp_path / 'structure.png').read_bytes().startswith(PNG)
    assert found['components'] == 3
    assert 1 <= found['components with learned edges'] <= 3
    assert found['same class by chance'] == 0.5
    assert 0 < found['edge mass'] < 1


def test_uniform_attention_has_the_shares_of_chance(data, tmp_path):
    model = NodeFormer(6, 8, 2, num_layers=1)
    for parameter in (*model.convs[0].lin_query.parameters(), *model.convs[0].lin_key.parameters()):
        torch.nn.init.zeros_(parameter)
    found = plot_latent_structure(model, data, tmp_path / 'structure.png', num_rows=40)
    assert found['edge mass'] == pytest.approx(2 * 37 / 1600, rel=1e-5)
    assert found['same class'] == pytest.approx(0.5, rel=1e-5)
    assert model.training


def test_plot_of_a_report(data, tmp_path):
    plot_attention_report(attention_report(DIFFormer(6, 8, 2, 3), data.x, data.edge_index), tmp_path / 'report.png')
    assert (tmp_path / 'report.png').read_bytes().startswith(PNG)
    with pytest.raises(ValueError, match="'report' must have a layer"):
        plot_attention_report(AttentionReport(), tmp_path / 'none.png')


def test_without_matplotlib_the_extra_is_named(data, tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *args):
        if name.startswith('matplotlib'):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, '__import__', missing)
    with pytest.raises(ImportError, match=r'torch-geometric-lgt\[visualization\]'):
        plot_latent_structure(SGFormer(6, 8, 2), data, tmp_path / 'structure.png')


def test_what_cannot_be_drawn_is_named(data, tmp_path):
    model, path = SGFormer(6, 8, 2), tmp_path / 'structure.png'
    found = plot_latent_structure(model, Data(x=data.x, edge_index=data.edge_index, y=data.y[:, None]), path, generator=torch.Generator())
    assert found['same class by chance'] == pytest.approx(0.5)
    for change, message in (
        ({'y': None}, "'data' must have 'y' as a tensor .got NoneType"),
        ({'edge_index': None}, "'data' must have 'edge_index' as a tensor"),
        ({'y': data.y - 2}, "'data' must have a class from 0 on in 'y'"),
        ({'y': torch.full((40,), -1)}, "'data' must have a class from 0 on in 'y' .*, or -1 where there is none"),
        ({'y': data.y.float()}, "'data' must have a class from 0 on in 'y' .*float32"),
        ({'y': data.y[1:]}, "'data' must have a class from 0 on in 'y'"),
        ({'x': data.x[:1], 'y': data.y[:1]}, "'data' must have a class from 0 on in 'y' for each of at least two nodes"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_latent_structure(model, Data(**{**data.to_dict(), **change}), path)
    with pytest.raises(ValueError, match=r"'layer' must be one of 1 \(got 9\)"):
        plot_latent_structure(model, data, path, layer=9)
