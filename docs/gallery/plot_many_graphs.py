r"""
Many small graphs
=================

Molecules, scenes, sampled communities: a data set of graphs, loaded in batches. Each node attends
to the nodes of its own graph, and nothing is padded. In evaluation, a graph has the same output
alone and in any batch, up to rounding.

Needs matplotlib and scikit-learn, which the extra ``examples`` installs (:doc:`/install`).
"""

# %%
# One label for each graph
# ------------------------
#
# The handwritten digits of scikit-learn as graphs: a node is a pixel with ink, edges join pixels
# that touch, and the label is that of the whole graph. Features are the ink and the place of the
# pixel. Any data set of PyG is loaded in the same way.
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import grid, subgraph

from torch_geometric_lgt.nn import GraphTransformer

torch.manual_seed(0)
grid_edges, place = grid(8, 8)
place = place / 3.5 - 1


def to_graph(image, label):
    inked = image > 0
    edge_index, _ = subgraph(inked, grid_edges, relabel_nodes=True)
    x = torch.cat([image[:, None] / 16, place], dim=1)[inked]
    return Data(x=x, edge_index=edge_index, y=label)


images, labels = map(torch.from_numpy, load_digits(return_X_y=True))
digits = [to_graph(images[i].float(), labels[i]) for i in torch.randperm(len(images))]
train, valid, test = digits[:1000], digits[1000:1300], digits[1300:]
next(iter(DataLoader(train, batch_size=50)))

# %%
# If your graphs have no features, PyG's ``Constant()`` makes a constant ``x``, and
# ``NodeDegree(attr_name=None)`` an ``x`` of degrees.
#
# Train, validate, test
# ---------------------
#
# With ``level='graph'`` the model returns one row for each graph of the batch. ``aggr`` says how
# the row reads the nodes: by their ``'mean'``, ``'sum'`` or ``'max'``, or by a module of
# :mod:`torch_geometric.nn.aggr` that keeps the number of channels. The parameters of the best
# validation score are kept for the test.
from copy import deepcopy

EPOCHS = 10


def share_of_right(model, graphs):
    model.eval()
    right = 0
    with torch.no_grad():
        for batch in DataLoader(graphs, batch_size=300):
            out = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
            right += int((out.argmax(dim=1) == batch.y).sum())
    return right / len(graphs)


def train_and_test(**arguments):
    torch.manual_seed(1)
    loader = DataLoader(train, batch_size=50, shuffle=True)
    model = GraphTransformer(
        in_channels=3,
        hidden_channels=32,
        out_channels=10,
        num_layers=2,
        conv='GINConv',
        level='graph',
        aggr='sum',
        **arguments,
    )
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.01, total_steps=EPOCHS * len(loader)
    )
    scores, best = [], None
    for _ in range(EPOCHS):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
            F.cross_entropy(out, batch.y).backward()
            optimizer.step()
            schedule.step()
        scores.append(share_of_right(model, valid))
        if scores[-1] == max(scores):
            best = deepcopy(model.state_dict())
    model.load_state_dict(best)
    return model, scores, share_of_right(model, test)


# %%
# The controls have the mean of all nodes in place of the attention, or message passing alone:
model, scores, accuracy = train_and_test()
results = {'attention': (scores, accuracy)}
results['mean of the graph'] = train_and_test(attn_type='mean')[1:]
results['neither'] = train_and_test(attn_type=None)[1:]

figure, axis = plt.subplots(figsize=(6, 3), layout='constrained')
colors = '#0072B2', '#D55E00', '#666666'
for color, (name, (scores, accuracy)) in zip(colors, results.items(), strict=True):
    print(f'{name}: {100 * accuracy:.1f} % of the test graphs are right')
    axis.plot(range(1, EPOCHS + 1), scores, color=color, label=name)
axis.set(xlabel='epoch', ylabel='validation accuracy')
axis.spines[['top', 'right']].set_visible(False)
_ = axis.legend(frameon=False)

# %%
# On the digits attention is ahead of the mean of the graph by a point or two, and takes twice the
# time. Figures of one seed differ by a point from those of the next: compare the means of several
# seeds before you keep the attention. :doc:`/attention` has tasks on which attention is ahead by
# more. :doc:`/resume` shows how to save a trained model, and how to load it elsewhere.
#
# A graph alone and in its batch
# ------------------------------
#
# In evaluation the output of a graph does not depend on the rest of the batch, but for the rounding
# of matrix products of other sizes. In training it does: batch normalisation takes its statistics
# from all nodes of the batch, and ``norm='layer_norm'`` does not.
batch, one = next(iter(DataLoader(train, batch_size=50))), train[3]
model.eval()
with torch.no_grad():
    together = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
    alone = model(one.x, one.edge_index)
torch.testing.assert_close(alone, together[3:4], rtol=1e-5, atol=1e-5)

# %%
# Scores of nodes
# ---------------
#
# :class:`~torch_geometric_lgt.datasets.SBMDataset` generates graphs of six communities, each with
# one labelled node. ``pre_transform`` computes scores and encodings once, before the graphs are
# stored.
from tempfile import mkdtemp

from torch_geometric.transforms import Compose

from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, LaplacianPE

