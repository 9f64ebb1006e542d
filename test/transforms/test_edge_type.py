"""Transforms on the edges of one type: equal to those of a graph that has only these."""

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData

from torch_geometric_lgt.diagnostics import check_fresh
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    RandomSignFlip,
    SVDEncoding,
)

KNOWS, BUYS = ('user', 'knows', 'user'), ('user', 'buys', 'item')
MAKE = {
    'jaccard': lambda **options: JaccardScores(**options),
    'minhash': lambda **options: JaccardScores(
        num_hashes=8, generator=torch.Generator().manual_seed(0), **options
    ),
    'sampling': lambda **options: AttentionNodeSampling(factor=2, **options),
    'laplacian': lambda **options: LaplacianPE(3, **options),
    'laplacian-columns': lambda **options: LaplacianPE(3, attr_name=None, **options),
    'svd': lambda **options: SVDEncoding(3, **options),
    'svd-columns': lambda **options: SVDEncoding(3, None, normalize=True, **options),
}


def graphs(seed=0, num_users=20):
    """A graph with items, and the part of it that has users only."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_users, (2, 70), generator=generator)
    x = torch.randn(num_users, 2, generator=generator)
    data = HeteroData({'user': {'x': x}, 'item': {'x': torch.randn(9, 2)}})
    data[KNOWS].edge_index = edges
    data['user', 'likes', 'user'].edge_index = edges.flip(0)[:, :30]
    data[BUYS].edge_index = torch.randint(9, (2, 40), generator=generator)
    return data, Data(x=x, edge_index=edges)


def check_same(out, data, expected):
    """The stores of users and their edges have what the graph of users has; no other changed."""
    found = {**out['user'], **out[KNOWS]}
    assert set(found) == set(expected.keys())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)
    for store, before in zip(out.stores, data.stores, strict=True):
        if store._key not in ('user', KNOWS):
            assert set(store.keys()) == set(before.keys())


@pytest.mark.parametrize('name', MAKE)
def test_equal_to_the_homogeneous_graph(name):
    data, users = graphs()
    out, expected = MAKE[name](edge_type=KNOWS)(data), MAKE[name]()(users)
    check_same(out, data, expected)
    assert len({**out['user'], **out[KNOWS]}) > 2 or name.endswith('columns')
    assert set(data['user'].keys()) == {'x'}
    assert data['user'].x.size(1) == 2
    if name != 'minhash':
        check_fresh(out, [] if name.endswith('columns') else [MAKE[name](edge_type=KNOWS)])


@pytest.mark.parametrize('name', ['sampling', 'laplacian'])
def test_batches_of_graphs(name):
    pairs = [graphs(seed, num_users) for seed, num_users in enumerate((20, 5, 11))]
    for data, users in pairs:
        data[KNOWS].edge_index %= data['user'].num_nodes
        users.edge_index = data[KNOWS].edge_index
    together, users = (Batch.from_data_list(list(part)) for part in zip(*pairs, strict=True))
    out, expected = MAKE[name](edge_type=KNOWS)(together), MAKE[name]()(users)
    for key in set(expected.keys()) - set(users.keys()):
        torch.testing.assert_close(out['user'][key], expected[key], rtol=0, atol=0)


def test_signs_of_one_type():
    """Equal to those of the batch of graphs that have only these nodes."""
    pairs = [graphs(seed) for seed in range(6)]
    together, users = (Batch.from_data_list(list(part)) for part in zip(*pairs, strict=True))
    state = torch.get_rng_state()
    out, expected = (
        RandomSignFlip('x', torch.Generator().manual_seed(0), node_type)(data)
        for data, node_type in ((together, 'user'), (users, None))
    )
    assert torch.equal(out['user'].x, expected.x)
    assert torch.equal(torch.get_rng_state(), state)
    signs = (out['user'].x / together['user'].x)[together['user'].ptr[:-1]]
    assert sorted(set(signs.flatten().tolist())) == [-1, 1]
    assert torch.equal(out['item'].x, together['item'].x)
    assert torch.equal(together['user'].x, users.x)


def test_types_of_nodes_that_are_refused():
    data, users = graphs()
    for node_type in ('tag', None, KNOWS):
        with pytest.raises(
            ValueError, match=r"'node_type' must be one of \['user', 'item'\] \(got"
        ):
            RandomSignFlip('x', node_type=node_type)(data)
    with pytest.raises(ValueError, match=r"'node_type' must be None for a Data \(got 'user'\)"):
        RandomSignFlip('x', node_type='user')(users)
    with pytest.raises(ValueError, match="'data' must have the attribute 'laplacian_pe'"):
        RandomSignFlip(node_type='user')(data)
    assert repr(RandomSignFlip('x', node_type='user')) == "RandomSignFlip('x', node_type='user')"


def test_cached_columns(tmp_path):
    data, users = graphs()
    for transform in (LaplacianPE, SVDEncoding):
        expected = transform(3, cache_dir=tmp_path)(users)
        files = set(tmp_path.iterdir())
        check_same(transform(3, cache_dir=tmp_path, edge_type=KNOWS)(data), data, expected)
        assert set(tmp_path.iterdir()) == files


@pytest.mark.parametrize('name', MAKE)
def test_types_that_are_refused(name):
    data, users = graphs()
    with pytest.raises(
        ValueError,
        match=r"join nodes of one type \(got \('user', 'buys', 'item'\), which is bipartite\)",
    ):
        MAKE[name](edge_type=BUYS)
    for edge_type in ('knows', ('user', 'user'), (1, 2, 1), ['user', 'knows', 'user']):
        with pytest.raises(ValueError, match=r"'edge_type' must be a triplet of names, as \('us"):
            MAKE[name](edge_type=edge_type)
    with pytest.raises(ValueError, match=r"'edge_type' must be one of .* \(got \('tag', 'on', 'ta"):
        MAKE[name](edge_type=('tag', 'on', 'tag'))(data)
    with pytest.raises(ValueError, match=r"'edge_type' must be None for a Data \(got \('user',"):
        MAKE[name](edge_type=KNOWS)(users)
    assert repr(MAKE[name](edge_type=KNOWS)).endswith(", edge_type=('user', 'knows', 'user'))")
