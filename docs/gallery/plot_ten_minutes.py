r"""
Ten minutes
===========

A message passing layer reads the neighbours of a node. Attention reads all nodes of its graph, in
one layer. This page takes you from one layer to a trained model, and asks whether attention was
worth it.

Needs matplotlib, which the extra ``visualization`` installs (:doc:`/install`).
"""

# %%
# One layer
# ---------
#
# :class:`~torch_geometric_lgt.nn.KernelAttentionConv` is called like a layer of PyG. It needs no
# edges: ``batch`` alone says which nodes attend to each other.
import torch

from torch_geometric_lgt.nn import DegreeMaskedAttention, KernelAttentionConv

torch.manual_seed(0)
x = torch.randn(100, 16)
batch = torch.arange(2).repeat_interleave(50)  # two graphs of 50 nodes

conv = KernelAttentionConv(16, 32, heads=4).eval()
out = conv(x, batch=batch)
out.shape

# %%
# The layer never forms an N x N matrix, so its time and memory grow linearly with the number of
# nodes. ``attention_scores`` returns the weights of chosen pairs of nodes. Row 0 of the pairs has
# the sources, which are keys, and row 1 the targets, which are queries. In each head, the weights
# of all nodes of a graph for one target sum to 1:
pairs = torch.stack([torch.arange(50), torch.full((50,), 7)])  # from the first graph to node 7
weights = conv.attention_scores(x, pairs, batch)  # [50, heads]
torch.testing.assert_close(weights.sum(0), torch.ones(4))

# %%
# The state of a graph
# --------------------
#
# Attention sums up the keys and values of a graph in a small state, which every node then reads.
# States of parts merge into the state of the whole:
first = conv.attention_state(x[::2], batch[::2])
second = conv.attention_state(x[1::2], batch[1::2])
state = first.merge(second)
torch.testing.assert_close(conv(x, batch=batch, state=state), out)

# %%
# Three nodes that read this state attend to all nodes of their graphs, although only these three
# are passed. This is how :doc:`large graphs <plot_large_graph>` and
# :doc:`several processes </processes>` work.
some = torch.tensor([0, 1, 99])
torch.testing.assert_close(conv(x[some], batch=batch[some], state=state), out[some])

# %%
# Layers that need more than ``x`` take it by name, here the degrees of the nodes:
attention = DegreeMaskedAttention(32, heads=4)
attention(out, degree=torch.randint(0, 20, (100,)), batch=batch).shape

# %%
# A task that needs attention
# ---------------------------
#
# Each graph has four communities, and one node of each community shows its label. More than a third
# of the other nodes are farther than two hops from that node, and message passing of two hops does
# not reach it. Laplacian encodings say where a node is.
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import stochastic_blockmodel_graph

from torch_geometric_lgt.nn import GraphTransformer
from torch_geometric_lgt.transforms import LaplacianPE

sizes, inside, between = [30] * 4, 0.17, 0.008
probabilities = torch.full((4, 4), between).fill_diagonal_(inside)
encode = LaplacianPE(3)


def draw_graph():
    edge_index = stochastic_blockmodel_graph(sizes, probabilities)
    y = torch.arange(4).repeat_interleave(30)
    shown = torch.zeros(120, dtype=torch.long)
    shown[torch.arange(4) * 30] = torch.arange(4) + 1  # 0: no label
    data = encode(Data(x=F.one_hot(shown, 5).float(), edge_index=edge_index, y=y))
    data.laplacian_pe *= 7  # entries of 0.6, not 0.09: chosen on validation graphs
    return data


GRAPHS = 240
train_loader = DataLoader([draw_graph() for _ in range(GRAPHS)], batch_size=8, shuffle=True)
test = next(iter(DataLoader([draw_graph() for _ in range(40)], batch_size=40)))
test

# %%
# Three models
# ------------
#
# :class:`~torch_geometric_lgt.nn.GraphTransformer` has a layer of PyG beside the attention.
# ``attn_type`` names the attention. The same model with the plain mean of the graph, and with
# none, shows what attention is worth.
EPOCHS = 8


def train_and_test(**arguments):
    torch.manual_seed(1)
    model = GraphTransformer(
        in_channels=5,
        hidden_channels=64,
        out_channels=4,
        num_layers=1,
        heads=8,
        conv='TAGConv',
        conv_kwargs={'K': 2},
        encodings={'laplacian_pe': 3},
        dropout=0.0,
        **arguments,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(EPOCHS):
        for data in train_loader:
            optimizer.zero_grad()
            out = model(data.x, data.edge_index, data.batch, laplacian_pe=data.laplacian_pe)
            F.cross_entropy(out, data.y).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        out = model(test.x, test.edge_index, test.batch, laplacian_pe=test.laplacian_pe)
    return model, 100 * (out.argmax(1) == test.y).float().mean().item()


models = {
    'none': train_and_test(attn_type=None),
    'mean of the graph': train_and_test(attn_type='mean'),
    'attention': train_and_test(
        attn_type='kernel', attn_kwargs={'feature_map': 'learned', 'num_features': 16}
    ),
}

# %%
# Was it worth it?
# ----------------
import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(7, 2.2), layout='constrained')
bars = axis.barh([*models], [score for _, score in models.values()], color='#0072B2')
axis.bar_label(bars, fmt='%.0f %%', padding=4)
axis.set(xlim=(0, 105), xlabel='accuracy on test graphs (%)')
axis.spines[['top', 'right']].set_visible(False)

# %%
# The mean is the same for every node of a graph, so it does not help here. Attention does. The task
# was made to need attention; on the nodes of one graph attention often gains nothing.
# :func:`~torch_geometric_lgt.diagnostics.attention_report` says what the layer does with its input:
# :doc:`/attention` explains the columns.
from torch_geometric_lgt.diagnostics import attention_report

model, _ = models['attention']
print(attention_report(model, test.x, test.edge_index, test.batch, laplacian_pe=test.laplacian_pe))

# %%
# Next
# ----
#
# - :doc:`/gps`: attention in a network that you have.
# - :doc:`plot_nodes`, :doc:`plot_many_graphs`, :doc:`plot_large_graph`: the task you have.
# - :doc:`/resume`: a trained model, saved and loaded elsewhere.
# - ``make demo``, in a checkout of the repository, trains a stronger version of this page's model
#   in a minute, and draws who attends to whom.
