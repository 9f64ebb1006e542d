"""Classifies scikit-learn's digits without any input graph: kernel attention among all images
beside a multilayer perceptron (MLP)."""

import argparse
from importlib.util import find_spec
from math import log
from pathlib import Path
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList
from tqdm import tqdm

from torch_geometric_lgt.nn import KernelAttentionConv

CLASSES, CHANNELS, HEADS, LAYERS = 10, 64, 4, 2
MAP_QUERIES = 200


def linear_layer() -> Module:
    return Linear(CHANNELS, CHANNELS)


def attention_layer() -> Module:
    conv = KernelAttentionConv(CHANNELS, CHANNELS, heads=HEADS)
    conv.lin_key = conv.lin_query  # one map for both: images that are alike attend to each other
    return conv


# Dropout and weight decay of each method had the best accuracy on the validation images.
METHODS = {'MLP': (linear_layer, 0.35, 1.0), 'Attention': (attention_layer, 0.2, 0.3)}


class Net(Module):
    """The same for both methods but for the inner layers: a linear one sees a single image,
    attention sees all of them."""

    def __init__(self, make_layer, dropout: float) -> None:
        super().__init__()
        self.lin_in, self.lin_out, self.dropout = (
            Linear(64, CHANNELS),
            Linear(CHANNELS, CLASSES),
            dropout,
        )
        self.layers = ModuleList(make_layer() for _ in range(LAYERS))
        self.norms = ModuleList(LayerNorm(CHANNELS) for _ in range(LAYERS + 1))

    def embed(self, x: Tensor, num_layers: int) -> Tensor:
        x = self.norms[0](self.lin_in(x)).relu()
        for i in range(num_layers):
            x = F.dropout(x, self.dropout, self.training)
            x = self.norms[i + 1](x + self.layers[i](x)).relu()
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.lin_out(self.embed(x, LAYERS))


@torch.no_grad()
def accuracy(model: Net, x: Tensor, y: Tensor, nodes: Tensor) -> float:
    model.eval()
    return 100 * (model(x)[nodes].argmax(1) == y[nodes]).float().mean().item()


def train(
    model: Net,
    x: Tensor,
    y: Tensor,
    split: tuple[Tensor, ...],
    weight_decay: float,
    epochs: int,
    bar: tqdm,
) -> tuple[float, float]:
    """Trains on the first part of the split, goes back to the best epoch on the second, and reads
    the third once."""
    train_nodes, val_nodes, test_nodes = split
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=weight_decay)
    best, best_state = -1.0, {}
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x)[train_nodes], y[train_nodes]).backward()
        optimizer.step()
        val = accuracy(model, x, y, val_nodes)
        if val > best:
            best, best_state = (
                val,
                {name: value.clone() for name, value in model.state_dict().items()},
            )
        bar.set_postfix(val=f'{val:.1f} %', best=f'{best:.1f} %', refresh=False)
        bar.update()
    model.load_state_dict(best_state)
    return best, accuracy(model, x, y, test_nodes)


@torch.no_grad()
def class_attention(model: Net, x: Tensor, y: Tensor, queries: Tensor) -> Tensor:
    """Row i, column j: the weight of all images of class j for queries of class i in the last
    layer, over that of uniform attention."""
    h = model.eval().embed(x, LAYERS - 1)
    total = torch.zeros(CLASSES, CLASSES)
    for chunk in queries.split(100):
        source, target = torch.arange(len(x)).repeat(len(chunk)), chunk.repeat_interleave(len(x))
        weight = model.layers[-1].attention_scores(h, torch.stack([source, target])).mean(1)
        total.index_put_((y[target], y[source]), weight, accumulate=True)
    return total / total.sum(1, keepdim=True) / (y.bincount() / len(y))


def mean_std(values: list[float]) -> tuple[float, float]:
    return mean(values), stdev(values) if len(values) > 1 else 0.0


