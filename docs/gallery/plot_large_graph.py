r"""
A graph too large for memory
============================

Sample the neighbours of some nodes, as always with PyG, and let every batch still attend to *all*
nodes of the graph. Then score the whole graph layer by layer, with memory for one part of it.

Needs matplotlib, which the extra ``visualization`` installs (:doc:`/install`).
"""

# %%
# A graph in files
# ----------------
#
# :func:`~torch_geometric_lgt.data.write_graph` writes edges and node attributes to mapped files,
# and :class:`~torch_geometric_lgt.data.MappedGraph` gives them to loaders. Only what a batch reads
# comes into memory. A graph that fits into memory needs no files: pass its ``Data`` to the loader.
# Files have no features or weights of edges. Models with ``edge_channels`` need a ``Data``.
import re
import sys
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import DIFFormer

torch.manual_seed(0)
classes, per_class = 4, 1500
num_nodes = classes * per_class
y = torch.arange(classes).repeat_interleave(per_class)
probabilities = torch.full((classes, classes), 0.0004).fill_diagonal_(0.003)
edge_index = stochastic_blockmodel_graph([per_class] * classes, probabilities)
x = 1.5 * F.one_hot(y, 32).float() + torch.randn(num_nodes, 32)

folder = Path(mkdtemp())
graph = MappedGraph(
    write_graph(folder / 'graph', edge_index, num_nodes, attributes={'x': x, 'y': y})
)
graph

# %%
# Another program opens the folder again. An attribute is a mapped tensor: ``graph['y']`` reads from
# the files what is used of it.
graph = MappedGraph(folder / 'graph')
graph['y'][:3], graph.num_nodes, graph.num_edges

# %%
# Two loaders
# -----------
#
# :class:`~torch_geometric_lgt.loader.NeighborLoader` is PyG's, with a sampler that needs no
# compiler. The first loader draws neighbours for training, the second has all of them.
train_nodes = torch.randperm(num_nodes)[:2000]
train_loader = NeighborLoader(
    graph, [10, 10], batch_size=250, input_nodes=train_nodes, shuffle=True
)
all_neighbors = NeighborLoader(graph, [-1], batch_size=2000)

# %%
# Train with attention to all nodes
# ---------------------------------
#
# ``attention_memory`` goes through the graph layer by layer. For each layer it keeps a small state,
# the sums over the keys of all nodes, and the layer's input ``[N, D]``. The inputs are in files of
# the folder, or in memory without a folder. For each batch, ``without`` subtracts the keys of the
# seed nodes from the state. The model adds their present keys, which have gradients.
#
# DIFFormer has ``norm='row'`` by default: other nodes count. SGFormer's default,
# ``norm='frobenius'``, gives all other nodes together a weight of about 1/N. In a large graph pass
# ``norm='row'`` to ``SGFormer``, and ``attn_kwargs={'norm': 'row'}`` to a ``GraphTransformer`` or
# ``GPSConv`` with ``attn_type='sgformer'`` (:doc:`/theory/linear_attention`). `Does a far node
# matter?`_ has a test.
#
# The keys of a memory have no dropout, as in evaluation mode, also if the model is in training
# mode. NodeFormer's Gumbel noise is an exception: in training mode it is drawn.
torch.manual_seed(1)
model = DIFFormer(32, 64, classes, num_layers=2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-3)
EPOCHS = 6
accuracies = []
for _ in range(EPOCHS):
    memory = model.attention_memory(all_neighbors, folder / 'memory')  # renewed once per epoch
    hits = 0
    for batch in train_loader:
        nodes = batch.n_id[: batch.batch_size]
        optimizer.zero_grad()
        out = model(
            batch.x, batch.edge_index, states=memory.without(nodes), num_keys=nodes.numel()
        )[: batch.batch_size]
        target = batch.y[: batch.batch_size]
        F.cross_entropy(out, target).backward()
        optimizer.step()
        hits += int((out.argmax(1) == target).sum())
    accuracies.append(100 * hits / len(train_nodes))
accuracies

# %%
# Degrees of the whole graph
# --------------------------
#
# With *all* neighbours within as many hops as the model sums over edges, a batch gets the scores of
# the whole graph: ``num_layers`` hops of DIFFormer, ``gnn_num_layers`` of SGFormer. The outermost
# nodes of the batch lack edges, so the model needs their degrees in the whole graph. A
# ``MappedGraph`` stores, for each node, where its edges start. The differences are the in-degrees.
# Only one number per node comes into memory:
row, colptr, _ = graph.csc()
degree = colptr.diff()

# %%
# The layers need these degrees if each edge is stored once in both directions and no node is its
# own neighbour. For a directed graph they need the pair of out- and in-degrees. The out-degrees are
# ``torch.bincount(part, minlength=num_nodes)``, added up over parts of ``row``. To have the degrees
# in each batch, pass them to ``write_graph`` among the attributes.
model.eval()
seeds = torch.arange(0, num_nodes, 300)
few = next(iter(NeighborLoader(graph, [-1, -1], batch_size=len(seeds), input_nodes=seeds)))


