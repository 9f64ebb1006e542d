r"""Evaluates the full ranking of all items."""

# U users, I items, E pairs.
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.metrics import LinkPredMetricCollection, LinkPredNDCG, LinkPredRecall

from torch_geometric_lgt.functional.ranking import History, Scores, best_items, user_chunks

Rule = str | float  # of a ranking, as in MGFormer.scoring
LENGTH = 20  # of the rankings in results


class Scoring(NamedTuple):
    r"""Stores :obj:`scores`, a function from user ids ``[B]`` to scores ``[B, I]``, and
    :obj:`factors` ``[I]`` of the items by rule. A rule ranks items by their scores times their
    factors."""

    scores: Scores
    factors: Mapping[Rule, Tensor]

    def only(self, *rules: Rule) -> 'Scoring':
        r"""Returns a scoring with the same function and only the factors of :obj:`rules`."""
        factors = {rule: factor for rule, factor in self.factors.items() if rule in rules}
        return Scoring(self.scores, factors)


def rank_by_rules(scoring: Scoring, users: Tensor, seen: History, k: int) -> dict[Rule, Tensor]:
    r"""Returns for each rule the :obj:`k` best items ``[B, k]`` of the user ids :obj:`users`
    ``[B]``. All rules share the scores, which are computed once. The items that a user has
    :obj:`seen` are ranked last."""
    best: dict[Rule, list[Tensor]] = {rule: [users.new_empty((0, k))] for rule in scoring.factors}
    num_items = min(factor.numel() for factor in scoring.factors.values())
    buffer = None
    for chunk in user_chunks(users, num_items):
        scores, seen_pairs = scoring.scores(chunk), seen[chunk]
        buffer = torch.empty_like(scores) if buffer is None else buffer
        for rule, factor in scoring.factors.items():
            product = torch.mul(scores, factor, out=buffer[: chunk.numel()])
            best[rule].append(best_items(product, seen_pairs, k))
    return {rule: torch.cat(chunks) for rule, chunks in best.items()}


def evaluate(
    scoring: Scoring,
    pairs: Tensor,
    seen: Tensor,
    num_users: int,
    k: int = LENGTH,
    groups: dict[str, Tensor] | None = None,
) -> dict[Rule, dict[str, float]]:
    r"""Computes recall and NDCG of the full ranking for each rule, as means over the users with a
    pair.

    Args:
        scoring (Scoring): The scores, with the factors of all rules.
        pairs (torch.Tensor): The pairs of users and wanted items ``[2, E]``.
        seen (torch.Tensor): Pairs whose items are not ranked ``[2, *]``.
        num_users (int): The number of users.
        k (int, optional): The length of the ranking. (default: :obj:`20`)
        groups (dict, optional): Masks of items ``[I]``. The same ranking is evaluated with the
            items of each group as the only wanted ones. A group without a pair has no metrics.
            (default: :obj:`None`)
    """
    grouped = {f'_{name}': pairs[:, mask[pairs[1]]] for name, mask in (groups or {}).items()}
    parts = {'': pairs} | {name: part for name, part in grouped.items() if part.size(1) > 0}
    wanted = {name: History.of(part, num_users) for name, part in parts.items()}
    metrics = {
        (rule, name): LinkPredMetricCollection(
            {'recall': LinkPredRecall(k), 'ndcg': LinkPredNDCG(k)}
        ).to(pairs.device)
        for rule in scoring.factors
        for name in parts
    }
    users = wanted[''].ptr.diff().nonzero().flatten()
    best = rank_by_rules(scoring, users, History.of(seen, num_users), k)
    for (rule, name), metric in metrics.items():
        metric.update(best[rule], wanted[name][users])
    results: dict[Rule, dict[str, float]] = {rule: {} for rule in scoring.factors}
    for (rule, name), metric in metrics.items():
        values = metric.compute()
        results[rule] |= {f'{key}@{k}{name}': float(value) for key, value in values.items()}
    return results
