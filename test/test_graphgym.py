import argparse
import importlib
import pickle
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch_geometric import nn
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.transforms import Compose, RandomNodeSplit

from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, LaplacianPE

# its training loop, which no layer needs
pytestmark = pytest.mark.filterwarnings('ignore:To use GraphGym, install')


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


class Graphs(InMemoryDataset):
    """Four small graphs with the attributes that LiteGT needs."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        add = Compose(
            [
                JaccardScores(),
                AttentionNodeSampling(),
                LaplacianPE(2),
                RandomNodeSplit(num_val=4, num_test=4),
            ]
        )
        graphs = []
        for num_nodes in (20, 15, 12, 18):
            edges = torch.randint(num_nodes, (2, 40), generator=generator)
            x = torch.randn(num_nodes, 6, generator=generator)
            graphs.append(add(Data(x=x, edge_index=edges, y=x[:, :3].argmax(1))))
        self.data, self.slices = self.collate(graphs)


class Links(InMemoryDataset):
    """A graph of 8 users and 12 items."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        links = [torch.randint(8, (60,), generator=generator)]
        links.append(torch.randint(8, 20, (60,), generator=generator))
        data = Data(edge_index=torch.stack(links), num_nodes=20, y=torch.tensor([0, 1]))
        for split in ('train', 'val', 'test'):
            data[f'{split}_edge_index'] = data.edge_index
            data[f'{split}_edge_label'] = torch.arange(60) % 2
        self.data, self.slices = self.collate([data])


YAML = """
dataset: {format: lgt-test, name: %s, task: %s, task_type: classification}
train: {sampler: full_batch, batch_size: 2}
model: {type: %s, loss_fun: cross_entropy, edge_decoding: dot}
gnn: {layer_type: %s, dim_inner: 8, layers_pre_mp: 1, layers_mp: 2, dropout: 0.1, head: %s}
optim: {optimizer: adam, base_lr: 0.01, max_epoch: 2}
lgt: %s
"""
LAYERS = {
    'kernel_attention': '{heads: 2, feature_map: elu}',
    'difformer_conv': '{heads: 2}',
    'sgformer_conv': '{heads: 2}',
    'mean_attention': '{}',
    'degree_masked_attention': '{heads: 2}',
    'adjacency_masked_attention': '{heads: 2, value_projection: true}',
    'jaccard_subtractor_conv': '{heads: 2}',
    'gps_conv': '{heads: 2, conv: GATConv, conv_kwargs: {heads: 2, concat: false}}',
    'global_attention': '{attention: sgformer_conv, attention_kwargs: {heads: 2}}',
}
NETWORKS = {
    'nodeformer': '{heads: 2}',
    'difformer': '{}',
    'sgformer': '{alpha: 0.3}',
    'graphtransformer': '{heads: 2, conv: GINConv, encodings: {laplacian_pe: 2}}',
    'litegt': '{heads: 2, pe_channels: 2}',
    'mgformer': '{num_users: 8, num_items: 12, mask: adjacency}',
}


def train_from_yaml(cfg, text, path):
    """Trains as GraphGym's script does, whose loop needs pytorch-lightning; returns the model, its
    weights before and the losses of the batches."""
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.config import load_cfg
    from torch_geometric.graphgym.loader import create_loader
    from torch_geometric.graphgym.model_builder import create_model

    path.write_text(text)
    load_cfg(cfg, argparse.Namespace(cfg_file=str(path), opts=['accelerator', 'cpu']))
    register.loader_dict['lgt-test'] = lambda format, name, _: (
        {'graphs': Graphs, 'links': Links}[name]() if format == 'lgt-test' else None
    )
    loader, model = create_loader()[0], create_model()
    before, losses = {key: value.clone() for key, value in model.named_parameters()}, []
    (optimizer,), _ = model.configure_optimizers()
    for _ in range(cfg.optim.max_epoch):
        for batch in loader:
            losses.append(model.training_step(batch)['loss'])
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
    del register.loader_dict['lgt-test']
    return model, before, torch.stack(losses)


