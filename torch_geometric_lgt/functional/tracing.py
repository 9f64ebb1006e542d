from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks


def is_capturing() -> bool:
    r"""Returns whether a CUDA graph is being captured on the current stream, :obj:`False` where
    :meth:`torch.compile` traces the code. CUDA is asked only if it is initialized, because the
    query fails without a driver."""
    if torch.compiler.is_compiling() or not torch.cuda.is_initialized():
        return False
    return torch.cuda.is_current_stream_capturing()


def is_tracing() -> bool:
    r"""Returns whether :meth:`torch.compile` or :meth:`torch.jit.trace` traces the code, whose
    operations are then repeated with other tensors."""
    return torch.compiler.is_compiling() or torch._C._is_tracing()


def is_jit_tracing() -> bool:
    r"""Returns whether :meth:`torch.jit.trace` traces the code. It traces a second time without
    gradients, to compare both programs."""
    return not torch.compiler.is_compiling() and torch._C._is_tracing()


def is_exporting() -> bool:
    r"""Returns whether :meth:`torch.export.export` traces the code, and not
    :meth:`torch.compile`. In PyTorch 2.9 :meth:`torch.compiler.is_exporting` does not tell them
    apart."""
    return torch.compiler._is_exporting_flag


def is_portable() -> bool:
    r"""Returns whether :meth:`torch.onnx.export` traces the code. Its programs run without this
    package, so that they have operations of PyTorch only."""
    return is_exporting() and torch.onnx.is_in_onnx_export()


def is_watched() -> bool:
    r"""Returns whether the code is traced (:meth:`is_tracing`), or a mode of PyTorch watches or
    replaces operators."""
    return is_tracing() or torch._C._len_torch_dispatch_stack() > 0


def is_transformed(values: Sequence[Any]) -> bool:
    r"""Returns whether a transform of :mod:`torch.func` is active, or one of :obj:`values` has a
    derivative in forward mode. Then operations must be those that PyTorch can transform."""
    if torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active():
        return True
    tensors = (value for value in values if isinstance(value, Tensor))
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(value).tangent is not None for value in tensors
    )


def to_list(x: Tensor) -> list[Any]:
    r"""Returns the integers of a tensor of any shape as nested lists. In PyTorch 2.9 a transform of
    :mod:`torch.func` lets Python read single numbers only."""
    if is_transformed(()):
        return [to_list(part) if x.dim() > 1 else int(part) for part in x.unbind()]
    return x.tolist()


def may_read_values(*values: Tensor) -> bool:
    r"""Returns whether Python may read the values of tensors. It may not while the code
    is traced (:meth:`is_tracing`) or a CUDA graph is captured, nor the given :obj:`values` within a
    transform of :mod:`torch.func` (:meth:`is_transformed`)."""
    return not (is_tracing() or is_capturing() or (values and is_transformed(values)))


@contextmanager
def recording() -> Iterator[None]:
    r"""Lets autograd record what an operator computes. PyTorch runs operators without autograd,
    also where gradients are enabled. Hooks of a caller for saved tensors are left out, since these
    tensors are gone when the operator ends."""
    key = torch._C.DispatchKey.AutogradFunctionality
    with (
        torch._C._SetExcludeDispatchKeyGuard(key, False),
        torch.enable_grad(),
        saved_tensors_hooks(_same, _same),
    ):
        yield


def _same(x: Any) -> Any:
    return x
