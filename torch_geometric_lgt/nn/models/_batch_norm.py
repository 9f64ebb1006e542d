# N nodes, D channels.
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch_geometric.nn import (
    BatchNorm,
    GraphNorm,
    GraphSizeNorm,
    HeteroBatchNorm,
    LayerNorm,
    MeanSubtractionNorm,
    PairNorm,
)

from torch_geometric_lgt.distributed import all_reduce_moments
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.tracing import may_read_values

# in evaluation these use the statistics of the training, unless they do not track any
LEARNED_STATISTICS = (_BatchNorm, _InstanceNorm, HeteroBatchNorm)
STATISTICS = (GraphNorm, GraphSizeNorm, MeanSubtractionNorm, PairNorm)


class Processes(NamedTuple):
    r"""Names the processes that share a graph.

    Attributes:
        group (ProcessGroup): The processes.
        num_nodes (int, optional): The number of first rows of an input that are nodes of this
            process; later rows are copies of nodes of other processes. :obj:`None` if all rows are.
    """

    group: ProcessGroup
    num_nodes: int | None


class ProcessBatchNorm(BatchNorm):
    r"""Computes :class:`torch_geometric.nn.BatchNorm`. If :meth:`forward` gets :obj:`processes` and
    does not use running statistics, mean and variance are over the nodes of all processes, each
    counted once."""

    def forward(self, x: Tensor, processes: Processes | None = None) -> Tensor:
        norm: Any = self.module
        if processes is None or not (norm.training or norm.running_mean is None):
            return super().forward(x)
        z = x.to(compute_dtype(x.dtype))
        count, mean, variance = all_reduce_moments(z[: processes.num_nodes], processes.group)
        if may_read_values() and int(count) == 1:
            raise ValueError(
                "'process_group' must have more than 1 node in training, as batch normalisation "
                'has no variance of one'
            )
        if norm.training and norm.running_mean is not None:
            self._track(count, mean.detach(), variance.detach())
        out = (z - mean) * (variance + norm.eps).rsqrt()
        return (out if norm.weight is None else out * norm.weight + norm.bias).to(x.dtype)

    @torch.no_grad()
    def _track(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        norm: Any = self.module
        norm.num_batches_tracked += 1
        share = (
            1 / norm.num_batches_tracked.to(mean.dtype) if norm.momentum is None else norm.momentum
        )
        share = share * (count > 0).to(mean.dtype)
        for running, new in (
            (norm.running_mean, mean),
            (norm.running_var, variance * count / (count - 1).clamp(min=1)),
        ):
            running.lerp_(new.to(running.dtype), share.to(running.dtype))


def check_statistics(
    gnn: torch.nn.Module,
    argument: str = 'gnn',
    part: str = 'process',
    where: str = "with 'process_group'",
    fix: str = 'leave it out for the default network, whose statistics are those of all nodes',
) -> None:
    r"""Raises a ValueError, which names :obj:`argument` and the layer, if the network :obj:`gnn`
    has a norm whose statistics would be over the nodes of one process only, or of another
    :obj:`part` of the graph. The text :obj:`where` says when this is an error, and :obj:`fix` what
    to do."""
    synchronised = {norm.module for norm in gnn.modules() if isinstance(norm, ProcessBatchNorm)}
    for name, module in gnn.named_modules():
        learned = isinstance(module, LEARNED_STATISTICS) and (
            module.training or module.running_mean is None
        )
        graph_wide = isinstance(module, LayerNorm) and module.mode == 'graph'
        if module not in synchronised and (learned or graph_wide or isinstance(module, STATISTICS)):
            raise ValueError(
                f"'{argument}' must not normalise over nodes {where} (got {module} as {name!r}, "
                f'which sees the nodes of one {part} only); {fix}, use a norm of single nodes '
                "such as 'layer_norm' in the mode 'node', or evaluate a batch normalisation by its "
                'running statistics, with eval()'
            )
