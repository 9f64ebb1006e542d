from collections import UserList

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.loader import HGTLoader, LinkNeighborLoader, NeighborLoader

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
DATA = Data(x=torch.eye(4), edge_index=EDGES)


def typed():
    data = HeteroData({'user': {'x': torch.eye(4)}, 'item': {'x': torch.eye(4)}})
    data['item', 'of', 'user'].edge_index = EDGES
    return data


@pytest.mark.parametrize('counts', [3, [2.5], {('a', 'to', 'a'): [2]}])
def test_numbers_of_neighbors(counts):
    message = "'num_neighbors' must be a list of whole numbers, one for each hop"
    with pytest.raises(ValueError, match=message):
        NeighborLoader(DATA, counts)


@pytest.mark.parametrize('counts', [3, [2.5], {'user': [1], 'item': 1}])
def test_numbers_of_samples(counts):
    with pytest.raises(ValueError, match="'num_samples' must be a list of whole numbers, one for"):
        HGTLoader(typed(), counts, 'user')


@pytest.mark.parametrize('make', [NeighborLoader, HGTLoader])
@pytest.mark.parametrize(
    ('seeds', 'message'),
    [
        (None, r"\(got 'NoneType'\)"),
        ('users', r"\(got 'users'\); did you mean 'user'\?"),
        (('users', torch.arange(2)), r"\(got 'users'\); did you mean 'user'\?"),
        (torch.arange(3), r"\(got 'Tensor'\)"),
    ],
)
def test_seeds_of_a_graph_with_types(make, seeds, message):
    data = typed()
    with pytest.raises(ValueError, match=rf"'input_nodes' must be one of .*'item'\], .*{message}"):
        make(data, [2], seeds)
    assert data.node_types == ['user', 'item']
    assert next(iter(make(data, [2], ('user', torch.arange(3)))))['user'].batch_size == 1


@pytest.mark.parametrize('kind', [list, tuple, np.array, UserList])  # the last as a table's column
def test_seeds_in_any_sequence(kind):
    """Bools were taken for the ids 0 and 1, and fractions were cut off, without an error."""
    mask, ids = kind([False, True, False, True]), kind([1, 3])
    for seeds in (mask, ids):
        assert NeighborLoader(DATA, [1], seeds).input_data.node.tolist() == [1, 3]
        loader = HGTLoader(typed(), [1], ('user', seeds))
        assert loader.input_data.node.tolist() == [1, 3]
        assert NeighborLoader(DATA, [1])(seeds).input_id.tolist() == [1, 3]
    assert NeighborLoader(DATA, [1], range(1, 3)).input_data.node.tolist() == [1, 2]
    with pytest.raises(ValueError, match="'input_nodes' must have whole numbers, ids of nodes"):
        NeighborLoader(DATA, [1], kind([0.5, 1.5]))


@pytest.mark.parametrize('dtype', [torch.uint8, torch.long])
def test_masks_of_numbers(dtype):
    """They were the ids 0 and 1, again and again."""
    mask = torch.tensor([0, 1, 0, 1], dtype=dtype)
    message = r"'input_nodes' must hold ids .* \(got a 0 or 1 for each of 4 nodes in torch\..*bool"
    for seeds in (mask, mask.numpy()):
        with pytest.raises(ValueError, match=message):
            NeighborLoader(DATA, [1], seeds)
        with pytest.raises(ValueError, match=message):
            HGTLoader(typed(), [1], ('user', seeds))
    with pytest.raises(ValueError, match="'index' must hold ids of nodes or be a mask of bools"):
        NeighborLoader(DATA, [1])(mask)
    assert NeighborLoader(DATA, [1], mask[:3]).input_data.node.tolist() == [0, 1, 0]
    two = Data(x=torch.eye(2), edge_index=EDGES[:, :1])
    assert NeighborLoader(two, [1], torch.tensor([1, 0])).input_data.node.tolist() == [1, 0]


@pytest.mark.parametrize(
    ('links', 'labels', 'message'),
    [
        (EDGES.t(), None, r"'edge_label_index' must have .* \(got \(5, 2\)\); transpose it"),
        (EDGES[0], None, r"'edge_label_index' must have shape \[2, E\] \(got \(5,\)\)"),
        (EDGES.float(), None, r"'edge_label_index' must be a tensor .* \(got torch.float32\)"),
        (EDGES.tolist(), None, r"'edge_label_index' must be a tensor .* \(got list\)"),
        (EDGES > 1, None, r"'edge_label_index' must be a tensor .* \(got torch.bool\)"),
        (EDGES, [1.0] * 5, r"'edge_label' must be a tensor \(got list\); convert it with"),
        (EDGES, torch.ones(4), r"'edge_label' must have a label for each of 5 links \(got 4\)"),
    ],
)
def test_links(links, labels, message):
    """PyG's loader takes the first two rows, whatever the shape is."""
    with pytest.raises(ValueError, match=message):
        LinkNeighborLoader(DATA, [2], links, edge_label=labels)
    if isinstance(links, torch.Tensor):
        with pytest.raises(ValueError, match=message):
            LinkNeighborLoader(typed(), [2], (('item', 'of', 'user'), links), edge_label=labels)


def test_links_of_a_graph_with_types_have_an_edge_type():
    """They ended in an assertion of PyG without a word, or in a KeyError of the first batch."""
    data, kind = typed(), ('item', 'of', 'user')
    new = ('item', 'near', 'user')
    for links, shown in (
        (None, 'None'),
        (EDGES, 'Tensor'),
        ((None, EDGES), 'None'),
        ('of', 'str'),
        (new, r"\('item', 'near', 'user'\)"),
        ((new, None), r"\('item', 'near', 'user'\)"),
        ((('items', 'of', 'user'), EDGES), r"\('items', 'of', 'user'\)"),
    ):
        message = rf"'edge_label_index' must be one of the edge types .*'of'.* \(got {shown}\)$"
        with pytest.raises(ValueError, match=message):
            LinkNeighborLoader(data, [2], links)
    for links in (kind, ('item', 'user'), (kind, None), (kind, EDGES), [kind, EDGES]):
        (batch,) = LinkNeighborLoader(data, [2], links, batch_size=5)
        assert batch[kind].edge_label_index.size(1) == 5
        with pytest.raises(ValueError, match=r"'edge_label' must have .* 5 links \(got 6\)"):
            LinkNeighborLoader(data, [2], links, edge_label=torch.ones(6))
    (batch,) = LinkNeighborLoader(data, [2], (new, EDGES), batch_size=5)  # a type without edges
    assert batch[new].edge_label_index.size(1) == 5


def test_edges_that_are_missing():
    data = typed()
    data['user', 'knows', 'user'].edge_attr = torch.ones(2, 1)
    message = r"have an 'edge_index' or an 'adj_t' .* neither for \('user', 'knows', 'user'\)"
    for make in (NeighborLoader, HGTLoader):
        with pytest.raises(ValueError, match=message):
            make(data, [2], 'user')
    nodes = Data(x=torch.eye(4))
    assert next(iter(NeighborLoader(nodes, [2], batch_size=3))).num_nodes == 3
    with pytest.raises(ValueError, match="'edge_label_index' must be given for data without edges"):
        LinkNeighborLoader(nodes, [2])
