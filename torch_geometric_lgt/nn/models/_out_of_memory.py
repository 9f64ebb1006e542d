import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.fx

CPU_MESSAGE = "can't allocate memory"
BATCHES = 'train on the batches of NeighborLoader or NodePartitionLoader'


def with_advice(training: str = BATCHES) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    r"""Decorates :meth:`forward` of a model: re-raises an out-of-memory error with advice. The text
    :obj:`training` says how to train with less memory.

    The decorated method also raises a ValueError if ``torch.fx`` traces the model. Compiled code
    runs the method itself."""

    def decorate(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(args, torch.fx.Proxy):
                raise ValueError(
                    f'{type(self).__name__} cannot be traced by torch.fx, nor be changed by '
                    'to_hetero: build the model of its layers, '
                    'which to_hetero and HeteroConv take, or pass the graph of '
                    'HeteroData.to_homogeneous()'
                )
            if torch.compiler.is_compiling():
                return forward(self, *args, **kwargs)
            try:
                return forward(self, *args, **kwargs)
            except RuntimeError as error:
                if not isinstance(error, torch.OutOfMemoryError) and CPU_MESSAGE not in str(error):
                    raise
                size = (
                    self.num_nodes
                    if hasattr(self, 'num_nodes')
                    else (args[0] if args else kwargs['x']).size(0)
                )
                raise torch.OutOfMemoryError(
                    f'{type(self).__name__} has no memory for {size} nodes at once '
                    f'({str(error).splitlines()[0]}); {training}, and score '
                    f"with the method 'inference'"
                ) from error

        del run.__wrapped__  # torch.fx reads the code of what is wrapped
        cast(Any, run).__signature__ = inspect.signature(forward)
        return run

    return decorate
