# N nodes, F input width.
import copy

import torch
from torch import Tensor
from torch.nn import Module
from torch.testing import assert_close

from torch_geometric_lgt.testing._promises import Call
from torch_geometric_lgt.testing._samples import DOUBLE, sample, subgraph, tiny_graphs


def check_permutation(
    layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor
) -> None:
    r"""Asserts that a permutation of the nodes permutes the output in the same way."""
    order = torch.randperm(x.size(0), generator=torch.Generator().manual_seed(1))
    expected = call(layer, x, edge_index, batch)[order]
    actual = call(layer, x[order], subgraph(edge_index, order, x.size(0)), batch[order])
    assert_close(
        actual,
        expected,
        rtol=1e-10,
        atol=1e-10,
        msg=lambda text: f'a permutation of the nodes changes the output: {text}',
    )


def check_batch(layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor) -> None:
    r"""Asserts that the output of each graph does not depend on the other graphs of the batch,
    which may have large features or NaN."""
    together = call(layer, x, edge_index, batch)
    for graph in batch.unique():
        nodes = (batch == graph).nonzero().flatten()
        alone = call(layer, x[nodes], subgraph(edge_index, nodes, x.size(0)))
        assert_close(
            together[nodes],
            alone,
            rtol=1e-10,
            atol=1e-10,
            msg=lambda text: f'a graph depends on the batch: {text}',
        )
        for change in (100.0, float('nan')):
            other = torch.where((batch == graph)[:, None], x, x * change)
            beside = call(layer, other, edge_index, batch)[nodes]
            assert_close(
                beside,
                alone,
                rtol=1e-10,
                atol=1e-10,
                msg=lambda text: f'a graph depends on its neighbour in the batch: {text}',
            )


def check_training_batch(layer: Module, call: Call, in_channels: int) -> None:
    r"""Asserts that outputs and gradients of graphs in training do not change if another graph of
    the batch has NaN in place of its features.

    Both runs have the same random draws. Features are in single precision, and all graphs have 10
    nodes, so that they are computed together. Batch normalisation is in evaluation."""
    batch = torch.arange(40) % 4
    x, edge_index, _ = sample(40, in_channels)
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    for module in layer.train().modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.eval()
    others = batch != 2
    for scale in (1.0, 10.0):
        runs = []
        for change in (1.0, float('nan')):
            leaf = (
                torch.where(others[:, None], scale * x, scale * x * change).float().requires_grad_()
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                out = call(layer, leaf, edge_index, batch)[others]
            (grad,) = torch.autograd.grad(
                out, leaf, torch.linspace(-1, 1, out.numel()).view_as(out)
            )
            runs.append((out.detach(), grad[others]))
        for name, beside, expected in zip(('output', 'gradient'), runs[1], runs[0], strict=True):
            bound = 1e-5 * float(expected.abs().max())
            message = f'the {name} of a graph depends on its neighbour in the batch in training'
            assert_close(
                beside,
                expected,
                rtol=0,
                atol=bound,
                msg=lambda text, message=message: f'{message}: {text}',
            )


def check_tiny(layer: Module, call: Call, in_channels: int) -> None:
    r"""Asserts that outputs and gradients of graphs of one to four nodes do not depend on the
    batch."""
    x, edge_index, batch = tiny_graphs(in_channels)
    weight = torch.linspace(-1, 1, x.size(0), dtype=DOUBLE)[:, None]

    def run(
        layer: Module, x: Tensor, edge_index: Tensor, batch: Tensor | None, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        x = x.clone().requires_grad_()
        out = call(layer, x, edge_index, batch)
        return out.detach(), torch.autograd.grad((out * weight.to(x.dtype)).sum(), x)[0]

    for dtype, bound in ((DOUBLE, 1e-9), (torch.float32, 1e-3)):
        module, features = copy.deepcopy(layer).to(dtype), x.to(dtype)
        together = run(module, features, edge_index, batch, weight)
        for graph in batch.unique():
            nodes = (batch == graph).nonzero().flatten()
            alone = run(
                module, features[nodes], subgraph(edge_index, nodes, x.size(0)), None, weight[nodes]
            )
            for what, one, other in zip(('output', 'gradient'), together, alone, strict=True):
                assert_close(
                    one[nodes],
                    other,
                    rtol=bound,
                    atol=bound,
                    msg=lambda text, what=what, dtype=dtype: (
                        f'the {what} of a tiny graph depends on the batch in {dtype}: {text}'
                    ),
                )


def check_empty(layer: Module, call: Call, in_channels: int) -> None:
    r"""Asserts that the output of a graph without nodes is empty."""
    none = torch.empty(2, 0, dtype=torch.long)
    width = call(layer, torch.zeros(1, in_channels, dtype=DOUBLE), none).size(1)
    for batch in (None, torch.empty(0, dtype=torch.long)):
        out = call(layer, torch.empty(0, in_channels, dtype=DOUBLE), none, batch)
        assert_close(out, torch.empty(0, width, dtype=DOUBLE))
