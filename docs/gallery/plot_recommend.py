r"""
Recommend from your own interactions
====================================

A file says which user chose which item. Train :class:`~torch_geometric_lgt.nn.MGFormer` on it, and
serve the best items that are new to each user.

Needs matplotlib, which the extra ``visualization`` installs (:doc:`/install`).
"""

# %%
# A file of interactions
# ----------------------
#
# One row for each interaction, in a folder of its own: ``data/shop/raw.csv``, or ``raw.parquet``
# with the extra ``recommend``. With pandas, ``frame.to_csv(path, index=False)`` writes it. Ids may
# be numbers or texts. Here 400 users each like two of ten kinds of items, and popular items are
# chosen more often.
from copy import deepcopy
from itertools import product
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import normalize

from torch_geometric_lgt.datasets import InteractionDataset
from torch_geometric_lgt.functional import alignment_uniformity
from torch_geometric_lgt.nn import MGFormer
from torch_geometric_lgt.transforms import SVDEncoding

torch.manual_seed(0)
num_users, num_items, kinds = 400, 300, 10
likes = torch.rand(num_users, kinds).topk(2).indices
kind = torch.randint(kinds, (num_items,))
popularity = torch.rand(num_items) ** 2 + 0.05
affinity = torch.where((kind == likes[:, :, None]).any(1), 30.0, 1.0) * popularity
choices = affinity.multinomial(20)

folder = Path(mkdtemp())
(folder / 'shop').mkdir()
rows = [
    f'user{user},item{item},{time}'
    for user in range(num_users)
    for time, item in enumerate(choices[user].tolist())
]
_ = (folder / 'shop' / 'raw.csv').write_text('\n'.join(['user_id,item_id,time', *rows, '']))

# %%
# :class:`~torch_geometric_lgt.datasets.InteractionDataset` reads and splits it. A public data set
# has a name instead, such as ``'movielens-100k'``, and is downloaded.
#
# The third of ``columns`` has times, by which the rows are sorted. For a file ``raw`` the default
# split is random. ``split='leave-one-out'`` tests with the last item of each user, and needs a
# column of times or rows in the order of time.
dataset = InteractionDataset(folder, 'shop', columns=('user_id', 'item_id', 'time'))
dataset[0]

# %%
# Users and items are the nodes of one graph, items after users. The data set numbers both from 0:
# add the number of users to the items once, and all pairs below are pairs of nodes.
rates = dataset[0]['user', 'rates', 'item']
offset = torch.tensor([[0], [num_users]])
train, valid, test = (
    rates[f'{part}_edge_label_index'] + offset for part in ('train', 'valid', 'test')
)


def recall(model, pairs, known, k=20):
    """The share of the pairs that are among the user's k best items without known ones."""
    best = model.recommend(k=k, exclude=known)
    return (best[pairs[0]] == pairs[1][:, None]).any(1).float().mean().item()


# %%
# Before you train
# ----------------
#
# ``SVDEncoding`` adds structural encodings of users and items, which rank items without any
# training. The model computes a row of numbers, an embedding, for each user and each item. A
# *rule*, ``model.scoring``, makes scores of the rows. With ``'inner'``, a score is the inner
# product of two rows. With a number, it is the cosine of the rows times the item's number of users
# to this power: 0 ranks by the cosine alone. A larger number such as 0.3 prefers popular items, so
# that users get more similar lists.
#
# Try several ranks of the encodings and several rules on the validation pairs: that takes seconds,
# and training has to beat the result.
RULES = ('inner', 0.0, 0.1, 0.3, 0.5, 0.7)
settings = {'embedding_dim': 32}


def new_model(rank):
    """An untrained model with encodings of this rank."""
    torch.manual_seed(1)
    data = SVDEncoding(rank, normalize=True)(dataset[0])
    return MGFormer.from_data(data, **settings)


def choose_rule(model):
    """Sets the rule that is best on the validation pairs, and returns its share."""
    shares = {}
    for rule in RULES:
        model.scoring = rule
        shares[rule] = recall(model, valid, train)
    best = max(shares, key=shares.get)
    model.scoring = best
    return shares[best]


