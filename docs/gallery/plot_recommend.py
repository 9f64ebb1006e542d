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
times = torch.rand(num_users, 20).argsort(1)

folder = Path(mkdtemp())
(folder / 'shop').mkdir()
rows = [
    f'user{user},item{item},{time}'
    for user in range(num_users)
    for item, time in zip(choices[user].tolist(), times[user].tolist(), strict=True)
]
_ = (folder / 'shop' / 'raw.csv').write_text('\n'.join(['user_id,item_id,time', *rows, '']))

# %%
# :class:`~torch_geometric_lgt.datasets.InteractionDataset` reads and splits it. Leave-one-out tests
# on the last item of each user and validates on the last but one, so it needs the order of time.
# The third name in ``columns`` is that of the times; without it, the rows must be in order. Without
# times, take ``split='ratio'``, at random. A public data set has a name instead, such as
# ``'movielens-100k'``, and is downloaded. ``SVDEncoding`` adds structural encodings of users and
# items.
dataset = InteractionDataset(
    folder,
    'shop',
    split='leave-one-out',
    columns=('user_id', 'item_id', 'time'),
    pre_transform=SVDEncoding(32, normalize=True),
)
data = dataset[0]
data

# %%
# Train
# -----
#
# Users and items are the nodes of one graph, users first: item 0 is node ``num_users``. The data
# count items from 0, and ``exclude`` and the result of ``recommend`` have nodes, so ``offset`` is
# added to pairs and subtracted from results. Pairs without it raise an error, unless no number of
# an item in them is below ``num_users``.
model = MGFormer.from_data(data, embedding_dim=32)
rates = data['user', 'rates', 'item']
train, valid, test = (rates[f'{part}_edge_label_index'] for part in ('train', 'valid', 'test'))
offset = torch.tensor([[0], [model.num_users]])


def best_items(model, known, users=None, k=20):
    """The numbers of the k best items without known pairs, for each user."""
    nodes = model.recommend(src_index=users, k=k, exclude=known + offset)
    return nodes - model.num_users


def recall(pairs, best):
    """The share of the pairs that are among the user's best items."""
    return (best[pairs[0]] == pairs[1][:, None]).any(1).float().mean().item()


# %%
# All users and items are keys of the attention. The pairs of a batch are its queries. The sums over
# the keys cost most of a step. ``attention_states`` computes them here once in an epoch, and the
# steps read them. Without ``states`` each step computes its own, with gradients for the keys.
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
EPOCHS = 8
recalls = [recall(valid, best_items(model, train))]
for _ in range(EPOCHS):
    with torch.no_grad():
        states = model.attention_states()
    for users, items in train[:, torch.randperm(train.size(1))].split(1024, dim=1):
        optimizer.zero_grad()
        loss = alignment_uniformity(
            model.get_embedding(nodes=users, states=states),
            model.get_embedding(nodes=items + model.num_users, states=states),
            weight=0.5,
        )
        loss.backward()
        optimizer.step()
    recalls.append(recall(valid, best_items(model, train)))

# %%
# The rule of ranking is chosen on the validation pairs. The model keeps it.
scores = {}
for rule in ('inner', 0.0, 0.1, 0.3):
    model.scoring = rule
    scores[rule] = recall(valid, best_items(model, train))
model.scoring = max(scores, key=scores.get)
scores

# %%
# Compare with the most popular items, which every recommender has to beat:
import matplotlib.pyplot as plt

known = torch.cat([train, valid], dim=1)
counts = train[1].bincount(minlength=model.num_items).float().repeat(model.num_users, 1)
counts[known[0], known[1]] = -1
popular = recall(test, counts.topk(20).indices)
trained = recall(test, best_items(model, known))

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6), layout='constrained')
left.plot(recalls, color='#0072B2')
left.set(xlabel='epoch', ylabel='Recall@20, validation', ylim=(0, None))
bars = right.bar(['most popular', 'MGFormer'], [popular, trained], color=['0.6', '#0072B2'])
right.bar_label(bars, fmt='%.2f', padding=2)
right.set(ylabel='Recall@20, test', ylim=(0, 1.15 * max(popular, trained)))
for axis in (left, right):
    axis.spines[['top', 'right']].set_visible(False)

