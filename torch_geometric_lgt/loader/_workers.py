import copy
from collections.abc import Iterator
from typing import Any, cast

from torch.utils.data import DataLoader

from torch_geometric_lgt.loader._seeds import checked_index

# what draws the order of the seeds, in the main process, and the iterator of persistent workers
UNUSED_IN_WORKERS = ('generator', 'sampler', 'batch_sampler', '_iterator')


class WorkerLoader(DataLoader):
    r"""Sends workers the loader without what they do not use: PyTorch sends no generator to a
    process that is spawned."""

    collate_fn: Any

    def __iter__(self) -> Iterator[Any]:
        r"""Iterates over the batches."""
        collate_fn = self.collate_fn
        if self.num_workers == 0 or getattr(collate_fn, '__self__', None) is not self:
            return super().__iter__()
        sent = copy.copy(self)
        vars(sent).update(dict.fromkeys(UNUSED_IN_WORKERS))
        del sent.collate_fn
        self.collate_fn = sent.collate_fn
        try:
            return super().__iter__()
        finally:
            self.collate_fn = collate_fn


class SeedLoader(WorkerLoader):
    r"""Checks the seed nodes with which a loader is called."""

    input_data: Any

    def __call__(self, index: Any) -> Any:
        r"""Samples the batch of some of the seed nodes: positions in :obj:`input_nodes`, which
        without this argument are ids, or a mask of the seed nodes.

        Raises:
            ValueError: If :obj:`index` is neither.
        """
        return cast(Any, super()).__call__(checked_index(index, self.input_data.node.numel()))
