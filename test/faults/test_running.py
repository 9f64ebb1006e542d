"""Large and awkward data, and machines that lack something."""

import subprocess
import sys

import fault_works as works
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from benchmarks.recommendation.models import GraphEncoder, bpr
from benchmarks.recommendation.ranking import Scoring, evaluate
from torch_geometric_lgt.datasets import InteractionDataset
from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.loader import NeighborLoader, NodePartitionLoader
from torch_geometric_lgt.nn import MGFormer


@pytest.mark.fault('hub', 'Costs what the smaller neighbourhood of each edge costs.')
def test_hub_of_a_million_neighbours():
    leaves = torch.arange(1, 1_000_001)
    edges = torch.cat(
        [torch.stack([torch.zeros_like(leaves), leaves]), torch.tensor([[1], [2]])], 1
    )
    actual = jaccard(edges, 1_000_001)  # all pairs of neighbours would be 10^12
    torch.testing.assert_close(
        actual[[0, 5, -1]], torch.tensor([1 / 1_000_001, 0, 1 / 3], dtype=actual.dtype)
    )


@pytest.mark.fault('many-pairs', 'Pairs are numbered in int64.')
def test_more_pairs_than_int32_counts():
    small = torch.tensor([[0, 1, 2, 0, 3, 3], [1, 2, 0, 3, 1, 1]])
    names = torch.tensor([0, 1_400_000, 2_800_000, 2_999_999])
    assert degrees(names[small], 3_000_000)[names].tolist() == degrees(small, 4).tolist()
    torch.testing.assert_close(jaccard(names[small], 3_000_000), jaccard(small, 4))
    torch.testing.assert_close(jaccard(small, 4), jaccard(small[:, [0, 1, 2, 3, 4, 4]], 4))


@pytest.mark.fault(
    'short-ranking',
    (
        'A user without wanted items does not count; where fewer than K items are left, they are '
        'the '
        'ranking.'
    ),
)
def test_users_without_pairs_and_few_items():
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 1.0, 1.0]])
    seen = torch.tensor([[0, 0, 3, 3, 3], [0, 1, 0, 1, 2]])  # user 1 and 2 chose none, user 3 all
    wanted = torch.tensor([[0, 2], [2, 0]])  # users 1 and 3 want nothing
    scoring = Scoring(lambda users: scores[users].clone(), {'inner': torch.ones(3)})
    (actual,) = evaluate(scoring, wanted, seen, 4, k=2).values()
    # user 0 has one item left, the wanted one; user 2's is third
    assert actual['recall@2'] == pytest.approx(1 / 2)
    model = MGFormer(4, 3, 8)
    edges = torch.tensor([[0, 1, 4, 5], [4, 5, 0, 1]])
    assert model.recommend(edges, k=3).sort(1).values.tolist() == [[4, 5, 6]] * 4
    with pytest.raises(ValueError, match="'k' must be at most 3"):
        model.recommend(edges, k=4)


@pytest.mark.fault(
    'split-overlap',
    'A pair in two parts ends in an error with the pair; repeated pairs count once.',
)
def test_pairs_in_two_parts(tmp_path):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'train.txt').write_text('0 1 2 2\n1 1\n')
    (tmp_path / 'mine' / 'test.txt').write_text('0 2 3\n')
    with pytest.raises(ValueError, match='1 pairs in two parts, as user 0 and item 2'):
        InteractionDataset(tmp_path, 'mine')
    (tmp_path / 'mine' / 'test.txt').write_text('0 3\n')
    data = InteractionDataset(tmp_path, 'mine')[0]
    parts = [
        data['user', 'rates', 'item'][f'{name}_edge_label_index']
        for name in ('train', 'valid', 'test')
    ]
    assert sum(part.size(1) for part in parts) == 4