@pytest.mark.filterwarnings('ignore:.*pin_memory')
@pytest.mark.parametrize(
    ('model_type', 'layer_type'),
    [*(('gnn', name) for name in LAYERS), *((name, 'generalconv') for name in NETWORKS)],
)
def test_training_from_a_file(gym, model_type, layer_type, tmp_path):
    module, cfg = gym
    data, task, head = 'graphs', 'node', 'node'
    if model_type == 'mgformer':
        data, task, head = 'links', 'link_pred', 'edge'
    options = LAYERS[layer_type] if model_type == 'gnn' else NETWORKS[model_type]
    text = YAML % (data, task, model_type, layer_type, head, options)
    model, before, losses = train_from_yaml(cfg, text, tmp_path / 'config.yaml')
    assert losses.numel() == (2 if model_type == 'mgformer' else 4)
    assert losses.isfinite().all()
    kind = module.LAYERS[layer_type] if model_type == 'gnn' else module.NETWORKS[model_type]
    assert sum(isinstance(part, kind) for part in model.modules()) == (
        2 if model_type == 'gnn' else 1
    )
    unchanged = [key for key, value in model.named_parameters() if torch.equal(value, before[key])]
    assert unchanged == []


def test_every_layer_and_network_is_trained(gym):
    module, _ = gym
    assert set(module.LAYERS) == set(LAYERS)
    assert set(module.NETWORKS) == set(NETWORKS)


def test_attributes_of_the_batch_are_used(gym):
    from torch_geometric.graphgym import register

    module, cfg = gym
    cfg.lgt.heads, cfg.lgt.pe_channels, cfg.lgt.edge_channels = 2, 2, 1
    network = register.network_dict['litegt'](dim_in=6, dim_out=3).eval()
    data = Batch.from_data_list(list(Graphs())[:2])
    data.edge_attr, data.split = torch.randn(data.num_edges, 1), 'train'
    arguments = module._graph_inputs(network.mp, data, edge_channels=1)
    assert {name: value for name, value in arguments.items() if value is data.get(name)}.keys() == {
        'edge_index',
        'batch',
        'edge_jaccard',
        'laplacian_pe',
        'edge_attr',
    }
    assert arguments['sampled_mask'] is data.attention_mask
    assert arguments['batch_size'] == 2
    expected = network.mp(
        data.x,
        data.edge_index,
        data.batch,
        laplacian_pe=data.laplacian_pe,
        edge_jaccard=data.edge_jaccard,
        sampled_mask=data.attention_mask,
        edge_attr=data.edge_attr,
    )
    torch.testing.assert_close(network.mp(data.x, **arguments), expected)


def test_message_passing_of_the_gps_layer(gym):
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.models.layer import new_layer_config

    _, cfg = gym
    config = new_layer_config(8, 8, 1, has_act=False, has_bias=True, cfg=cfg)
    layer = register.layer_dict['gps_conv']
    assert isinstance(layer(config).model.conv, nn.GCNConv)
    cfg.lgt.conv = None
    assert layer(config).model.conv is None
    cfg.lgt.conv = 'NoConv'
    with pytest.raises(ValueError, match=r"'conv' must be None or the name of .* \(got 'NoConv'\)"):
        layer(config)
    config = new_layer_config(6, 8, 1, has_act=False, has_bias=True, cfg=cfg)
    names = ('gps_conv', 'global_attention')
    for name in (*names, 'degree_masked_attention', 'adjacency_masked_attention'):
        with pytest.raises(ValueError, match=r"needs a 'dim_in' equal to 'dim_out' \(got 6 and 8"):
            register.layer_dict[name](config)


def test_global_attention_refuses_layers_over_edges(gym):
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.models.layer import new_layer_config

    module, cfg = gym
    config = new_layer_config(8, 8, 1, has_act=False, has_bias=True, cfg=cfg)
    for name in module.LAYERS.keys() - module.ATTENTIONS.keys():
        cfg.lgt.attention = name
        with pytest.raises(ValueError, match=rf"'attention' must be one of .*\(got '{name}'\)"):
            register.layer_dict['global_attention'](config)
    for name in module.ATTENTIONS:
        cfg.lgt.attention = name
        assert register.layer_dict['global_attention'](config).model.attn.conv is not None


