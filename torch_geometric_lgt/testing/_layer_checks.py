# N nodes, E edges, F input width.
import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.testing._batch_checks import (
    check_batch,
    check_empty,
    check_permutation,
    check_tiny,
    check_training_batch,
)
from torch_geometric_lgt.testing._edge_checks import (
    check_edge_weights,
    check_edges,
    edge_weights,
    takes_edge_weights,
)
from torch_geometric_lgt.testing._promises import Call, check_function, promise
from torch_geometric_lgt.testing._samples import sample
from torch_geometric_lgt.testing._saved import SavedStorages
from torch_geometric_lgt.testing._wrapped_checks import check_wrapped

FIXES = {
    "'x'": '; call torch_geometric_lgt.nn.check_features first in forward',
    "'batch'": '; torch_geometric_lgt.functional.kernel_attention checks it',
    "'edge_index'": '; torch_geometric_lgt.functional.sorted_edges checks it',
}


def plain_call(
    layer: Module, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, **kwargs: Any
) -> Tensor:
    return layer(x, edge_index, batch=batch, **kwargs)


def check_layer(
    make: Callable[[], Module], in_channels: int, call: Call = plain_call, linear: bool = True
) -> None:
    r"""Checks that a layer keeps every promise of this package's layers.

    * A permutation of the nodes permutes the output in the same way.
    * In evaluation the output of a graph does not depend on the rest of the batch. In training this
      holds for equal random draws and with batch normalisation in evaluation, which mixes graphs
      otherwise. The batch may be unsorted and contain empty graphs, and other graphs in it may have
      large features or NaN.
    * Outputs and gradients of graphs with one to four nodes, where denominators can cancel, do not
      depend on the batch. This holds in float32, too.
    * Edges may come in every format that PyG's layers take.
    * A layer whose output changes when edges are removed must use weights of edges, or refuse them
      by a TypeError or ValueError that contains the word "weight". Weights as :obj:`edge_weight`
      and as values of a sparse matrix give the same output, and weights have gradients.
    * Gradients equal finite differences. Rows of zeros and features of any size give finite
      outputs and gradients.
    * Evaluation draws no random numbers, and changes neither an input nor the state dict. No call
      seeds the global random state.
    * Copies and pickles give the same output, and so does another layer that loads the state dict.
      One seed gives one initialisation.
    * The layer has a method :meth:`reset_parameters`, as PyG's layers have.
    * Hooks and parametrisations that a user adds to the Linear layers and embeddings of the layer
      change the output and receive gradients. So do other modules that a user puts in their place,
      such as adapters, which need not have a :obj:`weight`.
    * ``torch.compile`` finds no graph break, with or without batch and weights, and compiles once
      for all sizes.
    * Half precision is close to double precision.
    * The flops of both passes, and the bytes that are kept for the backward pass, grow no faster
      than the number of nodes and edges.
    * Wrong features and graph ids end in a ValueError or TypeError that names the argument. So do
      wrong edges if the output depends on the edges. :func:`~torch_geometric_lgt.nn.check_features`
      checks features, :func:`~torch_geometric_lgt.functional.kernel_attention` graph ids, and
      :func:`~torch_geometric_lgt.functional.sorted_edges` edges.

    Args:
        make (callable): Makes the layer, in training mode and float32.
        in_channels (int): Width of the layer's input.
        call (callable, optional): Applies the layer, its first argument, to :obj:`x` ``[N, F]``,
            :obj:`edge_index` and :obj:`batch`, and returns the output ``[N, *]``. It must accept
            the keyword :obj:`batch_size`, also for a layer without one, and may refuse
            :obj:`edge_weight` by an error as above. (default: ``layer(x, edge_index, batch=batch,
            **kwargs)``)
        linear (bool, optional): If :obj:`False`, the layer's cost may grow faster than the number
            of nodes and edges. (default: :obj:`True`)

    Raises:
        TypeError: If :obj:`make` is no function.
        AssertionError: If the layer breaks a promise; the message names it. An error of the layer
            is its cause.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import KernelAttentionConv
        >>> from torch_geometric_lgt.testing.checks import check_layer
        >>> check_layer(lambda: KernelAttentionConv(6, 8, feature_map='elu'), in_channels=6)
        >>> class Numbered(torch.nn.Linear):
        ...     def forward(self, x, edge_index, batch=None):
        ...         return super().forward(x) * torch.arange(len(x))[:, None]
        >>> check_layer(lambda: Numbered(6, 8), in_channels=6)
        Traceback (most recent call last):
        AssertionError: a permutation of the nodes changes the output: ...
    """
    check_function(make)
    layer = make().double().eval()
    x, edge_index, batch = sample(40, in_channels)
    with promise('a call in double precision with an unsorted batch'):
        check_permutation(layer, call, x, edge_index, batch)
    with promise('a batch or one of its graphs'):
        check_batch(layer, call, x, edge_index, batch)
    with promise('training'):
        check_training_batch(make(), call, in_channels)
    with promise('a call after a seed'):
        _check_seeding(make(), call, x.float(), edge_index, batch)
    with promise('a tiny graph'):
        check_tiny(layer, call, in_channels)
    with promise('a graph without nodes or edges'):
        check_empty(layer, call, in_channels)
    check_edges(layer, call, x, edge_index)
    check_edge_weights(layer, call, x, edge_index)
    _check_range(make(), call, x.float(), edge_index, batch)
    with promise('a state dict, copy or pickle'):
        _check_side_effects(layer, make().double().eval(), call, x, edge_index, batch)
    _check_errors(layer, call, x, edge_index, batch)
    with promise('the comparison of gradients with finite differences'):
        _check_gradients(layer, call, *sample(9, in_channels))
    check_wrapped(layer, call, *sample(9, in_channels))
    with promise("'reset_parameters'"):
        _check_reset(make(), call, x.float(), edge_index, batch)
    with promise('another precision'):
        _check_precision(layer, call, x, edge_index, batch)
    if linear:
        with promise('a graph of 2000 nodes'):
            _check_cost(make(), call, in_channels)
    with promise('torch.compile'):
        _check_compile(make(), call, x.float(), edge_index, batch)


