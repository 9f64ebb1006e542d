import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms.add_positional_encoding import add_node_attr

from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
    RandomSignFlip,
    SVDEncoding,
)


@pytest.mark.parametrize('transform', [AttentionNodeSampling(), JaccardScores(), LaplacianPE(2)])
def test_several_types_of_nodes_are_refused(transform):
    data = HeteroData()
    data['user'].num_nodes = data['item'].num_nodes = 3
    data['user', 'item'].edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(
        ValueError,
        match=r"'edge_type' must be one of \[\('user', 'to', 'item'\)\] \(got None\); use to_homog",
    ):
        transform(data)
    data['item', 'user'].edge_index = data['user', 'item'].edge_index.flip(0)
    assert len(transform(data.to_homogeneous()).keys()) > len(data.to_homogeneous().keys())


@pytest.mark.parametrize('transform', [NodeDegree(), SVDEncoding(2)])
@pytest.mark.parametrize('known', ['user', None])
def test_a_node_type_without_attributes_is_named(transform, known):
    """PyG has no store for it. SVDEncoding took its nodes for those of the other type."""
    data = HeteroData()
    if known is not None:
        data[known].x = torch.randn(3, 2)
    data['user', 'rates', 'item'].edge_index = torch.tensor([[0, 1], [1, 2]])
    data['item', 'rated_by', 'user'].edge_index = torch.tensor([[1, 2], [0, 1]])
    missing = 'user' if known is None else 'item'
    with pytest.raises(
        ValueError,
        match=rf"'data' must know the number of nodes of '{missing}' \(got None\); set "
        rf"data\['{missing}'\]\.num_nodes",
    ):
        transform(data)
    data['user'].num_nodes = data['item'].num_nodes = 3
    assert len(transform(data)['item']) > 1


EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


@pytest.mark.parametrize(
    'x',
    [
        None,
        torch.randn(4, 3),
        torch.randn(4),
        torch.randn(4, 2).double(),
        torch.randn(4, 2).bfloat16(),
    ],
)
@pytest.mark.parametrize(
    'make',
    [
        NodeDegree,
        lambda name='pe': LaplacianPE(2, attr_name=name),
        lambda name='pe': SVDEncoding(2, name),
    ],
)
def test_columns_of_x_in_place_of_an_attribute(make, x):
    """As PyG adds encodings: appended to x in its dtype, or as x; no mask."""
    data = Data(x=x, edge_index=EDGES, num_nodes=4)
    value = make('value')(data).value
    value = value if value.dim() == 2 else value[:, None].float()
    out = make(None)(data)
    expected = add_node_attr(Data(x=x, edge_index=EDGES, num_nodes=4), value)
    torch.testing.assert_close(out.x, expected.x, rtol=0, atol=0)
    assert set(out.keys()) == {'x', 'edge_index', 'num_nodes'}
    assert x is None or data.x is x


def test_columns_of_x_of_a_batch():
    data = Data(x=torch.randn(4, 3), edge_index=EDGES)
    together = LaplacianPE(2, attr_name=None)(Batch.from_data_list([data, data])).x
    torch.testing.assert_close(together, LaplacianPE(2, attr_name=None)(data).x.repeat(2, 1))


def test_columns_of_both_types_of_nodes():
    data = HeteroData()
    data['user'].x, data['item'].num_nodes = torch.randn(4, 1), 5
    data['user', 'item'].edge_index = EDGES
    named = NodeDegree()(SVDEncoding(2)(data))
    out = NodeDegree(None)(SVDEncoding(2, None)(data))
    assert torch.equal(
        out['user'].x,
        torch.cat([data['user'].x, named['user'].svd_pe, named['user'].degree[:, None]], 1),
    )
    assert torch.equal(
        out['item'].x, torch.cat([named['item'].svd_pe, named['item'].degree[:, None]], 1)
    )
    assert None not in out.to_dict()
    assert 'None_mask' not in out.to_dict()['_global_store']


def test_features_that_take_no_columns():
    for x in (
        torch.arange(4)[:, None],
        torch.eye(4).to_sparse_csr(),
        torch.eye(4).to_sparse(),
        torch.ones(4, 2, 2),
    ):
        for transform in (LaplacianPE(1, attr_name=None), SVDEncoding(1, None)):
            with pytest.raises(
                ValueError,
                match=(
                    r"'x' must be dense, of at most two dimensions and of a dtype that holds "
                    r"torch.float32 .* set 'attr_name'"
                ),
            ):
                transform(Data(x=x, edge_index=EDGES))
    message = r"'x' must have a row for each of 6 nodes of the data \(got 4\); correct 'x' or"
    with pytest.raises(ValueError, match=message):
        NodeDegree(None)(Data(x=torch.eye(4), edge_index=EDGES, num_nodes=6))
    whole = NodeDegree(None)(Data(x=torch.arange(4)[:, None], edge_index=EDGES)).x
    assert whole.tolist() == [[0, 1], [1, 2], [2, 2], [3, 1]]