ranks = {rank: choose_rule(new_model(rank)) for rank in (8, 12, 16, 32, 64)}
rank = max(ranks, key=ranks.get)
{rank: f'{share:.3f}' for rank, share in ranks.items()}


# %%
# Train
# -----
#
# The nodes of a batch are queries, and all nodes are keys of the attention. ``attention_states``
# sums up the keys, which takes most of a step on a large graph. Users and items of a batch share
# the sums, and the next three steps read them as constants.
#
# The loss has two terms: *alignment* draws the rows of a user and a chosen item together, and
# *uniformity* spreads all rows over the sphere. ``weight`` is the weight of uniformity.
def train_epoch(model, optimizer, weight):
    for step, pairs in enumerate(train[:, torch.randperm(train.size(1))].split(1024, dim=1)):
        if step % 4 == 0:
            states = model.attention_states()
        users, items = (model.get_embedding(nodes=nodes, states=states) for nodes in pairs)
        optimizer.zero_grad()
        alignment_uniformity(users, items, weight=weight).backward()
        optimizer.step()
        states = [state.detach() for state in states]


# %%
# Training can make the rows worse, and the best rule changes from epoch to epoch: with
# ``'inner'`` alone a good epoch may look like a bad one. So each epoch is scored under every rule,
# and a copy of the best state is kept. Epoch 0 is the untrained model. ``state_dict`` contains the
# rule. On large data, score every few epochs only.
EPOCHS = 8


def train_model(learning_rate, weight):
    """Returns the model at its best epoch, and the validation shares of all epochs."""
    model = new_model(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    shares, best = [choose_rule(model)], deepcopy(model.state_dict())
    for _ in range(EPOCHS):
        train_epoch(model, optimizer, weight)
        share = choose_rule(model)
        if share > max(shares):
            best = deepcopy(model.state_dict())
        shares.append(share)
    model.load_state_dict(best)
    return model, shares


runs = {choice: train_model(*choice) for choice in product((0.001, 0.005), (0.1, 1.0))}
choice = max(runs, key=lambda choice: max(runs[choice][1]))
trained, shares = runs[choice]
print(f'untrained: {shares[0]:.3f}, rank {rank}')
print(f'trained:   {max(shares):.3f}, epoch {shares.index(max(shares))}, rate and weight {choice}')

# %%
# A share of :math:`P` pairs has a standard error of at most :math:`1 / (2 \sqrt{P})`, and the best
# of many epochs and settings is in part the luckiest. So the trained model has to be ahead by more
# than one such error. This is a mild test: the best of many trials often passes it by luck.
untrained = new_model(rank)
choose_rule(untrained)
chance = 0.5 / valid.size(1) ** 0.5
model = trained if max(shares) - shares[0] > chance else untrained
print(f'the gain is {max(shares) - shares[0]:.3f}, and {chance:.3f} may be chance')

# %%
# Compare on the test pairs, also with the most popular items, which every recommender has to beat.
# On real data compare with neighbours of items and with models without attention, too: on
# Amazon-Beauty DirectAU is as good as MGFormer (:doc:`/benchmarks/recommendation`), because the
# embeddings determine the ranking.
known = torch.cat([train, valid], dim=1)
counts = train[1].bincount(minlength=model.num_nodes).float().repeat(model.num_users, 1)
counts[known[0], known[1]] = -1
popular = (counts.topk(20).indices[test[0]] == test[1][:, None]).any(1).float().mean().item()
results = {
    'most popular': popular,
    'untrained': recall(untrained, test, known),
    'trained': recall(trained, test, known),
}

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8), layout='constrained')
for (learning_rate, weight), (_, curve) in runs.items():
    color = {0.1: '#0072B2', 1.0: '#D55E00'}[weight]
    style = {0.001: '-', 0.005: '--'}[learning_rate]
    left.plot(curve, style, color=color, label=f'rate {learning_rate}, weight {weight}')
