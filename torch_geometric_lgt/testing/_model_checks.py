# N nodes, F input width.
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from torch_geometric.data import Data

from torch_geometric_lgt.testing._edge_checks import edge_weights, takes_edge_weights
from torch_geometric_lgt.testing._layer_checks import check_layer, plain_call
from torch_geometric_lgt.testing._process_checks import check_processes
from torch_geometric_lgt.testing._promises import Call, check_function, promise
from torch_geometric_lgt.testing._samples import sample

Batches = Callable[[Data], Any]


def check_model(
    make: Callable[[], Module],
    in_channels: int,
    call: Call = plain_call,
    linear: bool = True,
    batches: Batches | None = None,
) -> None:
    r"""Checks that a model that scores nodes keeps every promise of this package's models.

    These are the promises of :meth:`check_layer`, and:

    * Scores are not normalised, and every parameter has a gradient.
    * With one random seed two trainings are equal, and a few steps lower the loss on separable
      classes.
    * Loading the parameters of a model of other sizes ends in an error.
    * The method :obj:`inference` over batches returns the same scores as a call on the whole graph,
      with weights of edges too.
    * A model that takes :obj:`process_group` and :obj:`num_keys` computes the same over several
      processes as over one: outputs, gradients and running statistics. One of the processes has no
      nodes and one has a single node. The function :obj:`call` must pass both arguments to the
      model.

    Args:
        make (callable): Makes the model, in training mode and float32.
        in_channels (int): Width of the model's input.
        call (callable, optional): As in :meth:`check_layer`.
        linear (bool, optional): As in :meth:`check_layer`. (default: :obj:`True`)
        batches (callable, optional): Makes the loader for :obj:`inference` from a data object with
            :obj:`x` and :obj:`edge_index`, to which it adds all other attributes that the model
            reads. (default: :obj:`None`, the model has no :obj:`inference`)

    Raises:
        TypeError: If :obj:`make` is no function.
        AssertionError: If the model breaks a promise; the message names it. An error of the model
            is its cause.

    Example:
        >>> from torch_geometric.nn import GCN
        >>> from torch_geometric_lgt.testing.checks import check_model
        >>> class Normalised(GCN):
        ...     def forward(self, x, edge_index, batch=None):
        ...         return super().forward(x, edge_index).log_softmax(1)
        >>> check_model(lambda: Normalised(6, 8, 2, 3), in_channels=6)
        Traceback (most recent call last):
        AssertionError: the scores are normalised
    """
    check_function(make)
    x, edge_index, batch = sample(40, in_channels)
    with promise('training'):
        _check_training(make, call, x.float(), edge_index, batch)
    _check_weights(make())
    if 'process_group' in inspect.signature(make().forward).parameters:
        with promise('a call in several processes'):
            check_processes(make, call, x, edge_index)
    if batches is not None:
        with promise("'inference'"):
            _check_inference(make().double(), call, x, edge_index, batches)
    with torch._dynamo.config.patch(
        specialize_float=True
    ):  # numbers as symbols, as in a layer's check, trace each graph twice
        check_layer(make, in_channels, call, linear)


def _check_training(
    make: Callable[[], Module], call: Call, x: Tensor, edge_index: Tensor, batch: Tensor
) -> None:
    y = batch.clamp(max=2)
    losses = []
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            losses.append(
                _losses(make(), lambda model: call(model, x + y[:, None], edge_index, batch), y)
            )
    assert_close(
        losses[0],
        losses[1],
        rtol=0,
        atol=0,
        msg=lambda text: f'one seed makes two trainings: {text}',
    )
    if not losses[0][-1] < 0.8 * losses[0][0]:
        raise AssertionError(
            f'the loss does not fall in training: from {losses[0][0]:.3f} to {losses[0][-1]:.3f}'
        )


def _losses(model: Module, scores: Callable[[Module], Tensor], y: Tensor) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for step in range(30):
        optimizer.zero_grad()
        out = scores(model)
        loss = cross_entropy(out, y)
        loss.backward()
        if step == 0:
            _check_first_step(model, out.detach())
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def _check_first_step(model: Module, out: Tensor) -> None:
    for normalised in (out.sum(1) - 1, out.logsumexp(1)):
        if bool((normalised.abs() < 1e-4).all()):
            raise AssertionError('the scores are normalised')
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    if idle:
        raise AssertionError(f'no gradient reaches {", ".join(idle)}')


def _check_weights(model: Module) -> None:
    weights = {
        name: value[:-1] if value.dim() > 1 else value for name, value in model.state_dict().items()
    }
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        if 'size mismatch' not in str(error):
            raise AssertionError(f'the weights of a model of other sizes end in {error}') from error
    else:
        raise AssertionError('the weights of a model of other sizes are taken')


def _check_inference(
    model: Any, call: Call, x: Tensor, edge_index: Tensor, batches: Batches
) -> None:
    actual = model.inference(batches(Data(x=x, edge_index=edge_index)))
    expected = call(model.eval(), x, edge_index).detach()
    assert_close(
        actual,
        expected,
        rtol=1e-10,
        atol=1e-10,
        msg=lambda text: f"'inference' differs from the pass over the graph: {text}",
    )
    if takes_edge_weights(model, call, x, edge_index):
        weight = edge_weights(edge_index)
        actual = model.inference(batches(Data(x=x, edge_index=edge_index, edge_weight=weight)))
        expected = call(model, x, edge_index, edge_weight=weight).detach()
        assert_close(
            actual,
            expected,
            rtol=1e-10,
            atol=1e-10,
            msg=lambda text: f"'inference' drops weights of edges: {text}",
        )
