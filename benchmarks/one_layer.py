r"""Compares a stack of attention layers with one layer of the same effect.

python -m benchmarks.one_layer --root DATA --dataset cora --layers 8 --tau 0.5

SGFormer rests on this one layer. The graph is a real one.
"""

# N nodes, D channels, K layers.
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from tqdm import trange

from benchmarks.common.arguments import positive, script_parser
from benchmarks.common.figures import COLORS, WIDTH, require_drawing, save_figure, subplots
from benchmarks.common.scripts import data_from, run_script
from benchmarks.node_classification.datasets import LAYOUT, add_dataset, load
from torch_geometric_lgt.nn import DIFFormer, DIFFormerConv

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Comparison(NamedTuple):
    r"""Holds what a stack of layers and the one layer do to the nodes.

    ``stacked`` and ``single`` are the spreads of the nodes relative to the input. ``difference`` is
    the largest difference of the outputs relative to the largest output. The singular values are
    those of the weights of the one layer.
    """

    stacked: list[float]
    single: float
    difference: float
    singular_values: Tensor


def layer_weights(x: Tensor, num_layers: int, tau: float) -> list[Tensor]:
    r"""Computes the weights ``[N, N]``, with targets as rows, of attention layers of DIFFormer's
    simple kernel.

    Each layer reads the output of the last one:
    :math:`\mathbf{Z}^{(k)} = ((1 - \tau) \mathbf{I} + \tau \mathbf{C}^{(k)}) \mathbf{Z}^{(k-1)}`.
    """
    nodes = torch.arange(x.size(0))
    weights: list[Tensor] = []
    target, source = torch.cartesian_prod(nodes, nodes).t()
    for _ in trange(num_layers, desc='layers'):
        conv = DIFFormerConv(x.size(1), x.size(1), use_graph=False).to(x.dtype)
        with torch.no_grad():
            weights.append(
                conv.attention_scores(x, torch.stack([source, target])).view(x.size(0), -1)
            )
        x = step(x, weights[-1], tau)
    return weights


def step(x: Tensor, weight: Tensor, tau: float) -> Tensor:
    return (1 - tau) * x + tau * weight @ x


def single_layer(weights: list[Tensor], tau: float) -> tuple[Tensor, float]:
    r"""Computes the weights and the share :math:`\tau'` of the one layer,

    .. math::
        \tau' = 1 - (1 - \tau)^K, \qquad
        \mathbf{C} = \frac{1}{\tau'} \left( \prod_k ((1 - \tau) \mathbf{I} + \tau \mathbf{C}^{(k)})
            - (1 - \tau') \mathbf{I} \right),

    Rows of nonnegative weights that sum to 1 in all layers give such rows in the one layer.
    """
    identity = torch.eye(weights[0].size(0), dtype=weights[0].dtype)
    product = identity
    share = 1 - (1 - tau) ** len(weights)
    for weight in weights:
        product = step(product, weight, tau)
    return (product - (1 - share) * identity) / share, share


def spread(x: Tensor) -> float:
    r"""Computes the mean squared distance of two nodes, which measures smoothing."""
    return float(2 * (x - x.mean(0)).square().sum(1).mean())


def compare(x: Tensor, weights: list[Tensor], tau: float) -> Comparison:
    z, stacked = x, []
    for weight in weights:
        z = step(z, weight, tau)
        stacked.append(spread(z) / spread(x))
    one, share = single_layer(weights, tau)
    out = step(x, one, share)
    difference = float((out - z).abs().max() / z.abs().max())
    return Comparison(stacked, spread(out) / spread(x), difference, torch.linalg.svdvals(one))


def figure(comparison: Comparison) -> 'Figure':
    out, (left, right) = subplots(1, 2, figsize=(WIDTH, 3.2))
    left.plot(
        range(len(comparison.stacked) + 1),
        [1.0, *comparison.stacked],
        marker='o',
        label='layers one after the other',
    )
    left.axhline(comparison.single, color=COLORS[1], linestyle='--', label='the one layer')
    left.set(xlabel='layers', ylabel='spread of the nodes (input: 1)', yscale='log')
    left.legend()
    values = comparison.singular_values / comparison.singular_values[0]
    right.semilogy(range(1, values.numel() + 1), values.clamp(min=1e-17))
    right.set(
        xlabel='number',
        ylabel='singular value (largest: 1)',
        title='weights of the one layer',
        xscale='log',
    )
    return out


def main() -> None:
    parser = script_parser(__doc__)
    add_dataset(parser)
    parser.groups['model'].add_argument(
        '--layers', type=positive, default=8, help='layers one after the other'
    )
    parser.groups['model'].add_argument(
        '--tau', type=float, default=0.5, help='share of the attention in the output of a layer'
    )
    parser.groups['model'].add_argument(
        '--channels', type=positive, default=64, help='channels of the layers'
    )
    args = parser.parse_args()
    torch.manual_seed(0)
    require_drawing()
    with data_from(args.root, LAYOUT):
        data = load(args.root, args.dataset)
    with torch.no_grad():
        x = DIFFormer(data.num_features, args.channels, 1).double().input_layer(data.x.double())
    comparison = compare(x, layer_weights(x, args.layers, args.tau), args.tau)
    save_figure(
        figure(comparison),
        args.output / 'node_classification' / f'one-layer-{Path(args.dataset).stem}.png',
    )
    rank = int((comparison.singular_values > 1e-10 * comparison.singular_values[0]).sum())
    print(
        json.dumps(
            {
                'stacked': comparison.stacked,
                'single': comparison.single,
                'difference': comparison.difference,
                'rank': rank,
            }
        )
    )


if __name__ == '__main__':
    run_script(main)