left.set(xlabel='epoch, 0: untrained', ylabel='Recall@20, validation', ylim=(0, None))
left.legend(frameon=False, fontsize='small')
bars = right.bar([*results], [*results.values()], color=['0.6', '0.6', '#0072B2'])
right.bar_label(bars, fmt='%.3f', padding=2)
right.set(ylabel='Recall@20, test', ylim=(0, 1.15 * max(results.values())))
for axis in (left, right):
    axis.spines[['top', 'right']].set_visible(False)

# %%
# The encodings alone tell the kinds of such simple data apart: here training adds no more than
# chance, with the larger rate and weight it does harm, and the untrained model is served. Real data
# are not made of ten kinds: on Amazon-Beauty the encodings can be left out without a loss, and
# training does the work (:doc:`/benchmarks/recommendation`).
#
# What to search on yours, on the validation pairs and in this order. If the best value is the first
# or the last of a range, widen the range:
#
# #. the rank of ``SVDEncoding``, 8 to 256: powers of 2, then values around the best. No training;
# #. the rule, ``'inner'`` and 0 to 1, in each epoch. No training either;
# #. the weight of uniformity, 0.1 to 2;
# #. the learning rate, 0.0003 to 0.01;
# #. ``embedding_dim``, 16 to 256. The learned channels are noise at the start.
#
# Serve
# -----
#
# ``recommend`` ranks all items for the users of a request and leaves out what they have. The test
# pairs are choices of users too, so they are left out here. Before you serve your own data, compute
# the encodings of all pairs and train once more on them, with the settings and the number of epochs
# that were best.
purchases = torch.cat([train, valid, test], dim=1)
users = torch.tensor([0, 7])
top = model.recommend(src_index=users, k=5, exclude=purchases) - model.num_users
answers = dict(zip(dataset.user_ids[users].tolist(), dataset.item_ids[top].tolist(), strict=True))
answers

# %%
# ``user_ids`` and ``item_ids`` are arrays of the ids in the file. An entry is a NumPy string, or an
# integer if all ids of the column are whole numbers. ``tolist()`` makes Python's own types of them.
#
# A server needs no data set, but these five entries. ``state_dict`` has the parameters, the
# degrees, the encodings and the rule. It does not have the arguments of the constructor: keep the
# numbers that ``from_data`` read from the data, and all arguments that are not the defaults.
torch.save(
    {
        'state_dict': model.state_dict(),
        'settings': {
            'num_users': model.num_users,
            'num_items': model.num_items,
            'max_degree': model.max_degree,
            **settings,
        },
        'user_ids': dataset.user_ids.tolist(),
        'item_ids': dataset.item_ids.tolist(),
        'known': purchases,
    },
    folder / 'model.pt',
)

# %%
# On the server, make the model with these settings and two of the tensors:
saved = torch.load(folder / 'model.pt')
state = saved['state_dict']
served = MGFormer(
    structural_encoding=state['structural_encoding'], degree=state['degree'], **saved['settings']
)
served.load_state_dict(state)
user_numbers, item_numbers = (
    {name: number for number, name in enumerate(saved[ids])} for ids in ('user_ids', 'item_ids')
)


def best_items(user, k=5):
    """The ids of the best items that are new to the user with this id."""
    (best,) = served.recommend(src_index=[user_numbers[user]], k=k, exclude=saved['known'])
    return [saved['item_ids'][item - served.num_users] for item in best.tolist()]


assert answers == {user: best_items(user) for user in answers}

# %%
# ``recommend`` computes all rows in each call. For many requests compute them once. If the rule is
# a number, the score is the inner product of a user's row of length 1 and a row of the item that is
# scaled by its degree. With the rule ``'inner'`` the rows stay as they are. An index of nearest
# neighbours, such as PyG's ``MIPSKNNIndex`` with the extra ``recommend``, takes the same rows.
with torch.no_grad():
    rows = served.eval().get_embedding()
rows = rows if served.scoring == 'inner' else normalize(rows)
user_rows, item_rows = rows.split([served.num_users, served.num_items])
index = item_rows
if not isinstance(served.scoring, str):
    index = item_rows * served.degree[served.num_users :, None].clamp(min=1) ** served.scoring