@pytest.mark.fault(
    'no-negatives',
    'Negative items are drawn once, from all: there is no loop that looks for better ones.',
)
def test_user_who_chose_everything():
    pairs = torch.tensor([[0, 0, 0], [0, 1, 2]])
    encoder = GraphEncoder(pairs, 1, 3, 4, 1)
    assert bpr(encoder, pairs + torch.tensor([[0], [1]]), 1, 0.0).isfinite()


@pytest.mark.fault(
    'uneven-processes',
    (
        'NodePartitionLoader makes batches of one size, give or take a node: none is left with a '
        'single row to normalise.'
    ),
)
@pytest.mark.parametrize('name', ['sgformer', 'litegt'])
def test_one_node_more_than_batches_hold(name):
    model = works.MODELS[name]().train()
    loader = NodePartitionLoader(works.graph(41), batch_size=10)
    assert sorted(batch.num_nodes for batch in loader) == [8, 8, 8, 8, 9]
    for batch in loader:
        assert model(batch.x, batch.edge_index).isfinite().all()


class Sorted(BaseTransform):
    """Puts the nodes in the order of their ids."""

    def forward(self, data):
        order = data.n_id.argsort()
        data.n_id, data.x = data.n_id[order], data.x[order]
        data.edge_index = order.argsort()[data.edge_index]
        return data


class Dropped(BaseTransform):
    def __init__(self, *names):
        self.names = names

    def forward(self, data):
        return Data(
            x=data.x, edge_index=data.edge_index, **{name: data[name] for name in self.names}
        )


@pytest.mark.fault(
    'seed-order', 'A ValueError that names the transform that moves or drops the seeds.'
)
@pytest.mark.parametrize(
    'transform', [Sorted(), Dropped(), Dropped('batch_size')], ids=['moved', 'dropped', 'unnamed']
)
def test_seeds_that_are_not_first(transform):
    loader = NeighborLoader(
        works.graph(),
        [3],
        batch_size=4,
        input_nodes=torch.tensor([30, 2, 17, 9]),
        transform=transform,
    )
    with pytest.raises(ValueError, match="'transform' must leave the seed nodes of a batch first"):
        next(iter(loader))


@pytest.mark.fault(
    'out-of-memory', 'An OutOfMemoryError that names the loaders and the method that need less.'
)
def test_graph_larger_than_memory(start, exit_code):
    assert exit_code(start(works.out_of_memory)) == 0


@pytest.mark.fault('no-sampler', 'Our own sampler draws, with the same distribution.')
@pytest.mark.fault(
    'no-extension', 'The same algorithms in NumPy and SciPy, slower and with the same results.'
)
def test_nothing_compiled_is_installed():
    code = """
import sys
names = 'torch_sparse torch_scatter torch_cluster pyg_lib numba pyamg faiss pyarrow matplotlib ogb'
sys.modules |= dict.fromkeys(names.split())
import torch, fault_works
from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.loader import NeighborLoader, NeighborSampler
from torch_geometric_lgt.nn import SGFormer
from torch_geometric_lgt.transforms import LaplacianPE
data = fault_works.graph()
loader = NeighborLoader(data, [3, 3], batch_size=10)
assert isinstance(loader.node_sampler, NeighborSampler)
model = SGFormer(4, 8, 3)
assert sum(model(batch.x, batch.edge_index)[:batch.batch_size].size(0) for batch in loader) == 40
print(jaccard(data.edge_index, 40).double().sum().item())
print(LaplacianPE(3)(data).laplacian_pe.abs().double().sum().item())
import gc
gc.freeze()  # the end of the process would look through all objects
"""
    process = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code],
        capture_output=True,
        text=True,
        check=False,
        env=works.environment(),
    )
    assert process.returncode == 0, process.stderr
    index, encodings = map(float, process.stdout.split())
    data = works.graph()
    assert index == pytest.approx(float(jaccard(data.edge_index, 40).double().sum()), rel=1e-6)
    assert encodings == pytest.approx(
        float(works.LaplacianPE(3)(data).laplacian_pe.abs().double().sum()), rel=1e-4
    )