def batch_scores(memory):
    with torch.no_grad():
        return model(
            few.x,
            few.edge_index,
            degree=degree[few.n_id],
            states=memory.without(seeds),
            num_keys=len(seeds),
        )[: len(seeds)]


# %%
# Four mistakes raise no error, and change the scores:
#
# - A wrong ``degree``. With *all* neighbours, pass the degrees of the whole graph. With sampled
#   neighbours, as in the training above, pass none: sums are divided by the number of drawn
#   neighbours.
# - One vector of degrees for a directed graph, such as that of ``NodeDegree``: pass the pair of
#   out- and in-degrees. :doc:`plot_encodings` has the code.
# - No ``states``: the nodes of the batch attend to each other alone.
# - Nodes that count twice: the seed nodes with ``states=memory.states``, from which
#   ``memory.without`` takes them out, and the neighbours without ``num_keys``. A missing
#   ``num_keys`` is an error with ``memory.without``, but not with ``memory.states`` or a
#   ``process_group``.
#
# Compare a batch with the whole graph once, on a graph that is small enough:
aged = batch_scores(memory)  # made before the last epoch
exact = batch_scores(model.attention_memory(all_neighbors, folder / 'memory'))
with torch.no_grad():
    whole = model(x, edge_index)
torch.testing.assert_close(exact, whole[seeds], rtol=1e-4, atol=1e-4)

# %%
# How fast a memory grows old
# ---------------------------
#
# The keys of all nodes outside the batch are those of the parameters with which the memory was
# made. Each step changes the parameters, and the scores move away from those of a new memory:
print(
    f'after {len(train_loader)} steps, scores of size {exact.abs().mean():.2f} are off by '
    f'{(aged - exact).abs().mean():.2f}; '
    f'{100 * (aged.argmax(1) == exact.argmax(1)).float().mean():.0f} % of the classes are the same'
)

# %%
# Here the model learns in spite of this. Make the same comparison with your model, learning rate
# and number of steps. If the scores are too far off, renew the memory within the epoch or lower the
# learning rate. For validation and tests always make a new memory, or call ``inference``.
#
# Does a far node matter?
# -----------------------
#
# Nodes beyond two hops reach the batch by attention alone. Change the features of all of them, and
# look at the scores of the batch:
is_far = torch.ones(num_nodes, dtype=torch.bool)
is_far[few.n_id] = False
changed = Data(x=x + is_far[:, None].float(), edge_index=edge_index)
other = batch_scores(model.attention_memory(NeighborLoader(changed, [-1], batch_size=2000)))
print(
    f'{int(is_far.sum())} nodes are beyond two hops; scores of size {exact.abs().mean():.2f} '
    f'change by {(other - exact).abs().mean():.2f}'
)
assert (other - exact).abs().mean() > 0.01 * exact.abs().mean()

# %%
# Make this test with your model. In a graph of 20,000 nodes, ``GraphTransformer`` with two layers
# of ``'SAGEConv'`` and random parameters had scores of size 1.6 that changed by 0.000004 with
# ``attn_type='sgformer'``: no attention at all. With ``attn_kwargs={'norm': 'row'}`` they changed
# by 0.11.
#
# Score all nodes, layer by layer
# -------------------------------
#
# ``inference`` writes each layer to the folder. A killed run resumes there. The method returns the
# scores of all nodes, also if the loader has ``input_nodes``. They equal the scores of the whole
# graph in one call:
scores = model.inference(all_neighbors, folder / 'scores')
torch.testing.assert_close(torch.as_tensor(scores), whole, rtol=1e-4, atol=1e-4)

test = torch.ones(num_nodes, dtype=torch.bool)
test[train_nodes] = False
print(f'test accuracy {100 * (scores.argmax(1) == y)[test].float().mean():.1f} %')

# %%
# Your own network
# ----------------
#
# ``attention_memory`` and ``inference`` are methods of this package's models, and only they make an
# :class:`~torch_geometric_lgt.nn.AttentionMemory`. In a network of your own sum up the keys
# yourself: ``attention_state`` of a layer sums up the keys of some nodes, and ``merge`` adds such
# sums.
from copy import deepcopy

from torch_geometric.nn import SAGEConv

from torch_geometric_lgt.nn import KernelAttentionConv


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin_in = torch.nn.Linear(32, 64)
        self.local = SAGEConv(64, 64)
        self.attention = KernelAttentionConv(64, 64, heads=4)
        self.lin_out = torch.nn.Linear(64, classes)

    def embed(self, x):
        return self.lin_in(x).relu()

    def keys(self, x):
        return self.attention.attention_state(self.embed(x))

    def forward(self, x, edge_index, state=None):
        h = self.embed(x)
        return self.lin_out((self.local(h, edge_index) + self.attention(h, state=state)).relu())


