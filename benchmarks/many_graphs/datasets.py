r"""Makes the splits of a data set of many graphs, with what the networks need beside the graphs."""

from typing import Any

from torch import Tensor
from torch_geometric.transforms import Compose

from torch_geometric_lgt.datasets._generated import GeneratedDataset
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    RandomSignFlip,
)

Splits = dict[str, GeneratedDataset]
PARTS = ('train', 'val', 'test')


def make_splits(
    dataset: type[GeneratedDataset],
    arguments: tuple[Any, ...],
    num_graphs: dict[str, int] | None,
    pe_channels: int,
) -> Splits:
    r"""Makes the graphs of each part, or reads them if an earlier call has made them.

    Args:
        dataset (type): The class of the data set.
        arguments (tuple): Its first arguments, which all parts share.
        num_graphs (dict, optional): The number of graphs of each part; :obj:`None` is the published
            number.
        pe_channels (int): The channels of the Laplacian encoding, whose signs are random in
            training.
    """
    transforms: list[Any] = [JaccardScores(), AttentionNodeSampling()]
    if pe_channels > 0:
        transforms.append(LaplacianPE(pe_channels))
    flip = RandomSignFlip() if pe_channels > 0 else None
    return {
        part: dataset(
            *arguments,
            part,
            None if num_graphs is None else num_graphs[part],
            pre_transform=Compose(transforms),
            transform=flip if part == 'train' else None,
        )
        for part in PARTS
    }


def split_tensors(split: GeneratedDataset) -> dict[str, Tensor]:
    r"""Returns all tensors of the graphs of a split, and the slices that separate the graphs."""
    slices = (split.slices or {}).items()
    return {**split._data.to_dict(), **{f'slices_{name}': value for name, value in slices}}
