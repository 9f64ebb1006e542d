import re

import pytest
import torch

from torch_geometric_lgt.functional.ranking import (
    History,
    best_items,
    checked_rule,
    item_factor,
    rank,
)


def test_only_items_are_partners():
    """Nodes 1 and 4 are items; the pair of the nodes 0 and 2 is none of the history."""
    pairs = torch.tensor([[0, 0, 4, 0, 3], [1, 2, 0, 1, 4]])
    history = History.among(torch.tensor([1, 4]), pairs, 5)
    assert history.ptr.tolist() == [0, 2, 2, 2, 3, 3]
    assert history.item.tolist() == [0, 1, 1]


def test_the_power_0_of_a_degree_is_the_cosine():
    assert checked_rule(0) == checked_rule(0.0) == 'cosine'
    assert checked_rule(0.5) == 0.5


def test_best_items_come_in_the_order_of_their_scores():
    scores = torch.arange(400.0).roll(150)[None]
    best = best_items(scores, torch.tensor([[0], [149]]), 100)
    assert best.tolist() == [[*range(148, 48, -1)]]


def test_more_items_than_there_are():
    message = "'k' must be at most 3, the number of items (got 4)"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        best_items(torch.ones(1, 3), torch.zeros(2, 0, dtype=torch.long), 4)


def test_factors_of_a_rule_have_the_precision_of_the_items():
    items, degree = torch.ones(3, 2, dtype=torch.float64), torch.tensor([0, 2, 3])
    expected = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).sqrt()
    assert torch.equal(item_factor(0.5, items, degree), expected)
    assert torch.equal(item_factor('cosine', items), torch.ones(3, dtype=torch.float64))


def test_a_rule_that_is_unknown_is_named():
    with pytest.raises(
        ValueError, match=r"'scoring' must be one of 'inner', 'cosine', .*got 'dot'\)"
    ):
        checked_rule('dot')


def test_the_best_item_comes_first_by_default():
    scores = torch.randn(4, 3000, generator=torch.Generator().manual_seed(0))
    seen = History.of(torch.empty(2, 0, dtype=torch.long), 4)
    best = rank(lambda users: scores[users].clone(), torch.ones(3000), torch.arange(4), seen, 500)
    assert bool((scores.gather(1, best).diff(dim=1) <= 0).all())
