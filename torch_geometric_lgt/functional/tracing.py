import torch


def is_capturing() -> bool:
    r"""Returns whether a CUDA graph is being captured on the current stream, :obj:`False` where
    :meth:`torch.compile` traces the code. CUDA is asked only if it is initialized, because the
    query fails without a driver."""
    if torch.compiler.is_compiling() or not torch.cuda.is_initialized():
        return False
    return torch.cuda.is_current_stream_capturing()


def is_watched() -> bool:
    r"""Returns whether :meth:`torch.compile` traces the code, or a mode of PyTorch watches or
    replaces operators."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def may_read_values() -> bool:
    r"""Returns whether Python may read the values of tensors. It may not while
    :meth:`torch.compile` traces the code or a CUDA graph is captured."""
    return not torch.compiler.is_compiling() and not is_capturing()
