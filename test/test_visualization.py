import builtins
import math
import pickle
import re

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.diagnostics import AttentionReport, attention_report
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
from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.transforms import JaccardScores
from torch_geometric_lgt.visualization import (
    _panels,
    _weights,
    plot_attention_report,
    plot_latent_structure,
)
from torch_geometric_lgt.visualization._weights import class_mass

PNG = b'\x89PNG\r\n'


@pytest.fixture
def data():
    """A path through each of two classes, and node 39 without an edge."""
    pairs = torch.stack([torch.arange(37), torch.arange(2, 39)])
    return Data(
        x=torch.randn(40, 6),
        edge_index=torch.cat([pairs, pairs.flip(0)], 1),
        y=torch.arange(40) % 2,
    )


@pytest.mark.parametrize('model', [NodeFormer, DIFFormer, SGFormer])
def test_figures_of_the_latent_structure(model, data, tmp_path):
    figure, structure = plot_latent_structure(
        model(6, 8, 2), data, tmp_path / 'structure.png', num_rows=40, num_edges=50
    )
    assert isinstance(figure, Figure)
    assert (tmp_path / 'structure.png').read_bytes().startswith(PNG)
    assert structure['components'] == 3
    assert 1 <= structure['components with learned edges'] <= 3
    assert structure['same class by chance'] == 0.5
    assert 0 < structure['edge mass'] < 1


def test_uniform_attention_has_the_shares_of_chance(data):
    model = NodeFormer(6, 8, 2, num_layers=1)
    for parameter in (*model.convs[0].lin_query.parameters(), *model.convs[0].lin_key.parameters()):
        torch.nn.init.zeros_(parameter)
    _, structure = plot_latent_structure(model, data, num_rows=40)
    assert structure['edge mass'] == pytest.approx(2 * 37 / 1600, rel=1e-5)
    assert structure['same class'] == pytest.approx(0.5, rel=1e-5)
    assert model.training


def drawn(model, data, **arguments):
    """The numbers of a plot, its figure and its panels, row by row."""
    figure, structure = plot_latent_structure(model, data, num_rows=data.num_nodes, **arguments)
    return structure, figure, figure.axes[:6]


def mean_weight(model, data):
    """The attention of all nodes in the last layer, the mean over the heads."""
    inputs = model.eval().layers(data.x, GraphContext(model.prepare_edges(data.edge_index, 40)))[
        :-1
    ]
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40)).flip(1).t()
    return model.convs[-1].attention_scores(inputs[-1], pairs).mean(1).view(40, 40)


@torch.no_grad()
def test_nodes_without_a_label_are_grey_and_in_no_class(data):
    data.y = torch.tensor([0, 1, -1, 2]).repeat(10)
    model = NodeFormer(6, 8, 3, num_layers=1)
    structure, figure, panels = drawn(model, data)
    weight = mean_weight(model, data)
    pairs = [(i, j) for i in range(40) for j in range(40) if data.y[i] >= 0 and data.y[j] >= 0]
    same = [float(weight[i, j]) for i, j in pairs if data.y[i] == data.y[j]]
    assert structure['same class'] == pytest.approx(
        sum(same) / sum(float(weight[i, j]) for i, j in pairs), rel=1e-5
    )
    assert structure['same class by chance'] == pytest.approx(1 / 3)
    for panel in panels[1:3]:
        grey, *coloured = (
            points for points in panel.collections if len(points.get_offsets()) in (10, 30)
        )
        assert (len(grey.get_offsets()), len(coloured[0].get_offsets())) == (10, 30)
        assert tuple(grey.get_facecolor()[0][:3]) == (0.75, 0.75, 0.75)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        'class 0',
        'class 1',
        'class 2',
        'no label',
    ]
    (image,) = panels[0].images
    mass = torch.as_tensor(image.get_array().data)
    expected = [
        [float(weight[data.y == k][:, data.y == label].sum(1).mean()) for label in (0, 1, 2, -1)]
        for k in range(3)
    ]
    torch.testing.assert_close(mass.double(), torch.tensor(expected).double(), rtol=1e-5, atol=1e-6)
    assert panels[0].get_xticklabels()[-1].get_text() == 'none'


