import functools
from collections.abc import Callable
from typing import Any

import torch

CPU_MESSAGE = "can't allocate memory"


def with_advice(forward: Callable[..., Any]) -> Callable[..., Any]:
    r"""A pass over a graph that, where memory does not suffice for it, ends in an error that says what does with less."""

    @functools.wraps(forward)
    def run(self: torch.nn.Module, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return forward(self, x, *args, **kwargs)
        try:
            return forward(self, x, *args, **kwargs)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and CPU_MESSAGE not in str(error):
                raise
            raise torch.OutOfMemoryError(
                f'{type(self).__name__} has no memory for {x.size(0)} nodes at once ({str(error).splitlines()[0]}); train on the batches '
                f"of NeighborLoader or NodePartitionLoader, and score with the method 'inference'"
            ) from error

    return run
