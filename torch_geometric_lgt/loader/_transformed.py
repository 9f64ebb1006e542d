# S seeds, P pairs.
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData


def check_node_batch(loader: Any, out: Any, batch: Any) -> None:
    r"""Checks that the transform of a :obj:`loader` around nodes leaves the seed nodes of a batch
    first, with their ids and number. Does nothing if the transform returns no graph.

    Args:
        loader (torch_geometric.loader.NodeLoader): The loader.
        out (SamplerOutput or HeteroSamplerOutput): What the sampler has returned.
        batch: What the transform has returned.

    Raises:
        ValueError: If :obj:`transform` reorders or drops seed nodes.
    """
    if loader.transform is None or not isinstance(batch, (Data, HeteroData)):
        return
    name, size = loader.input_data.input_type, out.metadata[0].numel()
    store: Any = batch if name is None else batch.to_dict().get(name, {})
    if store.get('batch_size') != size or not _keeps_nodes(loader.data, out, batch, name, size):
        raise ValueError(
            "'transform' must leave the seed nodes of a batch first, with 'n_id' and 'batch_size' "
            '(got one that moves or drops them)'
        )


def check_link_batch(loader: Any, out: Any, batch: Any) -> None:
    r"""Checks that the transform of a :obj:`loader` around edges leaves the ends of the pairs
    ``[2, P]`` of a batch in their places. The arguments are those of :meth:`check_node_batch`.

    Raises:
        ValueError: If :obj:`transform` reorders or drops ends.
    """
    if loader.transform is None or not isinstance(batch, (Data, HeteroData)):
        return
    source, _, target = loader.input_data.input_type or (None, None, None)
    if loader.neg_sampling is not None and loader.neg_sampling.is_triplet():
        ends = zip((source, target, target), out.metadata[1:4], strict=True)
    else:
        ends = zip((source, target), out.metadata[1], strict=True)
    for name, position in ends:
        size = int(position.max()) + 1 if position.numel() > 0 else 0
        if not _keeps_nodes(loader.data, out, batch, name, size):
            raise ValueError(
                "'transform' must leave the ends of the pairs of a batch in their places, with "
                "'n_id' (got one that moves or drops them)"
            )


def _keeps_nodes(data: Any, out: Any, batch: Any, name: str | None, size: int) -> bool:
    r"""Tells whether the first :obj:`size` nodes of the type :obj:`name` in :obj:`batch` are those
    of the sampler's output :obj:`out`. A graph of one type has the name :obj:`None`."""
    if name is None:
        store, nodes = batch, out.node
        user_ids = data.get('n_id') if isinstance(data, (Data, HeteroData)) else None
    else:
        store, nodes = batch.to_dict().get(name, {}), out.node[name]
        user_ids = data[name].get('n_id') if isinstance(data, HeteroData) else None
    ids = nodes[:size].cpu()
    if user_ids is not None:
        ids = user_ids.cpu()[ids]  # PyG keeps the ids of the user
    n_id = store.get('n_id')
    return n_id is not None and torch.equal(n_id[:size].cpu(), ids)