def test_no_sampled_node_has_a_label(data):
    data.y = torch.full((40,), -1)
    data.y[7] = 1
    generator = torch.Generator().manual_seed(0)  # which does not draw node 7 first
    _, structure = plot_latent_structure(SGFormer(6, 8, 2), data, num_rows=1, generator=generator)
    assert math.isnan(structure['same class'])
    assert math.isnan(structure['same class by chance'])


@pytest.mark.parametrize('num_classes', [2, 15, 30])
def test_titles_labels_and_legends(num_classes):
    edges = torch.randint(120, (2, 300))
    data = Data(x=torch.randn(120, 6), edge_index=edges, y=torch.arange(120) % num_classes)
    _, figure, panels = drawn(NodeFormer(6, 8, 2), data)
    assert figure.get_suptitle() == 'NodeFormer on a graph of 120 nodes and 300 edges'
    assert all(panel.get_title() and panel.get_xlabel() and panel.get_ylabel() for panel in panels)
    bars = [axis.get_ylabel() for axis in figure.axes[6:]]
    assert bars == ['share of the attention', 'class'][: 1 + (num_classes == 30)]
    assert len(figure.legends) == (num_classes < 30)
    assert num_classes == 30 or len(figure.legends[0].get_texts()) == num_classes
    assert (
        drawn(NodeFormer(6, 8, 2), data, title='ours on mine')[1].get_suptitle() == 'ours on mine'
    )


def test_a_long_title_is_within_the_picture(data):
    figure = drawn(NodeFormer(6, 8, 2), data, title='one of many words ' * 10)[1]
    figure.draw_without_rendering()
    extent, picture = figure._suptitle.get_window_extent(), figure.bbox
    assert picture.x0 <= extent.x0
    assert extent.x1 <= picture.x1
    assert extent.y1 <= picture.y1


def test_learned_edges_lie_above_the_nodes_and_their_ends_are_ringed(data):
    _, _, panels = drawn(NodeFormer(6, 8, 2), data, num_edges=30)
    assert re.fullmatch(r'30 strongest edges: \d\.?\d* x uniform', panels[2].get_title())
    assert len(panels[2].lines) == 30
    nodes, rings = (points for points in panels[2].collections if len(points.get_offsets()) > 0)
    assert min(line.get_zorder() for line in panels[2].lines) > nodes.get_zorder()
    ends = {tuple(point) for line in panels[2].lines for point in line.get_xydata().tolist()}
    assert {tuple(point) for point in rings.get_offsets().tolist()} == ends
    assert len(rings.get_facecolor()) == 0


@pytest.mark.parametrize('model', [NodeFormer, SGFormer])
@torch.no_grad()
def test_no_point_lies_where_nothing_was_measured(model, data):
    model = model(6, 8, 2)
    received = mean_weight(model, data).sum(0)
    _, _, panels = drawn(model, data)
    points = torch.as_tensor(panels[3].lines[0].get_xydata())
    degrees = torch.bincount(data.edge_index[1], minlength=40)
    some = received > 0
    torch.testing.assert_close(
        points, torch.stack([degrees[some], received[some]], 1).double(), rtol=1e-4, atol=1e-6
    )
    assert points[:, 0].min() == 0
    low, high = panels[3].get_xlim()
    assert low < 0 < high


def test_strongest_edges_and_their_multiples_of_uniform_weights():
    weight = torch.tensor([[0.1, 0.6, 0.3, 0.0], [0.0, 0.7, 0.05, 0.25]])
    pairs, multiples = _weights.strongest(weight, torch.tensor([0, 1]), 2)
    assert pairs.tolist() == [[1, 2], [0, 0]]
    torch.testing.assert_close(multiples, torch.tensor([2.4, 1.2]))
    axis = Figure().subplots()
    _panels.draw_learned(axis, np.zeros((4, 2)), pairs, multiples)
    assert axis.get_title() == '2 strongest edges: 1.8 x uniform'
    _panels.draw_learned(axis, np.zeros((4, 2)), pairs[:, :0], multiples[:0])
    assert axis.get_title() == '0 strongest edges'


