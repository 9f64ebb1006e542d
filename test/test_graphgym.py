import importlib
import sys

import pytest
import torch
from torch_geometric.data import Batch, Data

pytestmark = pytest.mark.filterwarnings(
    'ignore:To use GraphGym, install'
)  # its training loop, which no layer needs


@pytest.fixture
def gym():
    from torch_geometric.graphgym.config import cfg, set_cfg

    import torch_geometric_lgt.graphgym as module

    set_cfg(cfg)
    cfg.gnn.dim_inner, cfg.gnn.layers_mp, cfg.gnn.layers_pre_mp, cfg.gnn.head = 8, 2, 1, 'node'
    cfg.dataset.task, cfg.share.dim_in, cfg.share.dim_out = 'node', 6, 3
    yield module, cfg
    set_cfg(cfg)


def batch():
    graphs = [
        Data(
            x=torch.randn(num, 6),
            edge_index=torch.randint(num, (2, 20)),
            y=torch.randint(3, (num,)),
        )
        for num in (9, 5)
    ]
    return Batch.from_data_list(graphs)


@pytest.mark.parametrize('name', ['kernel_attention', 'difformer_conv', 'sgformer_conv'])
def test_layers_in_the_network_of_graphgym(gym, name):
    from torch_geometric.graphgym.models.gnn import GNN

    module, cfg = gym
    cfg.gnn.layer_type, cfg.lgt.heads = name, 2
    model = GNN(6, 3).eval()
    layers = [part for part in model.modules() if isinstance(part, module.LAYERS[name])]
    assert [part.heads for part in layers] == [2, 2]
    prediction, label = model(batch())
    assert prediction.shape == (14, 3)
    assert label.shape == (14,)


@pytest.mark.parametrize('name', ['nodeformer', 'difformer', 'sgformer'])
def test_networks(gym, name):
    from torch_geometric.graphgym import register

    module, cfg = gym
    model = register.network_dict[name](dim_in=6, dim_out=3).eval()
    assert isinstance(model.mp, module.NETWORKS[name])
    assert model.mp.num_layers == cfg.gnn.layers_mp
    data = batch()
    prediction, _ = model(data.clone())
    alone, _ = model(Batch.from_data_list([data[1]]))
    torch.testing.assert_close(prediction[9:], alone)


def test_without_yacs_the_extra_is_named(monkeypatch):
    for name in ('yacs', 'yacs.config'):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, 'torch_geometric_lgt.graphgym', raising=False)
    with pytest.raises(
        ImportError, match=r"^GraphGym needs yacs: pip install 'torch-geometric-lgt\[graphgym\]'$"
    ):
        importlib.import_module('torch_geometric_lgt.graphgym')