def nearest_items(query, chosen, k=5):
    """The ids of the k best items for the row of a user without the items that are chosen."""
    scores = index @ query
    scores[chosen] = -torch.inf
    return [saved['item_ids'][item] for item in scores.topk(k).indices.tolist()]


user = saved['user_ids'][0]
chosen = saved['known'][1, saved['known'][0] == 0] - served.num_users
assert nearest_items(user_rows[0], chosen) == best_items(user)

# %%
# What users choose from now on
# -----------------------------
#
# Append it to ``known``, as pairs of nodes. That hides the new item, and the ranking of all others
# stays as it is, because the row of the user does:
first, *others = best_items(user, k=6)
pair = torch.tensor([[0], [item_numbers[first] + served.num_users]])
saved['known'] = torch.cat([saved['known'], pair], dim=1)
assert best_items(user) == others

# %%
# To let the choice change the ranking at once, replace the user's row by the mean of the rows of
# all chosen items, including the new one. The rows have length 1 unless the rule is ``'inner'``:
chosen = saved['known'][1, saved['known'][0] == 0] - served.num_users
nearest_items(item_rows[chosen].mean(0), chosen)

# %%
# A user who came after the training has no row. The mean serves here too:
chosen = torch.tensor([item_numbers[item] for item in ('item3', 'item12', 'item40')])
nearest_items(item_rows[chosen].mean(0), chosen)

# %%
# Is that mean good enough? Compare it with the users' rows before you rely on it. To be fair, take
# the means over *training* items alone, hide the validation items, and test on the test items. One
# advantage is left: these users took part in the training of the items' rows. For a figure of new
# users, leave some users out of the training.
history = torch.zeros(served.num_users, served.num_items)
history[train[0], train[1] - served.num_users] = 1
hidden = torch.zeros_like(history, dtype=torch.bool)
hidden[known[0], known[1] - served.num_users] = True
compared = {}
for name, queries in {'rows of users': user_rows, 'means of items': history @ item_rows}.items():
    best = (queries @ index.T).masked_fill(hidden, -torch.inf).topk(20).indices
    hits = best[test[0]] == test[1][:, None] - served.num_users
    compared[name] = hits.any(1).float().mean().item()
assert abs(compared['rows of users'] - recall(model, test, known)) < 0.01
assert compared['means of items'] > popular
compared


# %%
# An item without a row cannot be ranked. When new items come, train again on all interactions, also
# those of new users. Replace the whole file: ids may have other numbers in the new data set.
# ``load_state_dict`` refuses the saved state, which has other sizes. The embedding of the new model
# may start from the saved rows, found by their ids. Its layers and encodings stay new, because new
# encodings have other columns.
def start_from_saved(model, user_ids, item_ids):
    """Copies the saved rows of the embedding to the users and items with the same ids."""
    rows = saved['state_dict']['embedding.weight']
    for ids, numbers, first, saved_first in (
        (user_ids, user_numbers, 0, 0),
        (item_ids, item_numbers, model.num_users, served.num_users),
    ):
        pairs = [(new, numbers[name]) for new, name in enumerate(ids) if name in numbers]
        new, old = torch.tensor(pairs).t()
        with torch.no_grad():
            model.embedding.weight[first + new] = rows[saved_first + old]


# in place of the next day's data: the same ids with other numbers
user_ids, item_ids = dataset.user_ids.tolist()[::-1], dataset.item_ids.tolist()[::-1]
next_model = new_model(rank)
start_from_saved(next_model, user_ids, item_ids)
new_rows = next_model.embedding.weight.split([num_users, num_items])
saved_rows = served.embedding.weight.split([num_users, num_items])
assert all(torch.equal(new.flip(0), old) for new, old in zip(new_rows, saved_rows, strict=True))

# %%
# In a checkout of the repository, ``python -m benchmarks.recommendation --root data --dataset
# amazon-beauty --model mgformer`` trains on public data to the end, and ``--model`` also names the
# baselines. :doc:`/benchmarks/recommendation` has the figures,
# :doc:`/theory/mgformer` the model.
