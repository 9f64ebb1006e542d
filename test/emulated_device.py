"""Tensors on a device that has neither numbers in double precision nor sparse matrices, as
``'mps'`` of a Mac. Their values are on the CPU, and operators refuse what the device lacks."""

from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

from torch_geometric_lgt.functional._engine import custom_op

DEVICE = torch.device('mps', 0)
TAKES_BOTH = ('copy_', 'index', 'index_put_', '_index_put_impl_')  # devices
TO = Tensor.to


class DeviceTensor(Tensor):
    """Says that it is on the device. Its values are on the CPU."""

    device, is_cpu = property(lambda _: DEVICE), property(lambda _: False)
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values):
        if values.dtype in (torch.float64, torch.complex128):
            raise TypeError(f'the device has no {values.dtype}')
        if values.layout != torch.strided:
            raise NotImplementedError(f'the device has no {values.layout}')
        place = {'strides': values.stride(), 'storage_offset': values.storage_offset()}
        return cls._make_wrapper_subclass(cls, values.size(), dtype=values.dtype, **place)

    def __init__(self, values):
        self.values_on_cpu = values

    @classmethod
    def __torch_dispatch__(cls, func, _types, args=(), kwargs=None):
        return run(func, args, kwargs or {})

    def tolist(self):
        return self.values_on_cpu.tolist()

    def cpu(self):
        return self.to('cpu')

    def numpy(self):
        raise TypeError(f'a tensor on {DEVICE} is no array')

    def new_tensor(self, values):
        return torch.tensor(values, dtype=self.dtype, device=DEVICE)

    def __repr__(self):
        return f'{self.values_on_cpu!r} on {DEVICE}'


def each(function, x):
    """Applies a function to a value, or to all values in lists and tuples."""
    if isinstance(x, list | tuple):
        return type(x)(each(function, part) for part in x)
    return function(x)


def run(func, args, kwargs):
    """Runs an operator with the values on the CPU."""
    tensors = []
    each(lambda x: tensors.append(x) if isinstance(x, Tensor) else None, [args, [*kwargs.values()]])
    places = {x.device for x in tensors if x.dim() > 0 or x.device == DEVICE}
    device, name = kwargs.get('device'), func.overloadpacket.__name__
    if DEVICE not in (device, *places):
        return func(*args, **kwargs)
    if len(places) > 1 and name not in TAKES_BOTH:
        raise RuntimeError(f'{func} got tensors on {places}')
    values = partial(each, lambda x: getattr(x, 'values_on_cpu', x))
    options = {key: values(value) for key, value in kwargs.items()}
    if device is not None:
        options['device'] = torch.device('cpu')
    out = func(*values(args), **options)
    out = each(lambda x: DeviceTensor(x) if type(x) is Tensor else x, out)
    return return_and_correct_aliasing(func, args, kwargs, out) if DEVICE in places else out


class Device(TorchDispatchMode):
    """Runs the operators that make a tensor on the device."""

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Move(torch.autograd.Function):
    """Copies a tensor from the CPU to the device, or back."""

    @staticmethod
    def forward(_ctx, x):
        return x.values_on_cpu.clone() if x.device == DEVICE else DeviceTensor(x.clone())

    @staticmethod
    def backward(_ctx, grad):
        return Move.apply(grad)


def to(self, *args, copy=False, **kwargs):
    """Tensor.to, also for the device."""
    if args and isinstance(args[0], Tensor):
        args = args[0].device, args[0].dtype
    device, dtype = torch._C._nn._parse_to(*args, **kwargs)[:2]
    device, dtype = device or self.device, dtype or self.dtype
    if DEVICE not in (device, self.device) or device == self.device:
        return TO(self, *([] if device == DEVICE else [device]), dtype, copy=copy)
    return TO(Move.apply(self if device != DEVICE else TO(self, dtype)), dtype)


@contextmanager
def emulated(assign):
    """Emulates the device. Operators of the package run at once, as for plain tensors, so that
    their code is run. The function ``assign`` replaces an attribute until the end of a test."""
    assign(Tensor, 'to', to)
    assign(custom_op, 'is_watched', lambda: False)
    assign(custom_op, 'PLAIN_TYPES', {*custom_op.PLAIN_TYPES, DeviceTensor})
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with Device():
            yield DEVICE
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
        torch.__future__.set_overwrite_module_params_on_conversion(False)