# %%
# A copy in double precision keeps the parameters with which the keys were summed up. So the keys of
# a batch can be subtracted from the sums to the last digit:
def all_keys(network):
    frozen, state = deepcopy(network).double().eval(), None
    with torch.no_grad():
        for nodes in torch.arange(num_nodes).split(2000):
            part = frozen.keys(graph['x'][nodes].double())
            state = part if state is None else state.merge(part)
    return frozen, state


def with_new_keys(network, frozen, state, x):
    with torch.no_grad():
        others = state.without(frozen.keys(x.double())).to('cpu', torch.float32)
    return others.merge(network.keys(x))  # these have gradients


# %%
# A batch attends to all nodes. The loader draws as many hops as the network has layers over edges,
# here one. The loop is the same as with an ``AttentionMemory``:
torch.manual_seed(1)
network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=0.005, weight_decay=5e-3)
one_hop = NeighborLoader(graph, [10], batch_size=250, input_nodes=train_nodes, shuffle=True)
for _ in range(3):
    frozen, state = all_keys(network)  # renewed once per epoch
    for batch in one_hop:
        size = batch.batch_size
        optimizer.zero_grad()
        keys = with_new_keys(network, frozen, state, batch.x[:size])
        out = network(batch.x, batch.edge_index, keys)[:size]
        F.cross_entropy(out, batch.y[:size]).backward()
        optimizer.step()

# %%
# Scores part by part read the state of all nodes, without any other change:
network.eval()
frozen, state = all_keys(network)
single = state.to('cpu', torch.float32)
scores = torch.empty(num_nodes, classes)
with torch.no_grad():
    for batch in all_neighbors:
        size = batch.batch_size
        scores[batch.n_id[:size]] = network(batch.x, batch.edge_index, single)[:size]
    whole = network(x, edge_index)
    keys = with_new_keys(network, frozen, state, batch.x[:size])
    in_training = network(batch.x, batch.edge_index, keys)[:size]
torch.testing.assert_close(scores, whole, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(in_training, whole[batch.n_id[:size]], rtol=1e-4, atol=1e-4)
print(f'test accuracy {100 * (scores.argmax(1) == y)[test].float().mean():.1f} %')

# %%
# Here the input of the attention is a map of each node alone. If this input depends on edges or on
# another attention, go layer by layer. Compute the input ``[N, D]`` for all nodes, part by part as
# the scores above, and keep it in a tensor. Sum up the keys of its rows. In a batch, ``frozen``
# then reads rows of that tensor.
#
# The layer may be any with the property *state* in :doc:`/which`. Use ``LayerNorm`` as norm: a norm
# over nodes takes its statistics over the batch.

# %%
# How much is in memory
# ---------------------
#
# The state of a layer has the same size for any number of nodes. The input of a layer, which an
# ``AttentionMemory`` keeps too, has a row for each node; it lies in files if there is a folder. A
# matrix of all pairs grows with the square. The batch is often the largest part:
# :doc:`/theory/scale` has a table of all parts, and says how to measure them.
import matplotlib.pyplot as plt

sizes = 10.0 ** torch.arange(3, 9)
channels = 64
figure, axis = plt.subplots(figsize=(7, 3), layout='constrained')
for name, size, color in (
    ('weights of all pairs', sizes**2, '#D55E00'),
    ('keys and values of all nodes', 2 * channels * sizes, '#E69F00'),
    ('input of a layer', channels * sizes, '#009E73'),
    ('state of a layer', torch.full_like(sizes, channels * (channels + 2)), '#0072B2'),
):
    axis.loglog(sizes, 4 * size / 2**30, label=name, color=color, marker='o')
axis.axhline(64, color='0.4', linestyle=':')
axis.text(1e3, 90, '64 GiB of memory')
axis.set(xlabel='nodes', ylabel='GiB, 64 channels')
axis.legend()
axis.spines[['top', 'right']].set_visible(False)

# %%
# Linux counts pages of mapped files as memory of the program, although it may drop them at any
# time. What the program itself needs is ``RssAnon``:
if sys.platform == 'linux':
    status = Path('/proc/self/status').read_text()
    for name, meaning in (('RssAnon', 'of its own'), ('RssFile', 'of mapped files and libraries')):
        (kilobytes,) = re.findall(rf'{name}:\s+(\d+) kB', status)
        print(f'{int(kilobytes) // 1024} MiB {meaning}')

# %%
# Next
# ----
#
# - :doc:`/theory/scale` says which terms need the degrees of the whole graph, and what is exact.
# - :doc:`/resume` says what to save, so that an interrupted training goes on with the same numbers.
# - :doc:`/processes` splits the graph over GPUs or machines.
# - :doc:`/attention` says whether the attention is worth its cost, also on a part of a large graph.
# - In a checkout of the repository, ``python -m benchmarks.ogb.ogbn_arxiv --root data --download``
#   and the other scripts in ``benchmarks/ogb`` train in this way on the data sets of OGB.