@pytest.mark.parametrize('name', ['kernel_attention', 'difformer_conv', 'degree_masked_attention'])
def test_global_attention_in_the_layer_of_pyg(gym, name):
    """Equal to message passing and the unpadded attention side by side, as PyG's layer defines
    them."""
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.models.layer import new_layer_config
    from yacs.config import CfgNode

    module, cfg = gym
    cfg.lgt.attention, cfg.lgt.conv, cfg.lgt.norm = name, 'GCNConv', None
    cfg.lgt.attention_kwargs = CfgNode({'heads': 2})
    config = new_layer_config(8, 8, 1, has_act=False, has_bias=True, cfg=cfg)
    model = register.layer_dict['global_attention'](config).eval().model
    attention, data = model.attn.conv, batch()
    assert type(attention) is module.ATTENTIONS[name]
    assert attention.heads == 2
    x = torch.randn(14, 8)
    local = model.gps.conv(x, data.edge_index) + x
    inputs = {'edge_index': data.edge_index, 'batch': data.batch}
    out = local + attention(x, **inputs) + x
    expected = out + model.gps.mlp(out)
    torch.testing.assert_close(model(x, data.edge_index, data.batch), expected)
    cfg.lgt.attention = 'gps_conv'
    with pytest.raises(ValueError, match=r"'attention' must be one of .* \(got 'gps_conv'\)"):
        register.layer_dict['global_attention'](config)


def test_heads_of_global_attention(gym):
    """They reached only the attention of PyG that the layer replaces."""
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.models.layer import new_layer_config
    from yacs.config import CfgNode

    module, cfg = gym
    cfg.lgt.heads = 4
    config = new_layer_config(8, 8, 1, has_act=False, has_bias=True, cfg=cfg)
    make = register.layer_dict['global_attention']
    for name in module.ATTENTIONS:
        cfg.lgt.attention = name
        expected = 1 if name == 'mean_attention' else 4
        assert make(config).model.attn.conv.heads == expected
    cfg.lgt.attention_kwargs = CfgNode({'heads': 2})
    cfg.lgt.attention = 'kernel_attention'
    assert make(config).model.attn.conv.heads == 2


def test_without_yacs_the_extra_is_named(monkeypatch):
    for name in ('yacs', 'yacs.config'):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, 'torch_geometric_lgt.graphgym', raising=False)
    with pytest.raises(
        ImportError, match=r'^GraphGym needs yacs: pip install "torch-geometric-lgt\[graphgym\]"$'
    ):
        importlib.import_module('torch_geometric_lgt.graphgym')


def test_graphs_without_a_batch_vector(gym):
    """As samplers of subgraphs yield."""
    from torch_geometric.graphgym import register

    _, cfg = gym
    cfg.gnn.head = cfg.dataset.task = 'node'
    data = batch().to_data_list()[0]
    data.train_mask = torch.ones(9, dtype=torch.bool)
    model = register.network_dict['sgformer'](dim_in=6, dim_out=3).eval()
    prediction, _ = model(data)
    assert prediction.shape == (9, 3)


def test_networks_can_be_pickled(gym):
    from torch_geometric.graphgym import register

    _, cfg = gym
    cfg.gnn.head = cfg.dataset.task = 'node'
    model = register.network_dict['sgformer'](dim_in=6, dim_out=3)
    copy = pickle.loads(pickle.dumps(model))
    assert all(map(torch.equal, copy.parameters(), model.parameters()))


def test_message_passing_that_is_a_network(gym):
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.models.layer import new_layer_config

    _, cfg = gym
    cfg.lgt.conv = 'GINConv'
    layer = register.layer_dict['gps_conv'](new_layer_config(8, 8, 1, False, True, cfg=cfg))
    graphs = batch()
    graphs.x = torch.randn(14, 8)
    assert layer(graphs).x.shape == (14, 8)