NAMING = [
    NodeDegree,
    JaccardScores,
    lambda attr_name: AttentionNodeSampling(attr_name=attr_name),
    lambda attr_name: LaplacianPE(1, attr_name=attr_name),
    lambda attr_name: SVDEncoding(1, attr_name),
]


@pytest.mark.parametrize('make', NAMING)
def test_the_structure_and_the_inputs_of_a_graph_are_not_replaced(make):
    for name in ('edge_index', 'batch', 'minibatch', 'my_index', 'face', 'num_nodes', 'keys'):
        with pytest.raises(ValueError, match=f"'attr_name' must have neither .* '{name}'\\)"):
            make(name)
    for name in ('my pe', '3d', '_store'):
        with pytest.raises(ValueError, match=f"'attr_name' must be a name of letters.* '{name}'"):
            make(name)
    for name in ('x', 'y', 'edge_attr'):
        data = Data(edge_index=EDGES, num_nodes=4)
        assert name in make(name)(data.clone())
        data[name] = torch.zeros(4)
        message = f"'attr_name' must be no input of the data \\(got '{name}'"
        with pytest.raises(ValueError, match=message):
            make(name)(data)


@pytest.mark.parametrize('make', [LaplacianPE, SVDEncoding])
def test_the_masks_of_a_split_are_not_replaced(make):
    """The mask of the encodings took the place of that of the nodes."""
    data = Data(edge_index=EDGES, num_nodes=4)
    assert 'train_mask' in make(2, attr_name='train')(data.clone())
    data.train_mask = torch.ones(4, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"\(got 'train' with the mask 'train_mask', which the"):
        make(2, attr_name='train')(data)


@pytest.mark.parametrize('make', [JaccardScores, AttentionNodeSampling, RandomSignFlip])
@pytest.mark.parametrize('name', [None, '', 3])
def test_masks_and_values_of_edges_need_a_name(make, name):
    with pytest.raises(ValueError, match=r"'attr_name' must be a name \(got"):
        make(attr_name=name)


@pytest.mark.parametrize(
    'make',
    [
        NodeDegree,
        lambda attr_name: LaplacianPE(1, attr_name=attr_name),
        lambda attr_name: SVDEncoding(1, attr_name),
    ],
)
def test_values_of_nodes_need_a_name_or_none(make):
    for name in ('', 3):
        with pytest.raises(
            ValueError, match="'attr_name' must be a name, or None for columns of x"
        ):
            make(attr_name=name)


@pytest.mark.parametrize(
    ('dtype', 'degree'),
    [
        (torch.uint8, 300),
        (torch.int8, 128),
        (torch.int16, 40_000),
        (torch.bool, 2),
        (torch.half, 70_000),
        (torch.float8_e5m2, 70_000),
    ],
)
def test_features_whose_dtype_is_too_small_take_no_columns(dtype, degree):
    star = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.long)])
    data = Data(x=torch.zeros(degree + 1, 1, dtype=dtype), edge_index=star)
    with pytest.raises(
        ValueError,
        match=(
            rf"'x' must have a dtype that holds the new columns \(got {dtype} for {degree}\); "
            r"set 'attr_name'"
        ),
    ):
        NodeDegree(None)(data)
    assert NodeDegree()(data).degree.tolist() == [degree, *[1] * degree]


@pytest.mark.parametrize(
    ('dtype', 'degree'),
    [(torch.uint8, 255), (torch.int8, 127), (torch.half, 65_504), (torch.bool, 1)],
)
def test_the_largest_value_of_a_dtype_is_appended(dtype, degree):
    star = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.long)])
    out = NodeDegree(None)(Data(x=torch.ones(degree + 1, 1, dtype=dtype), edge_index=star)).x
    assert out.dtype == dtype
    assert out[:, 1].tolist() == [degree, *[1] * degree]


@pytest.mark.parametrize(
    'transform', [LaplacianPE(2), SVDEncoding(2), NodeDegree(), RandomSignFlip()], ids=str
)
def test_a_list_of_graphs_is_refused(transform):
    with pytest.raises(TypeError, match=r"'data' must be a Data, HeteroData or Batch \(got list\)"):
        transform([Data(edge_index=torch.zeros(2, 1).long(), num_nodes=1)])


def test_a_data_set_is_refused(tmp_path):
    dataset = SBMDataset(tmp_path, 'CLUSTER', num_graphs=1)
    with pytest.raises(
        TypeError,
        match=r'\(got SBMDataset\); give a graph of the data set, such as dataset\[0\]$',
    ):
        LaplacianPE(2)(dataset)
    assert LaplacianPE(2)(dataset[0]).laplacian_pe.size(1) == 2


def test_a_file_as_a_folder_of_results_is_refused(tmp_path, monkeypatch):
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    (tmp_path / 'notes.txt').write_text('x')
    with pytest.raises(ValueError, match=r"'cache_dir' must be a folder .*notes\.txt"):
        JaccardScores(cache_dir=tmp_path / 'notes.txt')(data)
    monkeypatch.setenv('HOME', str(tmp_path))
    JaccardScores(cache_dir='~/scores')(data)
    assert len([*(tmp_path / 'scores').glob('*.safetensors')]) == 1