def draw(test: dict[str, list[float]], attention: Tensor, labels: int, path: Path) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 5), layout='constrained')
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.7])
    left.plot([0.1, 0.9], list(test.values()), color='0.75', marker='o', markersize=4, zorder=1)
    for i, values in enumerate(test.values()):
        center, spread = mean_std(values)
        left.errorbar(i, center, spread, fmt='s', markersize=9, capsize=7, color=f'C{i}')
    left.set(
        xticks=range(len(test)),
        xticklabels=list(test),
        xlim=(-0.4, 1.4),
        ylabel='test accuracy (%)',
    )
    left.set_title(f'{labels} labels, no graph\ncolour: mean ± std, grey: single splits')
    limit = max(2.0, attention.max().item(), 1 / attention.min().item())
    image = right.imshow(attention, cmap='RdBu_r', norm=LogNorm(1 / limit, limit))
    for i in range(CLASSES):
        for j in range(CLASSES):
            dark = abs(log(attention[i, j])) > 0.6 * log(limit)
            right.text(
                j,
                i,
                f'{attention[i, j]:.1f}',
                ha='center',
                va='center',
                fontsize=8,
                color='white' if dark else 'black',
            )
    right.set(xlabel='digit attended to (all images)', ylabel='digit that attends (test images)')
    right.set(xticks=range(CLASSES), yticks=range(CLASSES))
    right.set_title(
        f'Attention of layer {LAYERS} of {LAYERS}\nmean over {HEADS} heads and {len(test["MLP"])} '
        'splits'
    )
    ticks = [tick for tick in (0.25, 0.5, 0.7, 1, 1.4, 2, 4) if 1 / limit <= tick <= limit]
    bar = figure.colorbar(
        image,
        ax=right,
        label='weight on the class / weight under uniform attention',
        ticks=ticks,
        format='%g',
    )
    bar.minorticks_off()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--splits', type=int, default=5, help='number of random splits')
    parser.add_argument('--epochs', type=int, default=100, help='epochs per run')
    parser.add_argument(
        '--output',
        type=Path,
        default=Path(__file__).parent / 'output' / 'quickstart.png',
        help='the picture',
    )
    args = parser.parse_args()

    missing = [module for module in ('matplotlib', 'sklearn') if find_spec(module) is None]
    if missing:
        parser.error(
            f"{' and '.join(missing)} must be there: pip install 'torch-geometric-lgt[examples]'"
        )
    try:
        args.output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(
            f"the picture cannot be written to '{args.output}' ({error.strerror}): name another "
            'place with --output'
        )
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)  # these products are too small to share
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    sizes = [89, 270, len(x) - 359]
    val, test, maps = {m: [] for m in METHODS}, {m: [] for m in METHODS}, []
    with tqdm(total=args.splits * len(METHODS) * args.epochs, unit='epoch') as bar:
        for seed in range(args.splits):
            for method, (make_layer, dropout, weight_decay) in METHODS.items():
                bar.set_description(f'split {seed + 1}/{args.splits}, {method}')
                torch.manual_seed(seed)
                split = torch.randperm(len(x)).split(sizes)
                model = Net(make_layer, dropout)
                scores = train(model, x, y, split, weight_decay, args.epochs, bar)
                val[method].append(scores[0])
                test[method].append(scores[1])
            maps.append(class_attention(model, x, y, split[2][:MAP_QUERIES]))
    attention = torch.stack(maps).mean(0)

    print(
        f'{len(x)} images as nodes, no edges: {sizes[0]} labels to train on (5 %), {sizes[1]} to '
        f'validate on, {sizes[2]} to test on'
    )
    for method in METHODS:
        (val_mean, val_std), (test_mean, test_std) = mean_std(val[method]), mean_std(test[method])
        print(
            f'{method:9s}  test {test_mean:.1f} ± {test_std:.1f} %  validation {val_mean:.1f} ± '
            f'{val_std:.1f} %  ({args.splits} splits)'
        )
    print(
        f'An image puts {attention.diagonal().mean():.2f} times the uniform weight on images of '
        'its own digit.'
    )
    draw(test, attention, sizes[0], args.output)
    print(f'Picture: {args.output}')


if __name__ == '__main__':
    main()
