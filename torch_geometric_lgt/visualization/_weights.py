# N nodes, S sampled rows, K classes.
import torch
from torch import Tensor

from torch_geometric_lgt._attention_calls import AttentionCall
from torch_geometric_lgt._multihead_calls import SelfAttention


def mean_weight(call: AttentionCall, rows: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    r"""Reads the attention weights of the sampled nodes :obj:`rows` ``[S]`` to all nodes in a call
    of a layer, their mean over the heads.

    Returns:
        The nodes of :obj:`rows` that attend to any node ``[S']``, and their weights ``[S', N]``, on
        the CPU.

    Raises:
        ValueError: If the call has other nodes than the data, or no node of :obj:`rows` attends to
            any node. If :class:`torch.nn.MultiheadAttention` got several graphs, whose order may be
            another.
    """
    if call.x_src.size(0) != num_nodes or call.num_targets != num_nodes:
        raise ValueError(
            f"'layer' must be a call over the {num_nodes} nodes of 'data' (got {call.name} with "
            f'{call.x_src.size(0)} sources and {call.num_targets} targets)'
        )
    if isinstance(call.layer, SelfAttention) and call.arguments['batch'].any():
        raise ValueError(
            f"'batch' must be None for {call.name}, a MultiheadAttention, which gets the nodes "
            'sorted by graph (got several graphs)'
        )
    read = call.rows(rows)
    if read.targets.numel() == 0:
        raise ValueError(
            f"'data' must have an edge into one of the sampled nodes for {call.name}, which "
            "attends to neighbours (got none); raise 'num_rows'"
        )
    weight = read.weight.mean(2)
    weight = weight.new_zeros(weight.size(0), num_nodes).index_add_(1, read.sources, weight)
    return read.targets.cpu(), weight.cpu()


def strongest(weight: Tensor, rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    r"""Returns source and target ``[2, number]`` of the largest attention weights between different
    nodes, and these weights ``[number]`` in multiples of the uniform weight.

    :obj:`weight` ``[S, N]`` has the weights of the sampled nodes :obj:`rows` ``[S]``, the targets,
    to all nodes, the sources. If there are fewer weights above 0, all of these are returned.
    """
    weight = weight.clone()
    weight[torch.arange(rows.numel(), device=rows.device), rows] = 0
    number = min(number, int((weight > 0).sum()))
    values, top = weight.flatten().topk(number)
    pairs = torch.stack([top % weight.size(1), rows[top // weight.size(1)]])
    return pairs, values * weight.size(1)


def class_mass(weight: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    r"""Computes the share ``[K, K]`` of the attention of each class (row) that goes to each class
    (column), the mean over sampled nodes.

    :obj:`weight` ``[S, N]`` has the weights of the sampled nodes :obj:`rows` ``[S]``, and :obj:`y`
    ``[N]`` the classes, -1 for none. A row is NaN if no node of its class is sampled. If some nodes
    have no label, the result has a last column ``[K, K + 1]`` for these nodes.
    """
    y = y.long()
    num_classes = int(y.max()) + 1
    one_hot = torch.nn.functional.one_hot(torch.where(y < 0, num_classes, y)).to(weight.dtype)
    row_class = one_hot[rows, :num_classes]
    count = row_class.sum(0)[:, None]
    return (row_class.t() @ (weight @ one_hot) / count).masked_fill(count == 0, torch.nan)
