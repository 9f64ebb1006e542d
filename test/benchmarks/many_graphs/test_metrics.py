import pytest
import torch

from benchmarks.common.classes import predicted_classes
from benchmarks.many_graphs.metrics import criterion, f1, weighted_accuracy


def test_metrics_by_hand():
    target, prediction = torch.tensor([0, 0, 0, 1, 3, 3]), torch.tensor([0, 0, 1, 1, 0, 3])
    assert weighted_accuracy(prediction, target) == pytest.approx((2 / 3 + 1 + 1 / 2) / 3)
    assert f1(torch.tensor([1, 1, 0, 0]), torch.tensor([1, 0, 1, 0])) == pytest.approx(0.5)
    assert f1(torch.tensor([0, 0]), torch.tensor([0, 0])) == 0


def test_a_training_that_diverged_predicts_no_class():
    """The largest of scores that are NaN would be that of class 0."""
    scores = torch.tensor([[0.0, 1.0], [torch.nan, torch.nan], [0.0, torch.nan], [1.0, 0.0]])
    prediction = predicted_classes(scores)
    assert prediction.tolist() == [1, -1, -1, 0]
    assert weighted_accuracy(prediction, torch.tensor([1, 0, 0, 0])) == pytest.approx(2 / 3)
    assert f1(prediction, torch.tensor([1, 1, 0, 0])) == pytest.approx(2 / 3)


def test_classes_of_nodes_are_weighted_and_those_of_edges_are_not():
    target, out = torch.tensor([0, 0, 0, 1, 3, 3]), torch.randn(6, 5)
    each = out.logsumexp(1) - out.gather(1, target[:, None])[:, 0]
    weight = torch.tensor([1 / 2, 1 / 2, 1 / 2, 5 / 6, 2 / 3, 2 / 3])
    torch.testing.assert_close(criterion(out, target, 'node'), (weight * each).sum() / weight.sum())
    torch.testing.assert_close(criterion(out, target, 'edge'), each.mean())
