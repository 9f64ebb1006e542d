# S seeds of all node types.
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.loader._edge_order import SINGLE_NODE_TYPE

STRATEGIES = ('uniform', 'last')


def check_strategy(temporal_strategy: str, time_attr: str | None) -> None:
    r"""Checks the name of a strategy of temporal sampling, and that :obj:`time_attr` names times if
    the strategy needs them.

    Raises:
        ValueError: If the name is unknown, or the latest edges are to be drawn without times.
    """
    check_choice('temporal_strategy', temporal_strategy, STRATEGIES)
    if temporal_strategy == 'last' and time_attr is None:
        raise ValueError(
            "'time_attr' must name the times with temporal_strategy='last', which draws the latest "
            'edges (got None)'
        )


def check_times(argument: str, time: Tensor | None, num_seeds: int, seeds: str) -> None:
    r"""Checks that the argument with the times of seeds, unless it is :obj:`None`, has one time for
    each of the :obj:`num_seeds` nodes or links, which the message calls :obj:`seeds`.

    Raises:
        ValueError: If it has not, or a time is NaN.
    """
    if time is not None and time.shape != (num_seeds,):
        raise ValueError(
            f"'{argument}' must have a time for each of {num_seeds} {seeds} (got shape "
            f'{tuple(time.shape)})'
        )
    if time is not None and bool(time.isnan().any()):
        raise ValueError(
            f"'{argument}' must be a time for each of the {seeds} (got NaN, up to which no edge is "
            'drawn); leave these out, or give them a time'
        )


def check_attributes(
    data: Any, temporal_strategy: str, time_attr: str | None, weight_attr: str | None
) -> None:
    r"""Checks that times and weights can be used with the data and with each other.

    Raises:
        ValueError: If one is set for stores, or weights for the latest edges.
    """
    if time_attr is not None and weight_attr is not None and temporal_strategy == 'last':
        raise ValueError(
            "'weight_attr' must be None with temporal_strategy='last', which chooses the latest "
            f"edges (got {weight_attr!r}); set 'uniform' for draws in proportion to the weights"
        )
    for name, value in (('time_attr', time_attr), ('weight_attr', weight_attr)):
        if value is not None and not isinstance(data, (Data, HeteroData)):
            raise ValueError(
                f"'{name}' needs a Data or HeteroData (got {value!r} with stores); load the graph "
                'into memory'
            )


def seed_times(
    seed: dict[str, Tensor],
    time: Tensor | dict[str, Tensor] | None,
    node_time: dict[str, Tensor] | None,
) -> np.ndarray:
    r"""Returns the time of each seed ``[S]``, over all node types in the order of :obj:`seed`:
    :obj:`time` if it is set, or else the time of the node.

    Raises:
        ValueError: If the seeds of a type have no times.
    """
    by_type = {SINGLE_NODE_TYPE: time} if isinstance(time, Tensor) else time
    times = [torch.empty(0, dtype=torch.long, device='cpu')]
    for kind, nodes in seed.items():
        if by_type is not None:
            times.append(by_type[kind].cpu())
        elif node_time is not None and kind in node_time:
            times.append(node_time[kind][nodes.cpu()])
        else:
            raise ValueError(
                "'input_time' must be set if 'time_attr' names no attribute of the seeds' nodes "
                '(got None)'
            )
    return torch.cat(times).numpy()
