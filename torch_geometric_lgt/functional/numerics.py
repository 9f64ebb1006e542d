import math
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from torch_geometric_lgt._kernels import missing_for_kernels

FUSED_DEVICES: tuple[str, ...] = () if missing_for_kernels() else ('cuda',)
GPU_CHUNK_FACTOR, GPU_CHUNK_ELEMENTS = 1024, 1 << 28
COMPLETE_DEVICES = ('cpu', 'cuda', 'meta')


def has_kernels(x: Tensor) -> bool:
    r"""Returns whether Triton kernels run on the device of :obj:`x`."""
    return x.device.type in FUSED_DEVICES


def chunk_elements(elements: int, device: torch.device) -> int:
    r"""Returns the number of elements that are computed together (a chunk) on a device.
    :obj:`elements` fit the caches of a processor. A GPU gets :obj:`GPU_CHUNK_FACTOR` times as many,
    because it computes them at once and each chunk costs it the launches of all kernels, but no
    more than :obj:`GPU_CHUNK_ELEMENTS` and :meth:`memory_elements`."""
    if device.type == 'cpu':
        return elements
    most = min(GPU_CHUNK_ELEMENTS, memory_elements(device))
    return max(elements, min(GPU_CHUNK_FACTOR * elements, most))


def memory_elements(device: torch.device) -> int:
    r"""Returns how many numbers in single precision fill a 64th of a GPU's memory. For devices
    other than those of CUDA it is taken to have 8 GiB."""
    if device.type != 'cuda':
        return 1 << 25
    return torch.cuda.get_device_properties(device).total_memory // (64 * 4)


def is_complete(device: torch.device) -> bool:
    r"""Returns whether PyTorch has numbers in double precision and products of CSR matrices on a
    device. CPUs and CUDA GPUs have both. All other devices, such as ``'mps'`` and ``'xpu'``, are
    taken to have neither."""
    return device.type in COMPLETE_DEVICES


def complete_device(device: torch.device) -> torch.device:
    r"""Returns :obj:`device`, or the CPU if :obj:`device` is not :meth:`is_complete`."""
    return device if is_complete(device) else torch.device('cpu')


def widest_dtype(device: torch.device) -> torch.dtype:
    r"""Returns float64, or float32 for a device that is not :meth:`is_complete`."""
    return torch.double if is_complete(device) else torch.float


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    r"""Returns the dtype for sums of numbers of :obj:`dtype`: float32 for float16 and bfloat16,
    otherwise :obj:`dtype` itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def convert(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    r"""Returns :obj:`x` in :obj:`dtype`, or :obj:`None` if :obj:`x` is :obj:`None`."""
    return x if x is None or x.dtype == dtype else x.to(dtype)


def has_dtype(dtype: torch.dtype, *tensors: Tensor | None) -> bool:
    r"""Returns whether all :obj:`tensors` that are not :obj:`None` have the dtype :obj:`dtype`."""
    return {x.dtype for x in tensors if x is not None} <= {dtype}


def neutral(dtype: torch.dtype) -> float:
    r"""Returns the maximum of log-features over no keys: a quarter of the most negative number of
    :obj:`dtype`. It is finite, so that the difference of two maxima is finite, too."""
    return torch.finfo(dtype).min / 4


def largest_power(dtype: torch.dtype) -> float:
    r"""Returns :math:`\log x - 1` for the largest number :math:`x` of :obj:`dtype`. The exponential
    of the result is finite."""
    return math.log(torch.finfo(dtype).max) - 1


def inverse_of(x: Tensor, least: Tensor | float = 0.0) -> Tensor:
    r"""Returns the reciprocal of each number of :obj:`x`. Numbers whose absolute value is at most
    :obj:`least`, a bound of their rounding errors, or below the smallest normal number give 0, with
    a gradient of 0."""
    tiny, magnitude = torch.finfo(x.dtype).tiny, x.abs()
    if isinstance(least, Tensor):
        is_zero = magnitude <= least.clamp(min=tiny)
    else:
        is_zero = magnitude <= least if least >= tiny else magnitude < tiny
    return x.masked_fill(is_zero, torch.inf).reciprocal_()


def without_cancellation(denominator: Tensor, least: Tensor | float) -> Tensor:
    r"""Returns :obj:`denominator` with 0 in place of entries whose absolute value is at most
    :obj:`least`, a bound of their rounding errors. The terms of such a sum cancel. A number 0 as
    the bound says that none can."""
    if isinstance(least, float) and least == 0:
        return denominator
    return denominator.masked_fill(denominator.abs() <= least, 0)


def without_autocast(device_type: str) -> AbstractContextManager:
    r"""Returns a context without autocast for devices of type :obj:`device_type`. Nothing is
    entered if autocast is disabled already, or the device is ``'meta'``, which has none."""
    if device_type == 'meta' or not torch.is_autocast_enabled(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)
