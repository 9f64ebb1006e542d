# U users, I items, E pairs.
from torch import Tensor
from torch_geometric.metrics import LinkPredMetricCollection, LinkPredNDCG, LinkPredRecall

from torch_geometric_lgt.functional.ranking import History, Scoring, rank


def evaluate(
    scoring: Scoring,
    pairs: Tensor,
    seen: Tensor,
    num_users: int,
    k: int = 20,
    groups: dict[str, Tensor] | None = None,
) -> dict[float, dict[str, float]]:
    r"""Recall and NDCG of the full ranking, means over the users with a pair, by each way to weigh
    the items. Items of :obj:`seen` pairs are not ranked. For each of :obj:`groups`, masks of items
    ``[I]``, only its items are wanted, in the same ranking."""
    parts = {'': pairs} | {
        f'_{name}': pairs[:, mask[pairs[1]]] for name, mask in (groups or {}).items()
    }
    wanted = {name: History.of(part, num_users) for name, part in parts.items()}
    metrics = {
        (way, name): LinkPredMetricCollection(
            {'recall': LinkPredRecall(k), 'ndcg': LinkPredNDCG(k)}
        ).to(pairs.device)
        for way in scoring.factors
        for name in parts
    }
    users = wanted[''].ptr.diff().nonzero().flatten()
    tops = rank(scoring, users, History.of(seen, num_users), k)
    for (way, name), metric in metrics.items():
        metric.update(tops[way], wanted[name][users])
    found: dict[float, dict[str, float]] = {way: {} for way in scoring.factors}
    for (way, name), metric in metrics.items():
        found[way] |= {f'{key}@{k}{name}': float(value) for key, value in metric.compute().items()}
    return found
