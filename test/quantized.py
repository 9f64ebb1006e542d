"""Weights of 8-bit integers, as packages for quantization make them: a subclass of tensors that
defines the operations of its layer and no other."""

import torch
from torch import Tensor
from torch.nn import Embedding, Linear, Module, Parameter
from torch.nn.functional import embedding, linear


class Int8Weight(Tensor):
    values: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, weight):
        return Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype)

    def __init__(self, weight):
        self.scale = weight.abs().amax(1, keepdim=True) / 127
        self.values = (weight / self.scale).round().to(torch.int8)

    def plain(self):
        return self.values * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (linear, embedding):
            first, weight, *others = args
            return func(first, weight.plain(), *others, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(f'{func} of a quantized weight')


def quantize_(model: Module) -> None:
    """Quantizes the linear parts and embeddings of a model in place."""
    for module in model.modules():
        if type(module) in (Linear, Embedding):
            module.weight = Parameter(Int8Weight(module.weight.detach()), requires_grad=False)


def dequantize_(model: Module) -> None:
    """Replaces the quantized weights of a model by plain tensors of the same numbers."""
    for module in model.modules():
        if isinstance(getattr(module, 'weight', None), Int8Weight):
            module.weight = Parameter(module.weight.plain(), requires_grad=False)
