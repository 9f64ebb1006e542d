r"""
Many small graphs
=================

Molecules, scenes, sampled communities: a data set of graphs, loaded in batches. Each node attends
to the nodes of its own graph, and nothing is padded. A graph has the same output alone and in any
batch.
"""

# %%
# Graphs and what they need once
# ------------------------------
#
# :class:`~torch_geometric_lgt.datasets.SBMDataset` generates its graphs; any data set of PyG
# does. ``pre_transform`` computes scores and encodings once, before the graphs are stored.
from tempfile import mkdtemp

import torch
import torch.nn.functional as F
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.nn import GraphTransformer, LiteGT
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, LaplacianPE

torch.manual_seed(0)
root = mkdtemp()
prepare = Compose([JaccardScores(), AttentionNodeSampling(), LaplacianPE(10)])
GRAPHS = 240
graphs = SBMDataset(root, 'CLUSTER', num_graphs=GRAPHS, pre_transform=prepare)
loader = DataLoader(graphs, batch_size=16, shuffle=True)
batch = next(iter(loader))
batch

# %%
# ``batch.batch`` has the graph of each node. Pass it on.
#
# Scores of nodes
# ---------------
#
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
# The six communities of a new graph, each with one labelled node:
import matplotlib.pyplot as plt

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
# A graph alone and in its batch
# ------------------------------
#
# In evaluation the output of a graph does not depend on the rest of the batch:
one = test[3]
with torch.no_grad():
    alone = model(one.x, one.edge_index, laplacian_pe=one.laplacian_pe)
torch.testing.assert_close(alone, out[test.batch == 3], rtol=1e-3, atol=1e-4)

# %%
# Scores of graphs
# ----------------
#
# With ``level='graph'`` the model returns one row for each graph, and with ``level='edge'`` one
# for each edge:
model = GraphTransformer(7, 40, 3, level='graph')
model(batch.x, batch.edge_index, batch.batch).shape

# %%
# Attention over the neighbours
# -----------------------------
#
# :class:`~torch_geometric_lgt.nn.LiteGT` attends along the edges, by softmax at a few sampled
# nodes and by cheap kernels elsewhere. It reads all three attributes that were computed in
# advance:
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
# One node in six would be right by chance. These are half a minute's training and 240 graphs:
# ``python -m benchmarks.sbm --root data --dataset CLUSTER --preset small --seeds 0`` with
# ``--models graphtransformer`` trains the first model longer, on 1000 graphs. :doc:`/benchmarks`
# compares it with convolutions.
