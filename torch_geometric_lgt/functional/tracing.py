import torch


def is_capturing() -> bool:
    r"""Returns whether a CUDA graph is being captured on the current stream. CUDA is asked only if
    it is initialized, because the query fails without a driver."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def may_read_values() -> bool:
    r"""Returns whether Python may read the values of tensors. It may not while
    :meth:`torch.compile` traces the code or a CUDA graph is captured."""
    return not torch.compiler.is_compiling() and not is_capturing()