@pytest.mark.parametrize(
    ('kind', 'name', 'key', 'message'),
    [
        ('layer', 'sgformer_conv', 'head', "must be an argument of SGFormerConv .* mean 'heads'"),
        ('layer', 'gps_conv', 'attn_typ', "must be an argument of GPSConv .* mean 'attn_type'"),
        ('layer', 'global_attention', 'dropot', "must be an arg.* of PaddedGPSConv .*n 'dropout'"),
        ('layer', 'kernel_attention', 'conv', 'it belongs to gps_conv, global_attention, graph'),
        ('layer', 'mean_attention', 'conv_kwargs', 'remove it, it belongs to gps_conv, global'),
        ('layer', 'global_attention', 'kwargs', 'must be an argument of PaddedGPSConv'),
        ('layer', 'global_attention', 'attn_type', "must not be set .*; set 'lgt.attention' in"),
        ('layer', 'gps_conv', 'channels', "must not be set .*; set 'gnn.dim_inner' in its place"),
        ('network', 'nodeformer', 'feature_mop', "an argument of NodeFormer .* 'feature_map'"),
        ('network', 'nodeformer', 'num_layers', "must not be set .*; set 'gnn.layers_mp' in its"),
        ('network', 'sgformer', 'dropout', "must not be set .*; set 'gnn.dropout' in its place"),
        ('network', 'graphtransformer', 'level', "must not be set .*; set 'gnn.head' in its place"),
        ('network', 'litegt', 'aggr', "must not be set .*; set 'model.graph_pooling' in its place"),
        ('network', 'mgformer', 'num_user', "an argument of MGFormer .* did you mean 'num_users'"),
        ('network', 'mgformer', 'embedding_dim', "must not be set .*; set 'gnn.dim_inner' in its"),
    ],
)
def test_wrong_keys_are_named(gym, kind, name, key, message):
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.models.layer import new_layer_config

    _, cfg = gym
    cfg.lgt[key] = 4
    config = new_layer_config(8, 8, 1, has_act=False, has_bias=True, cfg=cfg)
    arguments = (config,) if kind == 'layer' else (6, 3)
    with pytest.raises(ValueError, match=rf"'lgt\.{key}' .*{message}"):
        getattr(register, f'{kind}_dict')[name](*arguments)


def blocks_of_the_page(word):
    """The configuration and the program of the page that have the word."""
    page = (Path(__file__).parents[1] / 'docs' / 'graphgym.rst').read_text(encoding='utf-8')
    found = re.findall(r'\.\. code-block:: (\w+)\n\n((?: +.*\n|\n)+)', page)
    (configuration,) = (text for kind, text in found if kind == 'yaml' and word in text)
    (program,) = (text for kind, text in found if kind == 'python' and word in text)
    return textwrap.dedent(configuration), textwrap.dedent(program)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")
def test_the_run_of_the_page(gym, monkeypatch, tmp_path):
    """Without Lightning the training is one step and its data module the loaders."""
    from torch_geometric.graphgym import create_loader, register

    def step(model, loaders):
        model.training_step(next(iter(loaders[0])))['loss'].backward()
        models.append(model)

    models = []
    configuration, program = blocks_of_the_page('SBM')
    monkeypatch.chdir(tmp_path)
    training = importlib.import_module('torch_geometric.graphgym.train')
    monkeypatch.setattr(training, 'GraphGymDataModule', create_loader)
    monkeypatch.setattr(training, 'train', step)
    monkeypatch.setattr(register, 'loader_dict', dict(register.loader_dict))
    Path('config.yaml').write_text(configuration)
    exec(program.replace('num_graphs=100', 'num_graphs=4'), {})
    (model,) = models
    grad = {name: parameter.grad for name, parameter in model.named_parameters()}
    (encoding,) = (name for name in grad if name.endswith('lin_encodings.laplacian_pe.weight'))
    assert grad[encoding].abs().max() > 0


