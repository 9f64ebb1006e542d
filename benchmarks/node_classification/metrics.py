r"""Measures how well the scores of nodes tell their classes."""

# N nodes, C classes.
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.common.classes import predicted_classes
from benchmarks.common.files import DataError


class Metric(NamedTuple):
    r"""Describes a metric: its name in tables, and the function of the scores ``[N, C]`` and the
    classes ``[N]``. Larger values are better."""

    title: str
    compute: Callable[[Tensor, Tensor], float]


def accuracy(scores: Tensor, y: Tensor) -> float:
    r"""Computes the share of the nodes whose class has the largest score."""
    return float((predicted_classes(scores) == y).double().mean())


def roc_auc(scores: Tensor, y: Tensor) -> float:
    r"""Computes the area under the ROC curve of two classes. It is the share of all pairs of a node
    of class 1 and a node of class 0 in which the node of class 1 has the larger difference of the
    scores of both classes. Equal differences count half. A difference that is NaN counts as 0, as
    after a training that diverged."""
    from sklearn.metrics import roc_auc_score

    difference = (scores[:, 1].double() - scores[:, 0].double()).nan_to_num()
    return float(roc_auc_score(y.cpu().numpy(), difference.cpu().numpy()))


METRICS = {'accuracy': Metric('accuracy', accuracy), 'roc_auc': Metric('ROC-AUC', roc_auc)}


def metric_of(record: Mapping[str, Any]) -> str:
    r"""Returns the name of the metric of a result: accuracy if it does not name one."""
    return record['config'].get('metric', 'accuracy')


def check_classes(y: Tensor, parts: Mapping[str, Tensor], metric: str) -> None:
    r"""Checks that a metric is defined for the classes of a graph and of the given parts.

    Raises:
        DataError: If the metric is ROC-AUC and there are not two classes, or a part lacks one.
    """
    if metric != 'roc_auc':
        return
    classes = y[y >= 0].unique()
    if not torch.equal(classes.cpu(), torch.arange(2)):
        raise DataError(
            "'metric' = 'roc_auc' needs the classes 0 and 1; use accuracy (got the classes "
            f'{", ".join(map(str, classes.tolist()[:5]))}{" .." if classes.numel() > 5 else ""})'
        )
    for name, nodes in parts.items():
        if y[nodes].unique().numel() < 2:
            raise DataError(
                f"'metric' = 'roc_auc' needs nodes of both classes in the {name} part; use "
                'accuracy or another protocol'
            )
