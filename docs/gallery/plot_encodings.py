r"""
Encodings, scores and caches
============================

Attention to all nodes does not see edges. Encodings tell the attention where a node is, or with
whom the node shares neighbours. Transforms compute encodings once per graph.

Needs matplotlib, which the extra ``visualization`` installs (:doc:`/install`).
"""

# %%
# Where a node is
# ---------------
#
# :class:`~torch_geometric_lgt.transforms.LaplacianPE` has smooth columns: neighbours have similar
# values. The first ones vary slowly over the graph, here a grid with a hole.
import matplotlib.pyplot as plt
import torch
from torch_geometric.data import Data
from torch_geometric.utils import grid, subgraph

from torch_geometric_lgt.transforms import LaplacianPE

edge_index, place = grid(20, 30)
keep = (place - torch.tensor([14.0, 9.0])).norm(dim=1) > 5
edge_index, _ = subgraph(keep, edge_index, relabel_nodes=True)
data = Data(edge_index=edge_index, pos=place[keep], num_nodes=int(keep.sum()))
data = LaplacianPE(8)(data)
data

# %%
figure, axes = plt.subplots(2, 4, figsize=(7, 3), layout='constrained')
for column, axis in enumerate(axes.flat):
    value = data.laplacian_pe[:, column]
    limit = value.abs().max()
    axis.scatter(*data.pos.t(), c=value, s=5, cmap='cividis', vmin=-limit, vmax=limit)
    axis.set(title=f'column {column}', aspect='equal')
    axis.set_axis_off()

# %%
# The transforms do not scale what they add, and most models take it as it is. A column of
# ``LaplacianPE`` has length 1, so the mean square of its entries is :math:`1/N`. For one graph of
# hundreds of nodes or more, multiply by :math:`\sqrt{N}` before training, as the guides for one
# graph do. The published models of many small graphs take the columns unscaled; another factor is
# a setting to choose on validation graphs. Rows of ``SVDEncoding`` need nothing: ``MGFormer``
# brings them to one length itself, its ``encoding_scale``. ``laplacian_pe_mask`` marks the columns
# that the graph really has:
scaled = data.laplacian_pe * data.num_nodes**0.5
scaled.square().mean(0), data.laplacian_pe_mask

# %%
# The sign of an eigenvector means nothing. ``LaplacianPE`` makes the sum of the cubes of a column
# positive. So a graph gets the same signs each time, also with its nodes in another order. The
# exception is a sum of 0, as in symmetric graphs. A small change of a graph can still flip a sign.
#
# For one graph these signs are enough: the guides for one graph train on the columns as they are.
# ``RandomSignFlip`` is worth a trial with many graphs, or if the model must score graphs that it
# has not seen: new signs in each batch of the training teach it to ignore them. The benchmarks of
# many small graphs train with it. Attention by ``position='laplacian_pe'`` sees the signs, too.
from torch_geometric_lgt.transforms import RandomSignFlip

flipped = RandomSignFlip()(data)
torch.equal(flipped.laplacian_pe.abs(), data.laplacian_pe.abs())

# %%
# Which transform
# ---------------
#
# .. list-table::
#    :header-rows: 1
#    :widths: 32 68
#
#    * - Transform
#      - Take it for
#    * - :class:`~torch_geometric_lgt.transforms.LaplacianPE`
#      - where a node is: communities, distances, routes
#    * - :class:`~torch_geometric_lgt.transforms.SVDEncoding`
#      - users and items, and directed graphs; not molecules and other small undirected graphs
#    * - PyG's :class:`~torch_geometric.transforms.AddRandomWalkPE`
#      - cycles and other patterns around a node, as in molecules
#    * - :class:`~torch_geometric_lgt.transforms.NodeDegree`
#      - degrees of an undirected graph, for batches with all neighbours
#    * - :class:`~torch_geometric_lgt.transforms.JaccardScores`
#      - edges between nodes with common neighbours, for ``LiteGT``
#    * - :class:`~torch_geometric_lgt.transforms.AttentionNodeSampling`
#      - the nodes of ``LiteGT`` that attend by a softmax
#
# In a tree or another bipartite undirected graph, singular values come in equal pairs. The columns
# of ``SVDEncoding`` then depend on the numbering of the nodes: the same graph in a test set gets
# other columns if its nodes are numbered in another way. Columns of ``LaplacianPE`` depend on the
# numbering only in graphs with symmetries, random walks never.
#
# Models take encodings of any origin, also your own: ``encodings={'random_walk_pe': 8}`` of
# ``GraphTransformer`` names an attribute of the data and its width. The transforms of this package
# leave the graph that they get unchanged, and loaders slice what they add: a sampled
# batch has the values of the whole graph.
from torch_geometric.transforms import Compose

