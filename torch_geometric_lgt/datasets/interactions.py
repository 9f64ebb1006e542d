# E interactions, U users, I items.
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import HeteroData, InMemoryDataset

from torch_geometric_lgt._arguments import check_choice, nearest_name
from torch_geometric_lgt.datasets._interaction_files import (
    check_valid_name,
    find,
    other_files,
    read,
)
from torch_geometric_lgt.datasets._interaction_ids import Ids
from torch_geometric_lgt.datasets._sources import SOURCES, fetch, warn_of_others
from torch_geometric_lgt.datasets._split import SPLITS, assign_splits, check_ratios, check_seed

METHODS = (None, 'given', 'ratio', 'leave-one-out')


class InteractionDataset(InMemoryDataset):
    r"""Reads which user chose which item, split into training, validation and test.

    :obj:`"amazon-beauty"`, :obj:`"yelp2018"`, :obj:`"alibaba"`, :obj:`"gowalla"` and
    :obj:`"movielens-100k"` are downloaded from their public sources. Downloads are verified by
    checksum. Any other :obj:`name` is a folder with the files ``train``, ``test`` and optionally
    ``valid``. Instead of these it may have one file ``raw`` with all interactions.

    Files are LightGCN text (``.txt``, with ``user item item ..`` in each line), csv with a header
    (``.csv``), both optionally compressed (``.gz``), or ``.parquet``. They lie in ``root/name`` or
    ``root/name/raw``. The files are read each time the data set is constructed. Only downloads are
    written, so no cache can be outdated.

    For ``split='leave-one-out'`` the rows of ``raw`` must be in the order of time, as those of
    ``amazon-beauty`` and ``movielens-100k`` are, or the file must have a column of times: name it
    as the third of :obj:`columns`. Other columns are not read.

    Ids may be whole numbers, also in a column of floating-point numbers, or texts. Users and items
    get numbers from 0 in the order of their ids (whole numbers by size, texts by alphabet);
    :obj:`user_ids` and :obj:`item_ids` have the id of each number. A repeated pair counts once: its
    earliest row if there are times, else its first row in the file.

    The data object has the node types ``user`` and ``item`` and the edge type
    ``('user', 'rates', 'item')``. The edge type has the pairs ``[2, E]`` of each part in
    :obj:`train_edge_label_index`, :obj:`valid_edge_label_index` and :obj:`test_edge_label_index`.
    Its :obj:`edge_index` has the training pairs.

    Args:
        root (str): Folder of data sets.
        name (str): Name of a public data set, or of a folder in :obj:`root`.
        split (str, optional): How interactions are split. :obj:`"given"` uses the split of the
            files; without a validation file, the share ``ratios[1]`` of each user's training pairs
            is drawn for validation, with :obj:`seed`. :obj:`"ratio"` splits each user's
            interactions at random: test and validation get their shares, rounded down. A share that
            would be 0 gets one pair, test before validation, if a pair remains for training.
            :obj:`"leave-one-out"` needs a file ``raw``. It takes each user's last interaction for
            test and the last but one for validation; a user with two interactions has no validation
            pair, and a user with one has a training pair only. (default: :obj:`None`,
            :obj:`"given"` if the data set has files for training and test, else :obj:`"ratio"`; the
            attribute :obj:`split` has the choice)
        ratios (tuple, optional): Shares of training, validation and test for :obj:`"ratio"`; for
            :obj:`"given"` without a validation file only the second is used, the share of the
            training pairs. (default: :obj:`(0.8, 0.1, 0.1)`)
        seed (int, optional): Seed of the random draws of :obj:`"ratio"` and :obj:`"given"`.
            (default: :obj:`2022`)
        columns (tuple, optional): Names of the columns with users and items in csv and parquet
            files. With a third name, rows are sorted by the times in that column, which are numbers
            or dates as in ISO 8601; equal times keep their order. (default: :obj:`("user_id",
            "item_id")`)
        relabel (bool, optional): If set to :obj:`False`, ids must be the whole numbers from 0
            without gaps, else an error is raised. (default: :obj:`True`)
        transform (callable, optional): Applied at every access. (default: :obj:`None`)
        pre_transform (callable, optional): Applied once in each construction, after reading.
            (default: :obj:`None`)

    Raises:
        ValueError: If an argument or a file is not as described, or a part has several files. If
            the validation file has another name, such as ``val.csv``. If a text file has a header,
            or is a table with further columns: users are repeated, and all lines have the same
            number of words, at least three. If a pair is in two parts of the files' split, or two
            ids differ only by white space around them.
        FileNotFoundError: If the files are missing and :obj:`name` has no public source.
        RuntimeError: If a download fails.

    Example:
        >>> from pathlib import Path
        >>> from torch_geometric_lgt.datasets import InteractionDataset
        >>> Path('data/shop').mkdir(parents=True, exist_ok=True)
        >>> rows = ['user_id,item_id', 'ann,tea', 'ann,milk', 'bob,tea', 'ann,rice']
        >>> _ = Path('data/shop/raw.csv').write_text('\n'.join(rows))
        >>> dataset = InteractionDataset('data', 'shop', split='leave-one-out')
        >>> dataset.user_ids.tolist(), dataset.item_ids.tolist()
        (['ann', 'bob'], ['milk', 'rice', 'tea'])
        >>> dataset[0]['user', 'rates', 'item'].train_edge_label_index
        tensor([[0, 1],
                [2, 2]])
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        name: str,
        split: str | None = None,
        ratios: tuple[float, float, float] = (0.8, 0.1, 0.1),
        seed: int = 2022,
        columns: tuple[str, str] | tuple[str, str, str] = ('user_id', 'item_id'),
        relabel: bool = True,
        transform: Callable | None = None,
        pre_transform: Callable | None = None,
    ) -> None:
        if not isinstance(name, str | os.PathLike):
            raise ValueError(f"'name' must be the name of a data set (got {name!r})")
        check_choice('split', split, METHODS)
        check_ratios(ratios)
        check_seed(seed)
        is_list = isinstance(columns, Sequence) and not isinstance(columns, str)
        if not is_list or len(columns) not in (2, 3) or len({*columns}) < len(columns):
            raise ValueError(
                "'columns' must name two columns, users and items, or three, then times, each once "
                f'(got {columns!r})'
            )
        self.name = name
        self.split = split
        self.ratios = ratios
        self.seed = seed
        self.columns = columns
        self.relabel = relabel
        super().__init__(str(root), transform, pre_transform)
        self.user_ids, self.item_ids, data = self._read()
        self._data = data if pre_transform is None else pre_transform(data)

    @property
    def raw_dir(self) -> str:
        r"""Returns the folder of downloaded files, ``root/name/raw``."""
        return str(Path(self.root) / self.name / 'raw')

    @property
    def raw_file_names(self) -> list[str]:
        r"""Returns the file names of a public data set, or an empty list for other names."""
        return list(SOURCES.get(self.name, {}))

    def _find(self, name: str) -> Path | None:
        r"""Returns the path of the data set's file called :obj:`name` with any supported suffix, or
        :obj:`None`."""
        return find([Path(self.raw_dir).parent, Path(self.raw_dir)], name)

    def _download(self) -> None:
        r"""Calls :meth:`download` if there is neither a file ``raw`` nor both files ``train`` and
        ``test``."""
        if self._find('raw') is None and (
            self._find('train') is None or self._find('test') is None
        ):
            self.download()

    def download(self) -> None:
        r"""Downloads the files of a public data set to :obj:`raw_dir`.

        Raises:
            FileNotFoundError: If the data set has no public source.
            RuntimeError: If a download fails.
        """
        if self.name not in SOURCES:
            folder = Path(self.raw_dir).parent
            raise FileNotFoundError(
                f"'root' has no files of {self.name!r}; put train and test, or raw, as .txt, .csv "
                f'or .parquet into the folder {str(folder)!r}'
                f'{other_files([folder, Path(self.raw_dir)])}{nearest_name(self.name, SOURCES)}'
            )
        for file, source in SOURCES[self.name].items():
            fetch(source, Path(self.raw_dir) / file)

    def _read(self) -> tuple[np.ndarray, np.ndarray, HeteroData]:
        r"""Reads and splits the files. Returns the user ids ``[U]``, the item ids ``[I]`` and the
        data object.

        Raises:
            ValueError: If :obj:`split` does not fit the files, the files are empty, or they share
                pairs.
        """
        paths = {name: path for name in (*SPLITS, 'raw') if (path := self._find(name)) is not None}
        split_by_files = self.split == 'given' or (
            self.split is None and 'train' in paths and 'test' in paths
        )
        self.split = 'given' if split_by_files else self.split or 'ratio'
        names = (
            [name for name in SPLITS if name in paths]
            if split_by_files or 'raw' not in paths
            else ['raw']
        )
        if split_by_files and not {'train', 'test'} <= set(names):
            raise ValueError(
                f"'split' = 'given' needs files for train and test (got {sorted(paths)}); use "
                "'ratio' or 'leave-one-out'"
            )
        if self.split == 'leave-one-out' and names != ['raw']:
            raise ValueError(
                "'split' = 'leave-one-out' needs the order of time, a file called raw (got "
                f'{sorted(paths)})'
            )
        if not {'raw', 'valid'} & set(names):
            check_valid_name([Path(self.raw_dir).parent, Path(self.raw_dir)])
        warn_of_others(self.name, [paths[name] for name in names])
        files = {name: read(paths[name], self.columns) for name in names}
        user_ids, user = self._number('user', [file.user for file in files.values()])
        item_ids, item = self._number('item', [file.item for file in files.values()])
        part = np.repeat(
            [SPLITS.index(name) if split_by_files else 0 for name in names],
            [file.user.number.size for file in files.values()],
        )
        if user.size == 0:
            raise ValueError(
                "'root' must hold interactions (got none in "
                f'{", ".join(repr(str(paths[name])) for name in names)})'
            )
        user, item, part = self._distinct(user, item, part, (user_ids, item_ids))
        if not split_by_files:
            part = assign_splits(
                user, None if self.split == 'leave-one-out' else self.ratios, self.seed
            )
        elif 'valid' not in names:
            resplit = assign_splits(
                user[part == 0], (1 - self.ratios[1], self.ratios[1], 0), self.seed
            )
            part[np.flatnonzero(part == 0)[resplit == 1]] = 1
        data = HeteroData()
        data['user'].num_nodes, data['item'].num_nodes = user_ids.size, item_ids.size
        store = data['user', 'rates', 'item']
        for number, name in enumerate(SPLITS):
            store[f'{name}_edge_label_index'] = torch.from_numpy(
                np.stack([user, item])[:, part == number]
            )
        store.edge_index = store.train_edge_label_index.clone()
        return user_ids, item_ids, data

    def _number(self, kind: str, columns: list[Ids]) -> tuple[np.ndarray, np.ndarray]:
        r"""Numbers the ids of all files from 0. Returns the distinct ids, ascending, and the number
        of each id in the concatenated :obj:`columns` ``[E]``.

        :obj:`kind` is ``'user'`` or ``'item'``, for error messages.

        Raises:
            ValueError: If :obj:`relabel` is :obj:`False` and the ids are not the whole numbers from
                0. If two ids differ only by white space around them.
        """
        names = [column.names for column in columns]
        if any(part.dtype == object for part in names):  # text, while others may be numbers
            names = [
                part.astype(str).astype(object) if part.dtype != object else part for part in names
            ]
        ids, new = np.unique(np.concatenate(names), return_inverse=True)
        starts = np.cumsum([0, *(part.size for part in names)])
        number = np.concatenate(
            [new[start + column.number] for start, column in zip(starts, columns, strict=False)]
        )
        _check_spaces(kind, ids)
        if not self.relabel and not np.array_equal(ids, np.arange(ids.size)):
            raise ValueError(
                f'{kind} ids must be the numbers from 0 to {ids.size - 1} (got {ids[0]} to '
                f"{ids[-1]}); set 'relabel' = True"
            )
        return ids, number

    def _distinct(
        self,
        user: np.ndarray,
        item: np.ndarray,
        part: np.ndarray,
        ids: tuple[np.ndarray, np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r"""Drops repeated pairs, keeps the first of each, and returns user, item and part of the
        remaining pairs.

        Args:
            user: The user number of each pair ``[E]``.
            item: The item number of each pair ``[E]``.
            part: The file of each pair ``[E]``, an index into :obj:`SPLITS`.
            ids: The ids of users and of items by number, for error messages.

        Raises:
            ValueError: If a pair is in two parts.
        """
        _, first, pair = np.unique(
            user * ids[1].size + item, return_index=True, return_inverse=True
        )
        leaked = np.flatnonzero(part != part[first][pair])
        if leaked.size > 0:
            one = f'user {ids[0][user[leaked[0]]]} and item {ids[1][item[leaked[0]]]}'
            raise ValueError(
                f'the files of {self.name!r} must not share pairs (got {leaked.size} pairs '
                f'in two parts, as {one}); '
                "use 'split' = 'ratio'"
            )
        first.sort()
        return user[first], item[first], part[first]

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.name!r})'


def _check_spaces(kind: str, ids: np.ndarray) -> None:
    r"""Raises a ValueError, which begins with the :obj:`kind`, if two of the distinct :obj:`ids`
    differ only by white space around them. Numbers are accepted."""
    if ids.dtype.kind != 'U':
        return
    _, name, counts = np.unique(np.char.strip(ids), return_inverse=True, return_counts=True)
    repeated = ids[counts[name] > 1]
    if repeated.size > 0:
        same = [str(other) for other in repeated if other.strip() == repeated[0].strip()]
        raise ValueError(
            f'{kind} ids must differ by more than white space around them (got {same[0]!r} and '
            f'{same[1]!r}); remove the white space'
        )
