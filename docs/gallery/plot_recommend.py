r"""
Recommend from your own interactions
====================================

A file says which user chose which item. Train :class:`~torch_geometric_lgt.nn.MGFormer` on it, and
serve the best items that are new to each user.
"""

# %%
# A file of interactions
# ----------------------
#
# One row for each interaction, in a folder of its own: ``data/shop/raw.csv``, or ``raw.parquet``
# with the extra ``recommend``. Ids may be numbers or texts. Here 400 users each like two of ten
# kinds of items, and popular items are chosen more often.
from pathlib import Path
from tempfile import mkdtemp

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
# has a name instead, such as ``'movielens-100k'``, and is downloaded. ``SVDEncoding`` adds
# structural encodings of users and items.
#
# The third of ``columns`` has times, by which the rows are sorted. Without it the rows must be in
# the order of time for ``split='leave-one-out'``, which tests with the last item of each user. The
# default for a file ``raw`` is a random split.
dataset = InteractionDataset(
    folder,
    'shop',
    columns=('user_id', 'item_id', 'time'),
    pre_transform=SVDEncoding(32, normalize=True),
)
data = dataset[0]
data

# %%
# Train
# -----
#
# Users and items are the nodes of one graph, items after users. The data set numbers both from 0:
# add the number of users to the items once, and all pairs below are pairs of nodes.
settings = {'embedding_dim': 32}
model = MGFormer.from_data(data, **settings)
rates = data['user', 'rates', 'item']
offset = torch.tensor([[0], [model.num_users]])
train, valid, test = (
    rates[f'{part}_edge_label_index'] + offset for part in ('train', 'valid', 'test')
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)


def recall(pairs, known, k=20):
    """The share of the pairs that are among the user's k best items without known ones."""
    best = model.recommend(k=k, exclude=known)
    return (best[pairs[0]] == pairs[1][:, None]).any(1).float().mean().item()


# %%
# The nodes of a batch are queries, and all nodes are keys of the attention. ``attention_states``
# sums up the keys, which takes most of a step on a large graph. Users and items of a batch share
# the sums, and the next three steps read them as constants.
EPOCHS = 8
recalls = [recall(valid, train)]
for _ in range(EPOCHS):
    for step, pairs in enumerate(train[:, torch.randperm(train.size(1))].split(1024, dim=1)):
        if step % 4 == 0:
            states = model.attention_states()
        users, items = (model.get_embedding(nodes=nodes, states=states) for nodes in pairs)
        optimizer.zero_grad()
        alignment_uniformity(users, items, weight=0.5).backward()
        optimizer.step()
        states = [state.detach() for state in states]
    recalls.append(recall(valid, train))

# %%
# The rule of ranking is chosen on the validation pairs. The model keeps it.
scores = {}
for rule in ('inner', 0.0, 0.1, 0.3):
    model.scoring = rule
    scores[rule] = recall(valid, train)
model.scoring = max(scores, key=scores.get)
scores

# %%
# Compare with the most popular items, which every recommender has to beat. On real data also
# compare with neighbours of items and with models without attention: on Amazon-Beauty DirectAU is
# as good as MGFormer (:doc:`/benchmarks/index`), because the embeddings determine the ranking.
import matplotlib.pyplot as plt

known = torch.cat([train, valid], dim=1)
counts = train[1].bincount(minlength=model.num_nodes).float().repeat(model.num_users, 1)
counts[known[0], known[1]] = -1
popular = (counts.topk(20).indices[test[0]] == test[1][:, None]).any(1).float().mean().item()
trained = recall(test, known)

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6), layout='constrained')
left.plot(recalls, color='#0072B2')
left.set(xlabel='epoch', ylabel='Recall@20, validation', ylim=(0, None))
bars = right.bar(['most popular', 'MGFormer'], [popular, trained], color=['0.6', '#0072B2'])
right.bar_label(bars, fmt='%.2f', padding=2)
right.set(ylabel='Recall@20, test', ylim=(0, 1.15 * max(popular, trained)))
for axis in (left, right):
    axis.spines[['top', 'right']].set_visible(False)