def write_molecules(folder, num_graphs):
    """The files of MUTAG: rings of ten atoms of 7 kinds, with 4 kinds of bonds."""
    bonds = [(10 * g + i, 10 * g + (i + 1) % 10) for g in range(num_graphs) for i in range(10)]
    bonds += [bond[::-1] for bond in bonds]
    rows = {
        'A': [f'{source + 1}, {target + 1}' for source, target in bonds],
        'graph_indicator': [1 + node // 10 for node in range(10 * num_graphs)],
        'graph_labels': [graph % 2 for graph in range(num_graphs)],
        'node_labels': [node % 7 for node in range(10 * num_graphs)],
        'edge_labels': [min(bond) % 4 for bond in bonds],
    }
    folder.mkdir(parents=True)
    for name, values in rows.items():
        (folder / f'MUTAG_{name}.txt').write_text(''.join(f'{value}\n' for value in values))


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")
@pytest.mark.filterwarnings('ignore:It is not recommended to directly access')  # GraphGym does
def test_graphs_with_labels_on_the_page(gym, monkeypatch, tmp_path):
    from torch_geometric.graphgym import create_loader, register
    from torch_geometric.graphgym.config import load_cfg
    from torch_geometric.graphgym.model_builder import create_model

    _, cfg = gym
    configuration, program = blocks_of_the_page('molecules')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(register, 'loader_dict', dict(register.loader_dict))
    write_molecules(tmp_path / 'data' / 'MUTAG' / 'raw', 40)
    Path('config.yaml').write_text(configuration)
    exec(program, {})
    cfg.gnn.head = 'default'
    load_cfg(cfg, argparse.Namespace(cfg_file='config.yaml', opts=['accelerator', 'cpu']))
    loaders, model = create_loader(), create_model()
    assert [len(loader.dataset) for loader in loaders] == [32, 4, 4]
    assert {int(graph.y) for graph in loaders[0].dataset} == {0, 1}
    model.training_step(next(iter(loaders[0])))['loss'].backward()
    grad = {name: parameter.grad for name, parameter in model.named_parameters()}
    (bonds,) = (name for name in grad if name.endswith('blocks.1.conv.lin.weight'))
    assert grad[bonds].abs().max() > 0


@pytest.mark.parametrize('name', ['kernel_attention', 'jaccard_subtractor_conv'])
@pytest.mark.parametrize('bias', [None, False, True])
def test_bias(gym, name, bias):
    """GraphGym has none before batch normalisation, unless the configuration says so."""
    from torch_geometric.graphgym.models.gnn import GNN

    module, cfg = gym
    cfg.gnn.layer_type = name
    if bias is not None:
        cfg.lgt.bias = bias
    (layer, _) = (part for part in GNN(6, 3).modules() if isinstance(part, module.LAYERS[name]))
    assert (layer.lin_query.bias is not None) == bool(bias)


def with_edge_features(width=4):
    graphs = batch()
    return graphs.update({'edge_attr': torch.randn(graphs.num_edges, width)})


@pytest.mark.parametrize('name', ['gps_conv', 'global_attention'])
@pytest.mark.parametrize('conv', ['GATv2Conv', 'GINEConv'])
def test_features_of_edges_in_the_gps_layer(gym, name, conv):
    from torch_geometric.graphgym.models.gnn import GNN

    _, cfg = gym
    cfg.gnn.layer_type, cfg.lgt.conv, cfg.lgt.edge_channels = name, conv, 4
    model, graphs = GNN(6, 3).eval(), with_edge_features()
    other = graphs.clone().update({'edge_attr': graphs.edge_attr + 1})
    assert not torch.allclose(model(graphs)[0], model(other)[0])
    with pytest.raises(ValueError, match=r"'edge_attr' must have shape \(40, 4\) \(got None\)"):
        model(batch())
    with pytest.raises(ValueError, match=r"'edge_attr' must have shape .* \(got \(40, 3\)\)"):
        model(with_edge_features(3))


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'conv': 'GCNConv', 'edge_channels': 4}, "'conv' must take features of edges"),
        ({'conv': None, 'edge_channels': 4}, "'lgt.edge_channels' must be 0 without message pass"),
        (
            {'conv': 'GATConv', 'conv_kwargs': {'edge_dim': 4}},
            r"'lgt.conv_kwargs' must not have 'edge_dim' \(got 4\); set 'lgt.edge_channels'",
        ),
        (
            {'conv': 'GINEConv', 'edge_channels': '4'},
            r"'lgt.edge_channels' must be at least 0, a whole number \(got '4'\)",
        ),
        ({'conv': 'GINEConv'}, "'conv' must be a layer that needs only .* set 'edge_channels'"),
    ],
)
def test_features_of_edges_that_no_layer_reads(gym, options, message):
    from torch_geometric.graphgym import register
    from torch_geometric.graphgym.models.layer import new_layer_config

    _, cfg = gym
    config = new_layer_config(8, 8, 1, has_act=False, has_bias=True, cfg=cfg)
    with pytest.raises(ValueError, match=message):
        register.layer_dict['gps_conv'](config, **options)
