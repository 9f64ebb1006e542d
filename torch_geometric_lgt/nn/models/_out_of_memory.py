import functools
from collections.abc import Callable
from typing import Any

import torch

CPU_MESSAGE = "can't allocate memory"
BATCHES = 'train on the batches of NeighborLoader or NodePartitionLoader'


def with_advice(training: str = BATCHES) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    r"""A pass over a graph that, where memory does not suffice for it, ends in an error that says what does with less."""

    def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return forward(self, *args, **kwargs)
            try:
                return forward(self, *args, **kwargs)
            except RuntimeError as error:
                if not isinstance(error, torch.OutOfMemoryError) and CPU_MESSAGE not in str(error):
                    raise
                size = self.num_nodes if hasattr(self, 'num_nodes') else (args[0] if args else kwargs['x']).size(0)
                raise torch.OutOfMemoryError(
                    f'{type(self).__name__} has no memory for {size} nodes at once ({str(error).splitlines()[0]}); {training}, and score '
                    f"with the method 'inference'"
                ) from error

        return run

    return wrapped
