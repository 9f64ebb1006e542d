r"""Evaluates the full ranking of all items."""

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
    r"""Computes recall and NDCG of the full ranking for each item weighting, as means over the
    users with a pair.

    Args:
        scoring (Scoring): The scores, with the factors of all item weightings.
        pairs (torch.Tensor): The pairs of users and wanted items ``[2, E]``.
        seen (torch.Tensor): Pairs whose items are not ranked ``[2, *]``.
        num_users (int): The number of users.
        k (int, optional): The length of the ranking. (default: :obj:`20`)
        groups (dict, optional): Masks of items ``[I]``. The same ranking is evaluated with the
            items of each group as the only wanted ones. (default: :obj:`None`)
    """
    parts = {'': pairs} | {
        f'_{name}': pairs[:, mask[pairs[1]]] for name, mask in (groups or {}).items()
    }
    wanted = {name: History.of(part, num_users) for name, part in parts.items()}
    metrics = {
        (weighting, name): LinkPredMetricCollection(
            {'recall': LinkPredRecall(k), 'ndcg': LinkPredNDCG(k)}
        ).to(pairs.device)
        for weighting in scoring.factors
        for name in parts
    }
    users = wanted[''].ptr.diff().nonzero().flatten()
    tops = rank(scoring, users, History.of(seen, num_users), k)
    for (weighting, name), metric in metrics.items():
        metric.update(tops[weighting], wanted[name][users])
    results: dict[float, dict[str, float]] = {weighting: {} for weighting in scoring.factors}
    for (weighting, name), metric in metrics.items():
        values = metric.compute()
        results[weighting] |= {f'{key}@{k}{name}': float(value) for key, value in values.items()}
    return results