def _check_range(layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor) -> None:
    for factor in (0.0, 1e-6, 1e3):
        leaf = (factor * x).requires_grad_()
        layer.zero_grad()
        with promise(f'a backward pass with features times {factor:g}'):
            out = call(layer.eval(), leaf, edge_index, batch)
            out.sum().backward()
        results = [out, leaf.grad, *(parameter.grad for parameter in layer.parameters())]
        if not all(part is None or bool(part.isfinite().all()) for part in results):
            raise AssertionError(
                f'features times {factor:g} make outputs or gradients that are not finite; '
                'keep denominators away from 0 and exponentials from overflow, for example by '
                "'logits' of torch_geometric_lgt.functional.kernel_attention"
            )


def _check_errors(layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor) -> None:
    past = edge_index.clone()
    past[0, 0] = x.size(0)
    features = {
        'another width': x[:, :-1],
        'another dtype': x.float(),
        'three dimensions': x[..., None],
    }
    graphs = {
        'negative ids': batch - 1,
        'broken numbers': batch.double(),
        'too few ids': batch[:-1],
        'a list': batch.tolist(),
    }
    graphs['weights of edges'] = torch.ones(edge_index.size(1), dtype=x.dtype)
    edges = {
        'an id past the nodes': past,
        'negative ids': edge_index - 1,
        'broken numbers': edge_index.double(),
        'pairs': edge_index.t(),
    }
    takes_batch = 'batch' in inspect.signature(layer.forward).parameters
    reads_edges = not torch.equal(call(layer, x, edge_index), call(layer, x, edge_index[:, :2]))
    cases = [("'x'", what, (part, edge_index, batch)) for what, part in features.items()]
    cases += [
        ("'batch'", what, (x, edge_index, part)) for what, part in graphs.items() if takes_batch
    ]
    cases += [("'edge_index'", what, (x, part)) for what, part in edges.items() if reads_edges]
    for name, what, arguments in cases:
        try:
            call(layer, *arguments)
        except Exception as error:
            if name not in str(error) or not isinstance(error, (ValueError, TypeError)):
                raise AssertionError(
                    f'{what} in {name} end in {error!r}, no ValueError that names it{FIXES[name]}'
                ) from error
        else:
            raise AssertionError(f'{what} in {name} end in no error{FIXES[name]}')


def _check_gradients(
    layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor
) -> None:
    leaves = [x.requires_grad_(), *layer.parameters()]
    torch.autograd.gradcheck(
        lambda *_: call(layer, x, edge_index, batch),
        leaves,
        eps=1e-6,
        atol=1e-6,
        rtol=1e-4,
        fast_mode=True,
    )


def _check_seeding(layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor) -> None:
    for mode in ('training', 'evaluation'):
        layer.train(mode == 'training')
        states = []
        for seed in (0, 1):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                call(layer, x, edge_index, batch)
                states.append(torch.get_rng_state())
        if torch.equal(*states):
            raise AssertionError(f'a call in {mode} seeds the global random state')