# %%
# The curve begins high, for the encodings tell the kinds of items apart before the first step.
# These few and simple interactions teach the model little more; the rule with some weight for
# popular items does more. Real data are not made of ten kinds: watch the curve on yours, and stop
# at its best epoch.
#
# Serve
# -----
#
# A server has neither the files nor the data object. Store the ids of users and items by number,
# the known pairs, and the ``state_dict``: it has the parameters, the encodings, the degrees and the
# rule of ranking.
torch.save(
    {
        'state': model.state_dict(),
        'user_ids': dataset.user_ids.tolist(),
        'item_ids': dataset.item_ids.tolist(),
        'known': known,
    },
    folder / 'shop.pt',
)

# %%
# The sizes of the model follow from the stored tensors. ``num_layers``, ``heads``, ``mask``,
# ``feature_map`` and ``residual`` must be those of the training, which has the defaults here:
saved = torch.load(folder / 'shop.pt')
state = saved['state']
served = MGFormer(
    num_users=len(saved['user_ids']),
    num_items=len(saved['item_ids']),
    embedding_dim=state['embedding.weight'].size(1),
    structural_encoding=state['structural_encoding'],
    degree=state['degree'],
    max_degree=state['layers.0.degree_embedding.weight'].size(0) - 1,
)
served.load_state_dict(state)
served.eval()

# %%
# A request names users by their ids, and the answer names items by theirs:
user_number = {name: number for number, name in enumerate(saved['user_ids'])}
users = torch.tensor([user_number[name] for name in ('user0', 'user7')])
top = best_items(served, saved['known'], users, k=5)
assert torch.equal(top, best_items(model, known)[users, :5])
[[saved['item_ids'][item] for item in row] for row in top.tolist()]

# %%
# ``recommend`` computes all rows in each call. Compute them once where there are many requests. The
# inner product of two rows is the score by the rule ``'inner'``, so they also fit an index of
# nearest neighbours, such as PyG's ``MIPSKNNIndex`` with the extra ``recommend``:
with torch.no_grad():
    user_rows, item_rows = served.get_embedding().split([served.num_users, served.num_items])
user_rows.shape, item_rows.shape

# %%
# A user who came after the training has no row. The mean of the unit rows of some chosen items
# serves in its place, until the next training knows the user. The power of the degrees is that of
# the rule:
unit_rows = normalize(item_rows)
item_degree = served.degree[served.num_users :].clamp(min=1)


def score(profile):
    """The score of each item for the mean of unit rows."""
    if served.scoring == 'inner':
        return profile @ item_rows.t()
    power = 0 if served.scoring == 'cosine' else served.scoring
    return profile @ unit_rows.t() * item_degree**power


item_number = {name: number for number, name in enumerate(saved['item_ids'])}
chosen = [item_number[name] for name in ('item3', 'item14', 'item15')]
ranking = score(unit_rows[chosen].mean(0))
ranking[chosen] = -torch.inf  # what the user has
[saved['item_ids'][item] for item in ranking.topk(5).indices.tolist()]

# %%
# How good is this? Rank for all users as if none of them had been trained. On these simple data the
# mean is as good as a row of its own; measure it on yours:
profiles = torch.stack([unit_rows[known[1, known[0] == u]].mean(0) for u in range(num_users)])
ranking = score(profiles)
ranking[known[0], known[1]] = -torch.inf
untrained = recall(test, ranking.topk(20).indices)
{'rows of their own': round(trained, 2), 'means of item rows': round(untrained, 2)}

# %%
# A new item has no row either, and is not recommended before the next training, on the file with
# all interactions. A new id moves the numbers of others, so store new ids with each ``state_dict``.
#
# ``python -m benchmarks.recommendation --root data --dataset amazon-beauty --model mgformer``
# trains on public data to the end, and ``--model`` also names the baselines. :doc:`/benchmarks`
# has the figures, :doc:`/theory/mgformer` the model.
