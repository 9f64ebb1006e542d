r"""Computes losses and metrics of predictions for nodes or edges."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader

from benchmarks.common.classes import predicted_classes

Metric = Callable[[Tensor, Tensor], float]


def criterion(out: Tensor, target: Tensor, level: str) -> Tensor:
    r"""Computes the published cross entropy. It is plain for edges; for nodes the weight of a class
    is the share of all other classes."""
    if level == 'edge':
        return cross_entropy(out.float(), target)
    count = torch.bincount(target, minlength=out.size(1))
    return cross_entropy(out.float(), target, (1 - count / count.sum()) * (count > 0))


def weighted_accuracy(prediction: Tensor, target: Tensor) -> float:
    r"""Computes the mean over the classes of the accuracy within each class."""
    correct = torch.bincount(target, prediction == target)
    count = torch.bincount(target)
    return float((correct[count > 0] / count[count > 0]).mean())


def f1(prediction: Tensor, target: Tensor) -> float:
    r"""Computes the F1 score of class 1."""
    found, wanted = prediction == 1, target == 1
    return float(2 * (found & wanted).sum() / (found.sum() + wanted.sum()).clamp(min=1))


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, loader: DataLoader, metric: Metric, level: str
) -> tuple[float, float]:
    r"""Computes the metric over all graphs, and the mean loss of a batch."""
    predictions, targets, losses, device = [], [], [], next(model.parameters()).device
    for data in loader:
        out, y = model(data.to(device)).cpu(), data.y.cpu()
        losses.append(criterion(out, y, level))
        predictions.append(predicted_classes(out))
        targets.append(y)
    return metric(torch.cat(predictions), torch.cat(targets)), float(torch.stack(losses).mean())
