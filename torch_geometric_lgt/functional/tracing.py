import torch


def is_capturing() -> bool:
    r"""Tells whether a CUDA graph is being captured. Asks only a CUDA that is in use: PyTorch for
    CUDA fails where there is no driver."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def may_read_values() -> bool:
    r"""Tells whether numbers of tensors may be looked at: not in compiled code, and not while a
    CUDA graph is captured."""
    return not torch.compiler.is_compiling() and not is_capturing()