def _check_side_effects(
    layer: Module, other: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor
) -> None:
    r"""Asserts that a call in evaluation has no side effects, and that copies of :obj:`layer` have
    its output. One of them is :obj:`other`, a new layer that loads the state dict."""
    before, random = [part.clone() for part in (x, edge_index, batch)], torch.get_rng_state()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    out = call(layer, x, edge_index, batch)
    assert_close(
        dict(layer.state_dict()), state, rtol=0, atol=0, msg='evaluation changes the state dict'
    )
    assert_close(torch.get_rng_state(), random, msg='evaluation draws from the global random state')
    for part, original in zip((x, edge_index, batch), before, strict=True):
        assert_close(part, original, rtol=0, atol=0, msg='an input was written to')
    other.load_state_dict(layer.state_dict())
    for name, copied in (
        ('state dict', other),
        ('copy', copy.deepcopy(layer)),
        ('pickle', pickle.loads(pickle.dumps(layer))),
    ):
        assert_close(
            call(copied, x, edge_index, batch),
            out,
            rtol=0,
            atol=0,
            msg=f'a {name} of the layer is another layer',
        )


def _check_reset(layer: Any, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor) -> None:
    if not hasattr(layer, 'reset_parameters'):
        raise AssertionError(
            "the layer has no method 'reset_parameters'; define one that draws all parameters "
            "anew, as PyG's layers do: call torch_geometric.nn.inits.reset(module) for each of "
            'self.children()'
        )
    call(layer, x, edge_index, batch)  # gives open sizes their values
    states = []
    for seed in (0, 0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layer.reset_parameters()
        states.append({name: value.clone() for name, value in layer.state_dict().items()})
    assert_close(
        states[0], states[1], rtol=0, atol=0, msg=lambda text: f'one seed makes two layers: {text}'
    )
    if all(torch.equal(states[0][name], states[2][name]) for name in states[0]):
        raise AssertionError("'reset_parameters' resets nothing")


def _check_compile(layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor) -> None:
    r"""Asserts that the layer compiles without a break, once for all sizes: with a batch and, if
    the layer takes them, weights through AOTAutograd, which traces the backward pass too, and
    without them by Dynamo alone, which takes a third of the time."""
    layer = layer.eval()
    call(layer, x, edge_index)  # before it is compiled: gives open sizes their values
    takes_weights = takes_edge_weights(layer, call, x, edge_index)
    names = ['a batch', *(['weights of edges'] if takes_weights else [])]
    for backend, what in (('eager', ''), ('aot_eager', f' with {" and ".join(names)}')):
        torch.compiler.reset()  # other compilations of the same functions would count
        compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
        for copies in (1, 2, 3):
            larger = torch.cat([x] * copies)
            edges = torch.cat([edge_index + i * x.size(0) for i in range(copies)], 1)
            arguments: dict[str, Any] = {}
            if what:
                arguments['batch'] = torch.cat([batch + 4 * i for i in range(copies)])
            if what and takes_weights:
                arguments['edge_weight'] = edge_weights(edges).to(x.dtype)
            expected = call(layer, larger, edges, **arguments)
            if what:
                arguments['batch_size'] = 4 * copies
            size = ', of another size' if copies > 1 else ''
            with torch._dynamo.config.patch(error_on_recompile=copies > 1):
                assert_close(
                    call(compiled, larger, edges, **arguments),
                    expected,
                    msg=lambda text, what=what, size=size: f'compiled{what}{size}: {text}',
                )


def _check_precision(
    layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor
) -> None:
    expected = call(layer, x, edge_index, batch)
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
        actual = call(copy.deepcopy(layer).to(dtype), x.to(dtype), edge_index, batch)
        error = float(((actual.double() - expected).norm() / expected.norm()).detach())
        if not error < bound or actual.dtype != dtype:
            raise AssertionError(
                f'{actual.dtype} for {dtype} with the relative error {error:.1e}, more than '
                f'{bound:.0e}'
            )


def _check_cost(layer: Module, call: Call, in_channels: int) -> None:
    costs = []
    for num_nodes in (500, 2000):
        x = torch.randn(num_nodes, in_channels, requires_grad=True)
        edge_index = torch.arange(3 * num_nodes).remainder(num_nodes).view(3, -1)
        edge_index = torch.cat(
            [edge_index, (edge_index + torch.tensor([[1], [2], [3]])) % num_nodes]
        ).view(2, -1)
        with FlopCounterMode(display=False) as counter, SavedStorages() as saved:
            call(layer, x, edge_index).sum().backward()
        costs.append((counter.get_total_flops(), sum(saved.sizes)))
    for name, few, many in zip(('flops', 'bytes for the backward pass'), *costs, strict=True):
        if not 0 < many <= 4.2 * few:
            raise AssertionError(f'{many} {name} at 4N nodes for {few} at N')