# %%
# The curve is flat: the encodings alone tell the kinds of such simple data apart. The rule with
# some weight for popular items helps. Real data are not made of ten kinds: watch the curve on
# yours, keep a copy of ``state_dict`` at its best epoch, and search the learning rate and the
# weight of the uniformity on the validation pairs. A poor choice makes the encodings worse than
# they were.
#
# Serve
# -----
#
# ``recommend`` ranks all items for the users of a request and leaves out what they have. The test
# pairs are choices of users too, so they are left out here. Before you serve your own data, train
# once more on all pairs, with the settings and the number of epochs that were best.
known = torch.cat([known, test], dim=1)
users = torch.tensor([0, 7])
top = model.recommend(src_index=users, k=5, exclude=known) - model.num_users
answers = dict(zip(dataset.user_ids[users].tolist(), dataset.item_ids[top].tolist(), strict=True))
answers

# %%
# A server needs no data set, but these five entries. ``state_dict`` has the parameters, the
# degrees, the encodings and the rule. It does not have the arguments of the model, such as
# ``heads``: keep all that are not the defaults.
torch.save(
    {
        'state_dict': model.state_dict(),
        'settings': settings,
        'user_ids': dataset.user_ids.tolist(),
        'item_ids': dataset.item_ids.tolist(),
        'known': known,
    },
    folder / 'model.pt',
)

# %%
# On the server, the sizes of the model come from the ids and the tensors:
saved = torch.load(folder / 'model.pt')
state = saved['state_dict']
user_numbers, item_numbers = (
    {name: number for number, name in enumerate(saved[ids])} for ids in ('user_ids', 'item_ids')
)
served = MGFormer(
    len(user_numbers),
    len(item_numbers),
    structural_encoding=state['structural_encoding'],
    degree=state['degree'],
    max_degree=state['layers.0.degree_embedding.weight'].size(0) - 1,
    **saved['settings'],
)
served.load_state_dict(state)


def best_items(user, k=5):
    """The ids of the best items that are new to the user with this id."""
    (best,) = served.recommend(src_index=[user_numbers[user]], k=k, exclude=saved['known'])
    return [saved['item_ids'][item - served.num_users] for item in best.tolist()]


assert answers == {user: best_items(user) for user in answers}

# %%
# Append what users choose from now on to ``known``, as pairs of nodes.
#
# ``recommend`` computes all rows in each call. For many requests compute them once. The rule here
# is a number: the score is the inner product of a user's row of length 1 and a row of the item that
# is scaled by its degree. With the rule ``'inner'`` take the rows as they are. An index of nearest
# neighbours, such as PyG's ``MIPSKNNIndex`` with the extra ``recommend``, takes the same rows.
with torch.no_grad():
    rows = normalize(served.eval().get_embedding())
user_rows, item_rows = rows.split([served.num_users, served.num_items])
degrees = served.degree[served.num_users :].clamp(min=1)
index = item_rows * degrees[:, None] ** served.scoring


def nearest_items(query, chosen, k=5):
    """The ids of the k best items for the row of a user without the items that are chosen."""
    scores = index @ query
    scores[chosen] = -torch.inf
    return [saved['item_ids'][item] for item in scores.topk(k).indices.tolist()]


chosen = known[1, known[0] == 0] - served.num_users
assert nearest_items(user_rows[0], chosen) == best_items(saved['user_ids'][0])

# %%
# A user who came after the training has no row. The mean of the chosen items' rows, each of length
# 1, takes its place:
chosen = [item_numbers[item] for item in ('item3', 'item12', 'item40')]
nearest_items(item_rows[chosen].mean(0), chosen)

# %%
# Is that mean good enough? Compare it with the trained rows before you rely on it. These users took
# part in the training; leave some out of yours for a fair figure.
history = torch.zeros(served.num_users, served.num_items)
history[known[0], known[1] - served.num_users] = 1
shares = {}
for name, queries in {'trained rows': user_rows, 'means of items': history @ item_rows}.items():
    best = (queries @ index.T).masked_fill(history > 0, -torch.inf).topk(20).indices
    hits = best[test[0]] == test[1][:, None] - served.num_users
    shares[name] = hits.any(1).float().mean().item()
shares

# %%
# An item without a row cannot be ranked. When new items come, train again on all interactions, also
# those of new users: ids of the new data set may have other numbers, so replace the whole file.
#
# ``python -m benchmarks.recommendation --root data --dataset amazon-beauty --model mgformer``
# trains on public data to the end, and ``--model`` also names the baselines.
# :doc:`/benchmarks/index` has the figures, :doc:`/theory/mgformer` the model.
