# U users, I items, E pairs.
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.metrics import LinkPredMetricCollection, LinkPredNDCG, LinkPredRecall

from torch_geometric_lgt.functional.edges import ranges

Scores = Callable[[Tensor], Tensor]


class History(NamedTuple):
    r"""The items of each user: those of user :obj:`u` are ``item[ptr[u] : ptr[u + 1]]``."""

    ptr: Tensor
    item: Tensor

    @classmethod
    def of(cls, pairs: Tensor, num_users: int) -> 'History':
        user, item = pairs[:, pairs[0].argsort(stable=True)]
        return cls(torch.searchsorted(user, torch.arange(num_users + 1, device=user.device)), item)

    def __getitem__(self, users: Tensor) -> Tensor:
        r"""The pairs ``[2, E]`` of users, counted from 0 in their order."""
        row, position = ranges(self.ptr[users], self.ptr[users + 1] - self.ptr[users])
        return torch.stack([row, self.item[position]])


def rank(scores: Scores, users: Tensor, seen: History, k: int, chunk: int = 1024):
    r"""Yields users and their :obj:`k` items with the highest scores, without those they have seen, chunk by chunk. What :obj:`scores`
    returns is written to."""
    for part in users.split(chunk):
        score = scores(part)
        row, item = seen[part]
        score[row, item] = -torch.inf
        yield part, score.topk(k).indices


def evaluate(
    scores: Scores, pairs: Tensor, seen: Tensor, num_users: int, k: int = 20, groups: dict[str, Tensor] | None = None
) -> dict[str, float]:
    r"""Recall and NDCG of the full ranking, means over the users with a pair. Items of :obj:`seen` pairs are not ranked. For each of
    :obj:`groups`, masks of items ``[I]``, only its items are wanted, in the same ranking."""
    parts = {'': pairs} | {f'_{name}': pairs[:, mask[pairs[1]]] for name, mask in (groups or {}).items()}
    wanted = {name: History.of(part, num_users) for name, part in parts.items()}
    metrics = {name: LinkPredMetricCollection({'recall': LinkPredRecall(k), 'ndcg': LinkPredNDCG(k)}).to(pairs.device) for name in parts}
    users = wanted[''].ptr.diff().nonzero().flatten()
    for part, top in rank(scores, users, History.of(seen, num_users), k):
        for name, metric in metrics.items():
            metric.update(top, wanted[name][part])
    return {f'{key}@{k}{name}': float(value) for name, metric in metrics.items() for key, value in metric.compute().items()}
