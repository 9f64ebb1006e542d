r"""Loads the interactions of a data set and measures recommenders on its parts."""

# U users, I items, E pairs, N = U + I nodes.
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common.names import unknown
from benchmarks.common.training import fingerprint
from benchmarks.recommendation.models import embedding_scoring
from benchmarks.recommendation.ranking import LENGTH, Rule, Scoring, evaluate
from torch_geometric_lgt.datasets import InteractionDataset
from torch_geometric_lgt.datasets._sources import SOURCES
from torch_geometric_lgt.datasets._split import SPLITS

PROTOCOLS = {'given': 'given-split', 'ratio': 'ratio-80-10-10'}
GROUPS = ('unpopular', 'normal', 'popular')
PARAMETERS = {'inner': -1.0, 'cosine': 0.0}  # how results record the rules


def load(root: str, name: str) -> InteractionDataset:
    r"""Loads the interactions of a folder in :obj:`root`, or downloads them.

    Raises:
        ValueError: If there is no such folder and no download of this name.
    """
    folders = (path.name for path in Path(root).glob('*') if path.is_dir())
    names = sorted({*SOURCES, *folders})
    if name not in names:
        raise ValueError(unknown(name, names))
    return InteractionDataset(root, name)


class Task:
    r"""Holds the pairs ``[2, E]`` of a data set by part, and chooses and measures recommenders.

    Raises:
        ValueError: If the data set has too few items for a ranking, or a part without pairs.
    """

    def __init__(self, root: str, name: str, device: torch.device) -> None:
        dataset = load(root, name)
        self.data, self.protocol = dataset[0], PROTOCOLS[dataset.split]
        self.num_users, self.num_items = self.data['user'].num_nodes, self.data['item'].num_nodes
        self.train, self.valid, self.test = (
            self.data['user', 'rates', 'item'][f'{part}_edge_label_index'].to(device)
            for part in SPLITS
        )
        pairs = {part: getattr(self, part).size(1) for part in SPLITS}
        if self.num_items < LENGTH or not all(pairs.values()):
            raise ValueError(
                f'{name!r} must have at least {LENGTH} items, and pairs of all parts '
                f'(got {self.num_items} items and {pairs}); a user with three choices has '
                'pairs in all parts'
            )
        self.nodes = self.train + self.train.new_tensor([[0], [self.num_users]])

    @property
    def content(self) -> str:
        r"""Returns the fingerprint of the pairs of all parts."""
        store = self.data['user', 'rates', 'item']
        sizes = {'sizes': torch.tensor([self.num_users, self.num_items])}
        return fingerprint(
            {f'{part}_edge_label_index': store[f'{part}_edge_label_index'] for part in SPLITS}
            | sizes
        )

    @property
    def groups(self) -> dict[str, Tensor]:
        r"""Groups the items by popularity in training into masks ``[I]``. Each group has a third of
        the training pairs."""
        degree = torch.bincount(self.train[1], minlength=self.num_items)
        order = degree.argsort(stable=True)
        earlier_pairs = degree[order].cumsum(0) - degree[order]
        group = torch.empty_like(order)
        group[order] = (earlier_pairs * 3 // self.train.size(1)).clamp(max=2)
        return {name: group == index for index, name in enumerate(GROUPS)}

    def scoring(self, encoder: torch.nn.Module, rule: str) -> Scoring:
        r"""Scores items by the embeddings of an encoder."""
        degree = torch.bincount(self.train[1], minlength=self.num_items).clamp(min=1)
        return embedding_scoring(encoder, self.num_users, rule, degree)

    def choose(self, scoring: Scoring) -> tuple[Rule, dict[str, float]]:
        r"""Chooses the rule with the best validation NDCG, and returns it with its validation
        metrics."""
        metrics = evaluate(scoring, self.valid, self.train, self.num_users)
        best = max(metrics, key=lambda rule: metrics[rule]['ndcg@20'])
        return best, metrics[best]

    def measure(self, scoring: Scoring) -> dict[str, float]:
        r"""Measures the chosen rule on the test part, beside the inner product and the cosine where
        the scoring has them. The ranking leaves out items of the validation part, which no model is
        trained on."""
        chosen, valid = self.choose(scoring)
        seen = torch.cat([self.train, self.valid], 1)
        measured = scoring.only(chosen, 'inner', 'cosine')
        metrics = evaluate(measured, self.test, seen, self.num_users, groups=self.groups)
        test = dict(metrics[chosen])
        for rule in ('inner', 'cosine'):
            if rule in metrics:
                test |= {
                    f'{metric}@20_{rule}': metrics[rule][f'{metric}@20']
                    for metric in ('recall', 'ndcg')
                }
        return (
            test
            | {f'valid_{name}': value for name, value in valid.items()}
            | {'scoring_parameter': PARAMETERS.get(chosen, chosen)}
        )

    def batches(self, size: int) -> list[Tensor]:
        r"""Shuffles the training pairs, as nodes, into batches."""
        return [self.nodes[:, part] for part in torch.randperm(self.nodes.size(1)).split(size)]
