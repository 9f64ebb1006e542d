import re

import pytest
import torch

from torch_geometric_lgt.functional.ranking import History, best_items, checked_rule


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
