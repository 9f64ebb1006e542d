import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from torch_geometric_lgt.nn.models._fx import check_not_traced

CPU_MESSAGE = "can't allocate memory"
BATCHES = 'train on the batches of NeighborLoader or NodePartitionLoader'
Forward = TypeVar('Forward', bound=Callable[..., Any])


def with_advice(training: str = BATCHES) -> Callable[[Forward], Forward]:
    r"""Decorates :meth:`forward` of a model: re-raises an out-of-memory error with advice. The text
    :obj:`training` says how to train with less memory. Compiled code runs the method itself.

    ``torch.fx`` cannot trace the decorated method, which raises a ValueError then."""

    def decorate(forward: Forward) -> Forward:
        @functools.wraps(forward)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            check_not_traced(self, args)
            if torch.compiler.is_compiling():
                return forward(self, *args, **kwargs)
            try:
                return forward(self, *args, **kwargs)
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                raise torch.OutOfMemoryError(
                    f'{type(self).__name__} has no memory for {_num_nodes(self, args, kwargs)} '
                    f'nodes at once ({str(error).splitlines()[0]}); {training}, and score '
                    "with the method 'inference'"
                ) from error

        # torch.compile limits the compilations of one code object, which all models would share
        method: Any = run
        method.__code__ = method.__code__.replace(co_name=forward.__qualname__)
        del run.__wrapped__  # torch.fx reads the code of what is wrapped
        method.__signature__ = inspect.signature(forward)
        return method

    return decorate


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or CPU_MESSAGE in str(error)


def _num_nodes(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    r"""Returns the number of nodes of a call of a model: that of the model if it has one, else that
    of the features, its first argument."""
    if hasattr(model, 'num_nodes'):
        return model.num_nodes
    x = args[0] if args else kwargs['x']
    return x.size(0)