@pytest.mark.parametrize(
    ('weights', 'scale'), [([1.0, 1.02, 0.98], 'linear'), ([1.0, 0.01, 4.0], 'log')]
)
def test_logarithms_only_where_values_differ_by_much(weights, scale):
    axis = Figure().subplots()
    weight = torch.tensor([weights])
    _panels.draw_received(axis, weight, torch.tensor([2.0, 20.0, 30.0]))
    assert axis.get_yscale() == scale
    names = {label.get_text() for label in axis.get_xticklabels(which='both')}
    assert names >= {'2', '5', '10', '20'}
    assert not names & {'3', '4', '30', '40'}


def test_nodes_that_receive_nothing_are_counted():
    axis = Figure().subplots()
    weight = torch.tensor([[0.5, 0.5, 0.0, -0.1], [1.0, 0.0, 0.0, 0.0]])
    _panels.draw_received(axis, weight, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert axis.lines[0].get_xydata().tolist() == [[1.0, 3.0], [2.0, 1.0]]
    assert axis.get_title() == 'attention by degree\n(2 nodes get none)'


def test_plot_of_a_report(data, tmp_path):
    report = attention_report(DIFFormer(6, 8, 2, 3), data.x, data.edge_index)
    report[1]['others'] = None  # as in a call with a pair
    figure = plot_attention_report(report, tmp_path / 'report.png')
    assert (tmp_path / 'report.png').read_bytes().startswith(PNG)
    (panel,) = figure.axes
    names = [label.get_text() for label in panel.get_xticklabels()]
    assert names == ['convs.0', 'convs.1', 'convs.2']
    others, beyond_mean, _ = (line.get_ydata() for line in panel.lines)
    assert [math.isnan(value) for value in others] == [False, True, False]
    assert list(beyond_mean) == [row['beyond mean'] for row in report]
    assert figure.axes[0].get_ylim() == (-0.02, 1.05)
    with pytest.raises(ValueError, match="'report' must have a layer"):
        plot_attention_report(AttentionReport(), tmp_path / 'none.png')
    with pytest.raises(TypeError, match=r"'report' must be the AttentionReport .* \(got str\)"):
        plot_attention_report('report.png')
    with pytest.raises(ValueError, match=r"'path' must end in \.png \(got 'report\.pdf'\); write"):
        plot_attention_report(report, 'report.pdf')


def test_plot_of_a_report_shows_measures_beyond_0_and_1():
    """Signed weights have such measures; the points were cut off."""
    row = {'layer': 'convs.0', 'others': -1.0, 'beyond mean': 3.0, 'entropy': 0.5}
    rows = [row, row | {'beyond mean': math.inf}]  # outputs of 0
    figure = plot_attention_report(AttentionReport(rows))
    assert figure.axes[0].get_ylim() == pytest.approx((-1.08, 3.2))


def test_figures_without_a_file(data, tmp_path, monkeypatch):
    """Notebooks ask a figure for its PNG, and processes send a figure as a pickle."""
    monkeypatch.chdir(tmp_path)
    model = DIFFormer(6, 8, 2)
    report = attention_report(model, data.x, data.edge_index)
    for figure in (plot_attention_report(report), plot_latent_structure(model, data)[0]):
        assert figure._repr_png_().startswith(PNG)
        assert pickle.loads(pickle.dumps(figure))._repr_png_() == figure._repr_png_()
    assert list(tmp_path.iterdir()) == []


class Model(torch.nn.Module):
    """Two attention layers, and an output for all nodes or for the graph."""

    def __init__(self, pools=False):
        super().__init__()
        self.first = KernelAttentionConv(6, 8)
        self.last = KernelAttentionConv(8, 1, feature_map='elu')
        self.pools = pools

    def forward(self, x, scale=1.0):
        self.nodes = scale * self.last(self.first(x))
        return self.nodes.mean(0) if self.pools else torch.cat([self.nodes, x], 1)


@pytest.mark.parametrize('pools', [False, True])
def test_positions_of_the_nodes(pools, data):
    """From the output of the model, or of the layer if the model's has no rows of nodes."""
    model = Model(pools)
    _, _, panels = drawn(model, data, args=[data.x], scale=2.0)
    points = torch.as_tensor(panels[1].collections[0].get_offsets().data)
    expected = model(data.x, 2.0).detach().double()
    if pools:
        expected = model.nodes.detach().double() / 2
        assert (points[:, 1] == 0).all()
    expected = expected - expected.mean(0)
    gram = expected @ torch.linalg.svd(expected, full_matrices=False)[2][:2].t()
    torch.testing.assert_close(points @ points.t(), gram @ gram.t(), rtol=1e-4, atol=1e-6)


def test_layers_are_counted_by_their_calls(data):
    model = Model()
    report = attention_report(model, data.x)
    assert [row['layer'] for row in report] == ['first', 'last']
    first, last, third = (drawn(model, data, args=[data.x], layer=layer)[0] for layer in (0, 1, -1))
    assert first != last == third
    with pytest.raises(ValueError, match=r"'layer' must be one of 2 \(got -3\)"):
        plot_latent_structure(model, data, layer=-3, args=[data.x])


def test_attention_to_neighbours(data):
    """All attention is on edges, all of which are learned edges."""
    data = JaccardScores()(data)
    model = LiteGT(6, 8, 2, num_layers=2, heads=2)
    structure, _, panels = drawn(model, data, edge_jaccard=data.edge_jaccard)
    assert structure['edge mass'] == pytest.approx(1)
    assert structure['same class'] == pytest.approx(1)
    assert structure['components'] == structure['components with learned edges'] == 3
    assert panels[2].get_title().startswith('74 strongest edges: ')
    assert panels[3].get_title() == 'attention by degree\n(1 node gets none)'


def test_calls_over_other_nodes_are_named(data):
    conv = JaccardSubtractorConv(6, 8, 2, kernel='mean')
    with pytest.raises(ValueError, match="'data' must have an edge into one of the sampled nodes"):
        plot_latent_structure(conv, data, args=[data.x, data.edge_index[:, :0]])
    edges, y = torch.tensor([[0, 0], [3, 4]]), torch.zeros(7, dtype=torch.long)
    users = Data(edge_index=edges, y=y)
    with pytest.raises(ValueError, match=r"over the 7 nodes of 'data' .got layers.0 with 7 .* 3 t"):
        plot_latent_structure(MGFormer(3, 4, 8), users, args=[edges])


def test_multihead_attention(data):
    """Its weights are drawn for one graph; several are sorted before they reach torch's layer."""
    model = GraphTransformer(6, 8, 2, attn_type='multihead').eval()
    structure = drawn(model, data)[0]
    assert 0 < structure['edge mass'] < 1
    batch = torch.arange(data.num_nodes) % 2
    with pytest.raises(ValueError, match=r"'batch' must be None for blocks\.\d\.attn"):
        plot_latent_structure(model, data, batch=batch)


def test_graphs_of_a_batch_do_not_attend_to_each_other(data):
    """Without the batch vector the model was drawn on one graph, without an error."""
    model, data.batch = SGFormer(6, 8, 2, norm='row'), torch.arange(40) // 20
    data.edge_index = data.edge_index[:, data.batch[data.edge_index].diff(dim=0)[0] == 0]
    with pytest.raises(ValueError, match=r"'data' must be one graph \(got a batch of several in"):
        plot_latent_structure(model, data)
    drawn_batch = plot_latent_structure(model, data, batch=data.batch, num_rows=40)[1]
    assert drawn_batch['components with learned edges'] >= 2
    given = plot_latent_structure(model, data, args=(data.x, data.edge_index, data.batch))[1]
    assert given['components with learned edges'] >= 2
    del data.batch
    assert plot_latent_structure(model, data)[1]['components'] == drawn_batch['components']


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
    _, structure = plot_latent_structure(
        model,
        Data(x=data.x, edge_index=data.edge_index, y=data.y[:, None]),
        path,
        generator=torch.Generator(),
    )
    assert structure['same class by chance'] == pytest.approx(0.5)
    for change, message in (
        ({'y': None}, "'data' must have 'y' as a tensor .got NoneType"),
        ({'edge_index': None}, "'data' must have 'edge_index' as a tensor"),
        ({'y': data.y - 2}, "'data' must have a class from 0 on in 'y'"),
        (
            {'y': torch.full((40,), -1)},
            "'data' must have a class from 0 on in 'y' .*, or -1 where there is none",
        ),
        ({'y': data.y.float()}, "'data' must have a class from 0 on in 'y' .*float32"),
        ({'y': data.y[1:]}, "'data' must have a class from 0 on in 'y'"),
        (
            {'x': data.x[:1], 'y': data.y[:1]},
            "'data' must have a class from 0 on in 'y' for each of at least two nodes",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            plot_latent_structure(model, Data(**{**data.to_dict(), **change}), path)
    for edges, message in (
        (data.edge_index.t(), r"'edge_index' must have shape \[2, E\]"),
        (data.edge_index - 1, "'edge_index' must hold source ids from 0 to 39"),
    ):
        other = Data(edge_index=edges, y=data.y)
        with pytest.raises(ValueError, match=message):
            plot_latent_structure(model, other, args=(data.x, data.edge_index))
    with pytest.raises(ValueError, match=r"'layer' must be one of 1 \(got 9\)"):
        plot_latent_structure(model, data, path, layer=9)
    with pytest.raises(ValueError, match=r"'path' must end in \.png \(got '.*structure'\); write"):
        plot_latent_structure(model, data, path.with_suffix(''))
    for graph, name in ((data.x, 'Tensor'), (model, 'SGFormer'), (HeteroData(), 'HeteroData')):
        with pytest.raises(TypeError, match=rf"'data' must be a .*Data with .* \(got {name}\)$"):
            plot_latent_structure(model, graph)


def test_numbers_that_cannot_be_drawn_are_named(data, tmp_path):
    model, path = SGFormer(6, 8, 2), tmp_path / 'structure.png'
    for arguments, message in (
        ({'num_rows': 0}, "'num_rows' must be at least 1, a whole number .got 0"),
        ({'num_rows': 2.5}, "'num_rows' must be at least 1, a whole number .got 2.5"),
        ({'num_edges': -3}, "'num_edges' must be at least 0, a whole number .got -3"),
        ({'num_edges': None}, "'num_edges' must be at least 0, a whole number .got None"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_latent_structure(model, data, path, **arguments)
    _, structure = plot_latent_structure(model, data, path, num_edges=0)
    assert structure['components'] == structure['components with learned edges']


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_features_that_are_not_finite_are_not_drawn(data, tmp_path, value):
    x = data.x.clone()
    x[3, 1] = value
    with pytest.raises(
        ValueError, match="'model' must have finite attention and outputs on 'data'"
    ):
        plot_latent_structure(
            SGFormer(6, 8, 2),
            Data(x=x, edge_index=data.edge_index, y=data.y),
            tmp_path / 'structure.png',
        )
    assert not (tmp_path / 'structure.png').exists()


def test_classes_are_whole_numbers_of_any_size():
    weight, rows = torch.full((2, 4), 0.25, dtype=torch.double), torch.tensor([0, 3])
    y = torch.tensor([0, 1, 1, 1])
    for dtype in (torch.int32, torch.uint8, torch.int64):
        assert class_mass(weight, y.to(dtype), rows).tolist() == [[0.25, 0.75], [0.25, 0.75]]