from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, NodeDegree

prepare = Compose([NodeDegree(), JaccardScores(), AttentionNodeSampling()])
prepared = prepare(data)
batch = next(iter(NeighborLoader(prepared, [5, 5], batch_size=64)))
assert torch.equal(batch.degree, prepared.degree[batch.n_id])
batch

# %%
# Degrees of a directed graph
# ---------------------------
#
# ``NodeDegree`` counts the neighbours of a node in both directions. Use it if the graph has each
# edge once in both directions and no self loops. In other graphs the scores of a batch with these
# degrees are wrong, without an error. Pass the pair of out- and in-degrees there. The batch then
# has the scores of the whole graph. DIFFormer and NodeFormer count self loops and repeated
# edges, as here. The GCN of ``SGFormer`` and ``GraphTransformer`` counts no self loops: apply
# ``RemoveSelfLoops`` first.
from torch_geometric_lgt.nn import DIFFormer

torch.manual_seed(0)
directed = Data(x=torch.randn(80, 8), edge_index=torch.randint(80, (2, 300)))
source, target = directed.edge_index
directed.out_degree = torch.bincount(source, minlength=80)
directed.in_degree = torch.bincount(target, minlength=80)

model = DIFFormer(8, 16, 3, num_layers=2).eval()
memory = model.attention_memory(NeighborLoader(directed, [-1], batch_size=40))
batch = next(iter(NeighborLoader(NodeDegree()(directed), [-1, -1], batch_size=5)))


def difference(degree):
    states = memory.without(batch.n_id[:5])
    with torch.no_grad():
        part = model(batch.x, batch.edge_index, degree=degree, states=states, num_keys=5)[:5]
        return (part - model(directed.x, directed.edge_index)[:5]).abs().max().item()


assert difference((batch.out_degree, batch.in_degree)) < 1e-5
print(f'NodeDegree: {difference(batch.degree):.2f}')
print(f'the pair: {difference((batch.out_degree, batch.in_degree)):.0e}')

# %%
# Compute once
# ------------
#
# Give a data set the transform as ``pre_transform``, or give ``LaplacianPE``, ``SVDEncoding`` and
# ``JaccardScores`` a folder: ``cache_dir`` stores results by the content of the graph and the
# arguments of the transform, so that a changed graph is computed anew. Another process finds them
# again. PyG's data sets do not compute their ``pre_transform`` anew when its arguments change: pass
# ``force_reload=True``.
from pathlib import Path
from tempfile import mkdtemp

folder = Path(mkdtemp())
encode = LaplacianPE(8, cache_dir=folder)
first, again = encode(data), encode(data)
assert torch.equal(first.laplacian_pe, again.laplacian_pe)
one = len([*folder.glob('*.safetensors')])

changed = data.clone()
changed.edge_index = changed.edge_index[:, 2:]
encode(changed)
one, len([*folder.glob('*.safetensors')])

# %%
# A call with ``cache_dir`` writes one file of encodings, beside an empty ``.lock`` file by which
# processes wait for each other. The call returns when the file is on the disk, which takes longer
# than the encodings of some dozens of nodes. So for data sets of many small graphs use
# ``pre_transform``, or encode the graphs as one batch, in one file:
from torch_geometric.data import Batch

graphs = [Data(edge_index=torch.randint(n, (2, 3 * n)), num_nodes=n) for n in range(10, 40)]
encoded = encode(Batch.from_data_list(graphs)).to_data_list()
assert torch.equal(encoded[7].laplacian_pe, LaplacianPE(8)(graphs[7]).laplacian_pe)
len([*folder.glob('*.safetensors')])

# %%
# Scores and encodings in a graph do not change when its edges change. ``check_fresh`` finds those
# of an earlier version of the graph, by applying the transforms again:
from torch_geometric_lgt.diagnostics import check_fresh

stale = prepared.clone()
stale.edge_index, stale.edge_jaccard = stale.edge_index[:, 40:], stale.edge_jaccard[40:]
try:
    check_fresh(stale, [NodeDegree(), JaccardScores()])
except ValueError as error:
    print(error)
