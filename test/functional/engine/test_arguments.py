from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.arguments import Arguments, Size
from torch_geometric_lgt.typing import Differentiable, DifferentiableOrNone


class Axis(NamedTuple):
    sizes: Tensor
    order: Tensor | None = None


@dataclass(frozen=True)
class Part:
    x: Differentiable
    bias: DifferentiableOrNone


X, Y, BIAS, SIZES = torch.ones(2), torch.zeros(3), torch.ones(1), torch.tensor([2])


@pytest.fixture
def cls():
    class Example(Arguments):
        one: Part
        two: Part
        nodes: Axis
        count: Size
        heads: int
        scale: float
        name: str
        exact: bool
        constant: Tensor | None
        shares: ClassVar = {'two.x': 'one.x'}

    return Example


def example(cls, two=Y):
    options = {'count': 3, 'heads': 2, 'scale': 0.5, 'name': 'a', 'exact': True, 'constant': None}
    return cls(one=Part(X, BIAS), two=Part(two, None), nodes=Axis(SIZES), **options)


def parts(arguments):
    """All values, in containers that compare a tensor with itself by identity."""
    names = ('nodes', 'count', 'heads', 'scale', 'name', 'exact', 'constant')
    others = {name: getattr(arguments, name) for name in names}
    return [vars(arguments.one), vars(arguments.two), others]


def test_the_schema_names_each_value(cls):
    expected = (
        'Tensor one_x, Tensor? one_bias, Tensor? two_x, Tensor? two_bias, Tensor nodes_sizes, '
        'Tensor? nodes_order, SymInt count'
    )
    assert (
        cls.schema == expected + ', int heads, float scale, str name, bool exact, Tensor? constant'
    )
    assert [slot.path for slot in cls.slots if slot.has_gradient] == [
        'one.x',
        'one.bias',
        'two.x',
        'two.bias',
    ]


def test_unpacked_arguments_equal_the_packed_ones(cls):
    values = example(cls).pack()
    assert values == [X, BIAS, Y, None, SIZES, None, 3, 2, 0.5, 'a', True, None]
    assert parts(cls.unpack(values)) == parts(example(cls))


def test_a_shared_tensor_is_passed_once(cls):
    values = example(cls, two=X).pack()
    assert values[0] is X
    assert values[2] is None
    assert cls.unpack(values).two.x is X
    assert example(cls, two=X.clone()).pack()[2] is not None


def test_gradients_are_packed_by_name(cls):
    grads = cls.pack_gradients({'one': {'x': Y, 'bias': None}, 'two': {'bias': BIAS}}, X)
    assert [grad.numel() for grad in grads] == [3, 0, 0, 1]
    assert grads[3] is BIAS
    with pytest.raises(KeyError, match=r"Example has no gradient for \['nodes.sizes', 'scale'\]"):
        cls.pack_gradients({'scale': X, 'nodes': {'sizes': X}}, X)


def test_gradients_of_tensors_that_are_in_no_record():
    class Sums(Arguments):
        first: Differentiable
        second: Differentiable

    first, second = Sums.pack_gradients({'second': Y}, X)
    assert first.numel() == 0
    assert second is Y


def test_arguments_are_frozen_and_made_by_keywords(cls):
    with pytest.raises(AttributeError, match='cannot assign'):
        example(cls).heads = 3
    with pytest.raises(TypeError, match='takes 1 positional argument but 2 were given'):
        cls(X)
