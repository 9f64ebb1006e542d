import contextlib
import threading
from collections.abc import Iterator

import torch
from torch.nn import Module

_LOCK = threading.Lock()
_EVALUATED: dict[Module, tuple[list[tuple[Module, bool]], int]] = {}


@contextlib.contextmanager
def evaluation(model: Module) -> Iterator[Module]:
    r"""Context manager: sets :obj:`model` to evaluation and disables gradients, and yields the
    model. At the end each module gets its earlier training mode back. If several threads evaluate
    the model at once, this is at the end of the last one."""
    with _LOCK:
        before = [(part, part.training) for part in model.modules()]
        modes, users = _EVALUATED.get(model, (before, 0))
        _EVALUATED[model] = modes, users + 1
    try:
        with torch.no_grad():
            yield model.eval()
    finally:
        with _LOCK:
            modes, users = _EVALUATED.pop(model)
            if users > 1:
                _EVALUATED[model] = modes, users - 1
            else:
                for part, mode in modes:
                    part.training = mode
