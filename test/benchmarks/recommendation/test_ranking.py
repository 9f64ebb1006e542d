import math

import pytest
import torch

from benchmarks.recommendation.ranking import History, Scoring, evaluate, rank_by_rules
from torch_geometric_lgt.functional import ranking


def brute_force(scores, pairs, seen, num_users, k):
    """Recall and NDCG with Python lists."""
    recall, ndcg, counted = 0.0, 0.0, 0
    for user in range(num_users):
        wanted = {int(i) for u, i in pairs.t() if u == user}
        if not wanted:
            continue
        known = {int(i) for u, i in seen.t() if u == user}
        order = sorted(
            (i for i in range(scores.size(1)) if i not in known),
            key=lambda i: -float(scores[user, i]),
        )[:k]
        gains = [1 / math.log2(place + 2) for place, item in enumerate(order) if item in wanted]
        recall += len(gains) / len(wanted)
        ndcg += sum(gains) / sum(1 / math.log2(place + 2) for place in range(min(k, len(wanted))))
        counted += 1
    return recall / counted, ndcg / counted


@pytest.mark.parametrize('k', [1, 3, 10])
def test_equals_brute_force(k):
    generator = torch.Generator().manual_seed(0)
    cells = torch.randperm(30 * 40, generator=generator)
    cells = torch.stack([cells // 40, cells % 40])
    pairs, seen = cells[:, :100], cells[:, 100:300]
    pairs = pairs[:, pairs[0] % 5 != 0]  # some users without a test item
    scores = torch.randn(30, 40, generator=generator)
    even = torch.arange(40) % 2 == 0
    factors = {'inner': torch.ones(40), 0.5: torch.rand(40, generator=generator)}
    scoring = Scoring(lambda users: scores[users], factors)
    metrics = evaluate(scoring, pairs, seen, 30, k, {'even': even})
    for way, factor in scoring.factors.items():
        for name, part in (('', pairs), ('_even', pairs[:, even[pairs[1]]])):
            recall, ndcg = brute_force(scores * factor, part, seen, 30, k)
            assert metrics[way][f'recall@{k}{name}'] == pytest.approx(recall, rel=1e-5)
            assert metrics[way][f'ndcg@{k}{name}'] == pytest.approx(ndcg, rel=1e-5)
    assert evaluate(scoring.only(0.5), pairs, seen, 30, k, {'even': even}) == {0.5: metrics[0.5]}


def test_a_group_without_a_pair_has_no_metrics():
    pairs, even = torch.tensor([[0, 1], [0, 2]]), torch.arange(4) % 2 == 0
    scoring = Scoring(lambda users: torch.rand(users.numel(), 4), {'inner': torch.ones(4)})
    metrics = evaluate(scoring, pairs, pairs[:, :0], 2, 3, {'even': even, 'odd': ~even})
    assert metrics['inner'].keys() == {'recall@3', 'ndcg@3', 'recall@3_even', 'ndcg@3_even'}


def test_chunks_and_seen_items(constants):
    constants(ranking_chunk=6)
    scores = torch.arange(12.0).view(4, 3)
    seen = History.of(torch.tensor([[3, 0, 3], [2, 2, 1]]), 4)
    scored = []

    def score(users):
        scored.append(users.tolist())
        return scores[users]

    users, nobody = torch.tensor([0, 1, 3]), torch.tensor([], dtype=torch.long)
    best = ranking.rank(score, torch.ones(3), users, seen, 1)
    assert best.tolist() == [[1], [2], [0]]
    assert ranking.rank(score, torch.ones(3), nobody, seen, 1).shape == (0, 1)
    assert ranking.rank(score, -torch.ones(3), users, seen, 1).tolist() == [[0], [0], [0]]
    with pytest.raises(ValueError, match="'k' must be at most 3, the number of items"):
        ranking.rank(score, torch.ones(3), torch.tensor([0]), seen, 4)
    scored.clear()
    scoring = Scoring(score, {'inner': torch.ones(3), 0.5: -torch.ones(3)})
    best_by_rule = rank_by_rules(scoring, users, seen, 1)
    assert scored == [[0, 1], [3]]  # once for both rules
    assert torch.equal(best_by_rule['inner'], best)
    assert best_by_rule[0.5].tolist() == [[0], [0], [0]]
    assert rank_by_rules(scoring, nobody, seen, 1)['inner'].shape == (0, 1)
    with pytest.raises(ValueError, match="'k' must be at most 3, the number of items"):
        rank_by_rules(scoring, torch.tensor([0]), seen, 4)
    assert scores.isfinite().all()
