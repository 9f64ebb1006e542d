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
rows = [f'user{user},item{item}' for user in range(num_users) for item in choices[user].tolist()]
_ = (folder / 'shop' / 'raw.csv').write_text('\n'.join(['user_id,item_id', *rows, '']))

# %%
# :class:`~torch_geometric_lgt.datasets.InteractionDataset` reads and splits it. A public data set
# has a name instead, such as ``'movielens-100k'``, and is downloaded. ``SVDEncoding`` adds
# structural encodings of users and items.
dataset = InteractionDataset(folder, 'shop', pre_transform=SVDEncoding(32, normalize=True))
data = dataset[0]
data

# %%
# Train
# -----
#
# All users and items are keys of the attention. The pairs of a batch are its queries. Nodes of
# items come after those of the users.
model = MGFormer.from_data(data, embedding_dim=32)
rates = data['user', 'rates', 'item']
train, valid, test = (rates[f'{part}_edge_label_index'] for part in ('train', 'valid', 'test'))
offset = torch.tensor([[0], [model.num_users]])
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)


def recall(pairs, known, k=20):
    """The share of the pairs that are among the user's k best items without known ones."""
    best = model.recommend(k=k, exclude=known + offset) - model.num_users
    return (best[pairs[0]] == pairs[1][:, None]).any(1).float().mean().item()


EPOCHS = 8
recalls = [recall(valid, train)]
for _ in range(EPOCHS):
    for users, items in train[:, torch.randperm(train.size(1))].split(1024, dim=1):
        optimizer.zero_grad()
        loss = alignment_uniformity(
            model.get_embedding(nodes=users),
            model.get_embedding(nodes=items + model.num_users),
            weight=0.5,
        )
        loss.backward()
        optimizer.step()
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
# Compare with the most popular items, which every recommender has to beat:
import matplotlib.pyplot as plt

known = torch.cat([train, valid], dim=1)
counts = train[1].bincount(minlength=model.num_items).float().repeat(model.num_users, 1)
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
# The encodings tell the kinds of items apart before the first step, and on data this simple
# training adds nothing to them. The rule with some weight for popular items does. Real data are not
# made of ten kinds: watch the curve on yours, and stop at its best epoch.
#
# Serve
# -----
#
# ``recommend`` ranks all items for the users of a request and leaves out what they have:
users = torch.tensor([0, 7])
top = model.recommend(src_index=users, k=5, exclude=known + offset) - model.num_users
{str(dataset.user_ids[users[i]]): dataset.item_ids[top[i]].tolist() for i in range(len(users))}

# %%
# ``state_dict`` has parameters, encodings and the rule. A server loads it into a model of the same
# sizes:
torch.save(model.state_dict(), folder / 'model.pt')
served = MGFormer.from_data(data, embedding_dim=32)
served.load_state_dict(torch.load(folder / 'model.pt'))
again = served.recommend(src_index=users, k=5, exclude=known + offset) - model.num_users
assert torch.equal(again, top)

# %%
# For an index of nearest neighbours, such as PyG's ``MIPSKNNIndex`` with the extra ``recommend``,
# export the embeddings once. The inner product of two rows is the score by the rule ``'inner'``:
with torch.no_grad():
    embedding = model.eval().get_embedding()
user_rows, item_rows = embedding.split([model.num_users, model.num_items])
user_rows.shape, item_rows.shape

# %%
# ``python -m benchmarks.recommendation --root data --dataset amazon-beauty --model mgformer``
# trains on public data to the end, and ``--model`` also names the baselines. :doc:`/benchmarks`
# has the figures, :doc:`/theory/mgformer` the model.
