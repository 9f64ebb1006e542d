"""Classifies scikit-learn's digits without any input graph: kernel attention among all images beside a multilayer perceptron."""

import argparse
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import LayerNorm, Linear, ModuleList
from tqdm import tqdm

from torch_geometric_lgt.nn import KernelAttentionConv

matplotlib.use('Agg')
import matplotlib.pyplot as plt

CLASSES, CHANNELS, LAYERS = 10, 64, 2
SETTINGS = {
    'MLP': {'layer': Linear, 'dropout': 0.4, 'weight_decay': 0.02},
    'Attention': {'layer': KernelAttentionConv, 'dropout': 0.3, 'weight_decay': 0.01},
}


class Net(torch.nn.Module):
    """Equal for both methods but for the class of its inner layers: a Linear sees one image, a KernelAttentionConv all of them."""

    def __init__(self, layer: type[torch.nn.Module], dropout: float) -> None:
        super().__init__()
        self.lin_in = Linear(64, CHANNELS)
        self.layers = ModuleList(layer(CHANNELS, CHANNELS) for _ in range(LAYERS))
        self.norms = ModuleList(LayerNorm(CHANNELS) for _ in range(LAYERS + 1))
        self.lin_out = Linear(CHANNELS, CLASSES)
        self.dropout = dropout

    def embed(self, x: Tensor, num_layers: int) -> Tensor:
        x = self.norms[0](self.lin_in(x)).relu()
        for layer, norm in zip(self.layers[:num_layers], self.norms[1:], strict=False):
            x = F.dropout(x, self.dropout, self.training)
            x = norm(x + layer(x)).relu()
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.lin_out(self.embed(x, LAYERS))


def train(model: Net, x: Tensor, y: Tensor, split: tuple[Tensor, ...], weight_decay: float, epochs: int, bar: tqdm) -> float:
    """Trains on the labels of the training nodes, goes back to the best epoch on the validation nodes and returns the test accuracy."""
    train_nodes, val_nodes, test_nodes = split
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=weight_decay)
    best, best_state = -1.0, {}
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x)[train_nodes], y[train_nodes]).backward()
        optimizer.step()
        val = accuracy(model, x, y, val_nodes)
        if val > best:
            best, best_state = val, {name: value.clone() for name, value in model.state_dict().items()}
        bar.set_postfix(val=f'{val:.1f} %', best=f'{best:.1f} %', refresh=False)
        bar.update()
    model.load_state_dict(best_state)
    return accuracy(model, x, y, test_nodes)


@torch.no_grad()
def accuracy(model: Net, x: Tensor, y: Tensor, nodes: Tensor) -> float:
    model.eval()
    return 100 * (model(x)[nodes].argmax(1) == y[nodes]).float().mean().item()


@torch.no_grad()
def class_attention(model: Net, x: Tensor, y: Tensor, queries: Tensor) -> Tensor:
    """Row i, column j: the weight that queries of class i put on all nodes of class j in the last layer, over that of uniform attention."""
    h = model.eval().embed(x, LAYERS - 1)
    total = torch.zeros(CLASSES, CLASSES)
    for chunk in queries.split(256):
        source, target = torch.arange(len(x)).repeat(len(chunk)), chunk.repeat_interleave(len(x))
        weight = model.layers[-1].attention_scores(h, torch.stack([source, target])).mean(1)
        total.index_put_((y[target], y[source]), weight, accumulate=True)
    return total / total.sum(1, keepdim=True) / (y.bincount() / len(y))


def draw(test: dict[str, list[float]], attention: Tensor, path: Path) -> None:
    """Accuracy per method with its standard deviation and single splits on the left, the attention between classes on the right."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), gridspec_kw={'width_ratios': [1, 1.5]}, layout='constrained')
    for i, values in enumerate(test.values()):
        spread = torch.tensor(values).std().item()
        left.bar(i, sum(values) / len(values), yerr=spread, width=0.6, capsize=6, color=('#9aa5b1', '#3b7dd8')[i])
        left.scatter([i + 0.18] * len(values), values, s=14, color='black', zorder=3)
    low = min(min(values) for values in test.values())
    left.set(xticks=range(len(test)), xticklabels=list(test), ylabel='test accuracy (%)', ylim=(10 * (low // 10 - 1), 100))
    left.set_title(f'Mean ± standard deviation, {len(next(iter(test.values())))} splits')
    limit = max(attention.max().item(), 2 - attention.min().item())
    image = right.imshow(attention, cmap='RdBu_r', vmin=2 - limit, vmax=limit)
    right.set(xticks=range(CLASSES), yticks=range(CLASSES), xlabel='digit attended to', ylabel='digit that attends (test images)')
    right.set_title(f'Attention of layer {LAYERS}, mean over splits')
    figure.colorbar(image, ax=right, label='weight / uniform weight')
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--splits', type=int, default=5, help='random splits of the images')
    parser.add_argument('--epochs', type=int, default=150)
    parser.add_argument('--output', type=Path, default=Path(__file__).parent / 'output' / 'quickstart.png')
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    sizes = [len(x) // 20, 3 * len(x) // 20]
    sizes.append(len(x) - sum(sizes))
    test: dict[str, list[float]] = {method: [] for method in SETTINGS}
    maps = []
    with tqdm(total=args.splits * len(SETTINGS) * args.epochs) as bar:
        for seed in range(args.splits):
            split = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).split(sizes)
            for method, setting in SETTINGS.items():
                bar.set_description(f'split {seed + 1}, {method}')
                torch.manual_seed(seed)
                model = Net(setting['layer'], setting['dropout'])
                test[method].append(train(model, x, y, split, setting['weight_decay'], args.epochs, bar))
            maps.append(class_attention(model, x, y, split[2]))

    print(f'{len(x)} images; {sizes[0]} with labels to train on, {sizes[1]} to validate on, {sizes[2]} to test on; {args.splits} splits')
    for method, values in test.items():
        print(f'{method:<10} test accuracy {sum(values) / len(values):.2f} ± {torch.tensor(values).std():.2f} %')
    draw(test, torch.stack(maps).mean(0), args.output)
    print(f'picture: {args.output}')


if __name__ == '__main__':
    main()