root = mkdtemp()
prepare = Compose([JaccardScores(), AttentionNodeSampling(), LaplacianPE(10)])
GRAPHS = 240
graphs = SBMDataset(root, 'CLUSTER', num_graphs=GRAPHS, pre_transform=prepare)
loader = DataLoader(graphs, batch_size=16, shuffle=True)
batch = next(iter(loader))
batch

# %%
# Message passing beside attention to all nodes of the graph, by position: queries and keys are
# linear maps of the Laplacian encodings.
model = GraphTransformer(
    in_channels=7,
    hidden_channels=40,
    out_channels=6,
    num_layers=3,
    conv='ResGatedGraphConv',
    attn_type='difformer',
    encodings={'laplacian_pe': 10},
    position='laplacian_pe',
    dropout=0.0,
)
EPOCHS = 10
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=0.005, total_steps=EPOCHS * len(loader)
)
losses = []
for _ in range(EPOCHS):
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index, batch.batch, laplacian_pe=batch.laplacian_pe)
        loss = F.cross_entropy(out, batch.y)
        loss.backward()
        optimizer.step()
        schedule.step()
    losses.append(loss.item())

# %%
# The six communities of new graphs:
test = SBMDataset(root, 'CLUSTER', 'test', num_graphs=40, pre_transform=prepare)
test = next(iter(DataLoader(test, batch_size=40)))
model.eval()
with torch.no_grad():
    out = model(test.x, test.edge_index, test.batch, laplacian_pe=test.laplacian_pe)
found = torch.zeros(6, 6)
found.index_put_((test.y, out.argmax(1)), torch.ones(len(out)), accumulate=True)
found /= found.sum(1, keepdim=True)
print(f'{100 * (out.argmax(1) == test.y).float().mean():.0f} % of the nodes are right')

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3), layout='constrained')
left.plot(range(1, EPOCHS + 1), losses, color='#0072B2')
left.set(xlabel='epoch', ylabel='training loss')
left.spines[['top', 'right']].set_visible(False)
image = right.imshow(found.numpy(), cmap='cividis', vmin=0, vmax=1)
right.set(xlabel='community found', ylabel='community')
_ = figure.colorbar(image, ax=right, label='share of nodes')

# %%
# Scores of edges
# ---------------
#
# With ``level='edge'`` the model returns one row for each edge, from its source and target:
model = GraphTransformer(7, 40, 2, num_layers=3, level='edge')
model(batch.x, batch.edge_index, batch.batch).shape

# %%
# Atoms, bonds and other kinds
# ----------------------------
#
# In data sets of molecules ``x`` and ``edge_attr`` are often numbers of kinds, such as 7 for
# nitrogen and 2 for a double bond. Such a number is no quantity: encode it by ``one_hot``, or each
# of several columns by an ``Embedding``. The message passing reads the features of edges: give the
# model ``edge_channels``, and a ``conv`` that takes edge features. PyG's ``AddRandomWalkPE`` shows
# cycles: it encodes each node by the probabilities that a random walk returns to it.
from torch_geometric.transforms import AddRandomWalkPE


def one_hot_features(data):
    data.x = F.one_hot(data.x, 10).float()
    data.edge_attr = F.one_hot(data.edge_attr, 4).float()
    return data


begin, end = torch.arange(6), torch.arange(1, 7) % 6
pyridine = Data(
    x=torch.tensor([7, 6, 6, 6, 6, 6]),
    edge_index=torch.stack([torch.cat([begin, end]), torch.cat([end, begin])]),
    edge_attr=torch.tensor([1, 2]).repeat(6),
)
prepare = Compose([one_hot_features, AddRandomWalkPE(8, attr_name='random_walk_pe')])
molecules = next(iter(DataLoader([prepare(pyridine.clone())], batch_size=1)))

model = GraphTransformer(
    in_channels=10,
    hidden_channels=32,
    out_channels=1,
    num_layers=3,
    conv='ResGatedGraphConv',
    edge_channels=4,
    encodings={'random_walk_pe': 8},
    level='graph',
)
model(
    molecules.x,
    molecules.edge_index,
    molecules.batch,
    edge_attr=molecules.edge_attr,
    random_walk_pe=molecules.random_walk_pe,
).shape

# %%
# Attention over the neighbours
# -----------------------------
#
# :class:`~torch_geometric_lgt.nn.LiteGT` attends along the edges, by softmax at a few sampled
# nodes and by cheap kernels elsewhere. It reads all three attributes that were computed in
# advance:
from torch_geometric_lgt.nn import LiteGT

model = LiteGT(7, 80, 6, num_layers=4, pe_channels=10)
out = model(
    batch.x,
    batch.edge_index,
    batch.batch,
    laplacian_pe=batch.laplacian_pe,
    edge_jaccard=batch.edge_jaccard,
    sampled_mask=batch.attention_mask,
)
out.shape

# %%
# The scores of nodes above are from a short training on 240 graphs, and one node in six would be
# right by chance. In a checkout of the repository, ``python -m benchmarks.sbm --root data --dataset
# CLUSTER --preset small --seeds 0 --models graphtransformer --input-norm`` trains such a model with
# four layers longer, on 1000 graphs. :doc:`/benchmarks/many_graphs` compares it, without
# ``--input-norm``, with convolutions.
