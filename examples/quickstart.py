"""Finds the communities of random graphs from one labelled node each: message passing alone, beside
the mean of the graph, and beside attention.

The model has one layer. Its message passing reaches labels two hops away. Attention also reads
labels farther away, by the Laplacian encodings, which are alike within a community. The mean of the
graph is the same for all its nodes, and does not tell which label belongs to which encoding.
"""

import argparse
from importlib.util import find_spec
from math import pi, sqrt
from pathlib import Path
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import dijkstra
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import stochastic_blockmodel_graph, to_scipy_sparse_matrix
from tqdm import tqdm

from torch_geometric_lgt.diagnostics import attention_report
from torch_geometric_lgt.nn import GraphTransformer
from torch_geometric_lgt.transforms import LaplacianPE

# Nodes of a community at least and at most, and the probability of an edge within a community and
# between two: five edges within, one to others.
COMMUNITIES, SIZES, WITHIN, BETWEEN = 4, (20, 40), 0.17, 0.008
# Chosen on validation graphs.
CHANNELS, HEADS, LEARNING_RATE, BATCH_SIZE, ENCODING_SCALE = 64, 8, 0.005, 8, 7
REACH = 2  # hops that message passing sees
METHODS = {
    'no attention': {'attn_type': None},
    'mean of the graph': {'attn_type': 'mean'},
    'attention': {
        'attn_type': 'kernel',
        'attn_kwargs': {'feature_map': 'learned', 'num_features': 16},
    },
}
NAMES, MARKERS = ('blue', 'orange', 'green', 'pink'), 'os^D'  # of the communities
COLORS = '#0072B2', '#E69F00', '#009E73', '#CC79A7'
STRONGEST = 4  # weights of a node that are drawn, means over the heads


def random_graph(transform: LaplacianPE) -> Data:
    """Draws a graph with one labelled node in each community. Features ``x`` are one-hot: column 0
    for no label, column k + 1 for community k. ``hops`` is the distance to the labelled node of the
    same community, infinity without a path."""
    sizes = torch.randint(SIZES[0], SIZES[1] + 1, (COMMUNITIES,))
    probabilities = torch.full((COMMUNITIES, COMMUNITIES), BETWEEN).fill_diagonal_(WITHIN)
    edge_index = stochastic_blockmodel_graph(sizes, probabilities)
    y = torch.arange(COMMUNITIES).repeat_interleave(sizes)
    labelled = sizes.cumsum(0) - sizes + (torch.rand(COMMUNITIES) * sizes).long()
    token = torch.zeros_like(y)
    token[labelled] = torch.arange(1, COMMUNITIES + 1)
    adjacency = to_scipy_sparse_matrix(edge_index, num_nodes=len(y))
    distance = torch.from_numpy(dijkstra(adjacency, unweighted=True, indices=labelled.numpy()))
    x = F.one_hot(token, COMMUNITIES + 1).float()
    hops = distance[y, torch.arange(len(y))]
    data = transform(Data(x=x, edge_index=edge_index, y=y, hops=hops))
    data.laplacian_pe = data.laplacian_pe * ENCODING_SCALE
    return data


def inputs(data: Data) -> dict[str, Tensor]:
    names = 'x', 'edge_index', 'batch', 'laplacian_pe'
    return {name: data[name] for name in names if name in data}


def train(method: str, graphs: list[Data], epochs: int, bar: tqdm) -> GraphTransformer:
    model = GraphTransformer(
        in_channels=COMMUNITIES + 1,
        hidden_channels=CHANNELS,
        out_channels=COMMUNITIES,
        num_layers=1,
        heads=HEADS,
        conv='TAGConv',
        conv_kwargs={'K': REACH},
        encodings={'laplacian_pe': COMMUNITIES - 1},
        dropout=0.0,
        **METHODS[method],
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    loader = DataLoader(graphs, BATCH_SIZE, shuffle=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=epochs * len(loader)
    )
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(**inputs(batch)), batch.y)
            loss.backward()
            optimizer.step()
            schedule.step()
        bar.set_postfix(loss=f'{loss.item():.2f}', refresh=False)
        bar.update()
    return model.eval()


@torch.no_grad()
def accuracies(model: GraphTransformer, data: Data) -> list[float]:
    """Computes the accuracy in percent on all nodes without a label, on those that message passing
    connects with the label of their community, and on those farther away."""
    is_right = model(**inputs(data)).argmax(1) == data.y
    without_label, is_near = data.hops > 0, data.hops <= REACH
    parts = without_label, without_label & is_near, ~is_near
    return [100 * is_right[part].float().mean().item() for part in parts]


@torch.no_grad()
def attention_weights(model: GraphTransformer, data: Data) -> Tensor:
    """Computes the weight of each node (column) for each node (row) in each head."""
    nodes = torch.arange(data.num_nodes)
    pairs = torch.cartesian_prod(nodes, nodes).t().flip(0)  # sources change fastest
    x, edge_index, encoding = data.x, data.edge_index, data.laplacian_pe
    weight = model.attention_scores(x, edge_index, pairs, laplacian_pe=encoding)[-1]
    return weight.reshape(data.num_nodes, data.num_nodes, HEADS)


def positions(data: Data) -> Tensor:
    """Places each community in a disc of its own: the labelled node in the centre, far nodes
    outside."""
    place = torch.empty(data.num_nodes, 2)
    for community in range(COMMUNITIES):
        nodes = (data.y == community).nonzero().view(-1)
        nodes = nodes[data.hops[nodes].argsort(stable=True)]
        rank = torch.arange(len(nodes))
        radius, angle = (rank / len(nodes)).sqrt(), rank * pi * (3 - sqrt(5))
        center = 2.3 * torch.tensor([community % 2, -(community // 2)])
        place[nodes] = center + radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return place


def draw_nodes(axis, data: Data, place: Tensor, shown: Tensor, title: str) -> None:
    """Draws the nodes as members of the communities ``shown``, and crosses wrong ones."""
    nodes = torch.arange(data.num_nodes)
    for community in range(COMMUNITIES):
        style = {'color': COLORS[community], 'marker': MARKERS[community], 'edgecolor': 'white'}
        axis.scatter(*place[shown == community].t(), s=46, linewidth=0.5, **style)
        label = nodes[(data.hops == 0) & (data.y == community)]
        style = style | {'marker': '*', 'edgecolor': 'black'}
        axis.scatter(*place[label].t(), s=260, linewidth=1.2, zorder=4, **style)
    wrong = shown != data.y
    axis.scatter(*place[wrong].t(), s=38, color='black', marker='x', linewidth=1.4, zorder=3)
    axis.set_title(title)
    axis.set_aspect('equal')
    axis.set_axis_off()


def draw_lines(axis, place: Tensor, pairs: Tensor, width: Tensor | float, color: str) -> None:
    from matplotlib.collections import LineCollection

    lines = place[pairs.t()].numpy()
    axis.add_collection(LineCollection(list(lines), linewidths=width, colors=color, zorder=0))


def draw_attention(figure, axis, data: Data, weight: Tensor) -> None:
    """Draws the weights of the labelled nodes as an image: a row for each node, sorted by community
    and in it by hops, and a column for each head and labelled node."""
    order = torch.argsort(data.y * 1000 + data.hops.clamp(max=999))
    labelled = order[data.hops[order] == 0]
    to_label = weight[order][:, labelled].transpose(1, 2).flatten(1)
    style = {'cmap': 'cividis', 'vmin': 0, 'vmax': 1, 'interpolation': 'nearest', 'aspect': 'auto'}
    image = axis.imshow(to_label.numpy(), **style)
    sizes = data.y.bincount()
    ends = sizes.cumsum(0)
    for end in ends[:-1].tolist():
        axis.axhline(end - 0.5, color='white', linewidth=1)
    for head in range(1, HEADS):
        axis.axvline(head * COMMUNITIES - 0.5, color='white', linewidth=1)
    for column in range(HEADS * COMMUNITIES):
        style = {'color': COLORS[column % COMMUNITIES], 'marker': '*', 'clip_on': False}
        axis.scatter(column, data.num_nodes + 2, s=50, edgecolor='black', linewidth=0.5, **style)
    heads = torch.arange(HEADS)
    axis.set_xticks((heads * COMMUNITIES + (COMMUNITIES - 1) / 2).tolist(), (heads + 1).tolist())
    axis.set_yticks((ends - sizes / 2).tolist(), NAMES, rotation=90, va='center')
    axis.tick_params(length=0)
    axis.tick_params(axis='x', pad=14)
    axis.set_ylim(data.num_nodes - 0.5, -0.5)
    axis.set(xlabel='labelled node attended to, in each of the heads', ylabel='node that attends')
    share = 100 * weight[:, labelled].sum(1).mean()
    axis.set_title(f'The {COMMUNITIES} labelled nodes get {share:.0f} %\nof the attention')
    figure.colorbar(image, ax=axis, label='attention weight')


@torch.no_grad()
def draw(models: dict[str, GraphTransformer], data: Data, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(10, 10.2), layout='constrained')
    axes = figure.subplots(2, 2).flat
    place, weight = positions(data), attention_weights(models['attention'], data)
    title = f'A test graph of {data.num_nodes} nodes:\n{COMMUNITIES} communities, one label in each'
    draw_nodes(axes[0], data, place, data.y, title)
    draw_lines(axes[0], place, data.edge_index, 0.3, '0.6')
    for axis, method in zip(axes[1:3], ('no attention', 'attention'), strict=True):
        shown = models[method](**inputs(data)).argmax(1)
        wrong = int((shown != data.y).sum())
        draw_nodes(axis, data, place, shown, f'Found with {method}:\n{wrong} nodes are wrong')
    draw_attention(figure, axes[3], data, weight)
    nodes = torch.arange(data.num_nodes)
    for community in range(COMMUNITIES):
        distance = torch.where(data.y == community, data.hops, -1.0)
        far = distance.masked_fill(distance.isinf(), -1).argmax()
        top = weight[far].mean(1).masked_fill(nodes == far, 0).topk(STRONGEST)
        pairs = torch.stack([far.expand(STRONGEST), top.indices])
        draw_lines(axes[2], place, pairs, 20 * top.values, 'black')
        axes[2].scatter(*place[far], s=110, facecolor='none', edgecolor='black', linewidth=1.5)
    black = {'color': 'black', 'linestyle': 'none'}
    legend = [
        Line2D([], [], marker='*', markersize=14, **black, label='labelled node'),
        Line2D([], [], marker='x', markersize=7, **black, label='wrong prediction'),
        Line2D([], [], marker='o', markersize=10, fillstyle='none', **black, label='a far node'),
        Line2D([], [], color='black', label=f'its {STRONGEST} strongest attention weights'),
    ]
    figure.legend(handles=legend, loc='outside lower center', ncols=4)
    figure.savefig(path, dpi=150)


def mean_std(values: list[float]) -> str:
    return f'{mean(values):.1f} ± {stdev(values) if len(values) > 1 else 0:.1f}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', type=int, default=2, help='number of seeds of each model')
    parser.add_argument('--epochs', type=int, default=9, help='epochs per run')
    parser.add_argument('--graphs', type=int, default=400, help='number of training graphs')
    parser.add_argument(
        '--output',
        type=Path,
        default=Path(__file__).parent / 'output' / 'quickstart.png',
        help='the picture',
    )
    args = parser.parse_args()

    if find_spec('matplotlib') is None:
        parser.error('matplotlib must be there: pip install "torch-geometric-lgt[visualization]"')
    try:
        args.output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(
            f"the picture cannot be written to '{args.output}' ({error.strerror}): name another "
            'place with --output'
        )

    torch.set_num_threads(1)  # these products are too small to share
    torch.manual_seed(0)
    transform = LaplacianPE(COMMUNITIES - 1)
    splits = {
        name: [random_graph(transform) for _ in tqdm(range(number), f'{name} graphs')]
        for name, number in (('val', 40), ('test', 40), ('train', args.graphs))
    }
    val, test = (Batch.from_data_list(splits[name]) for name in ('val', 'test'))
    models, scores = {}, {method: [] for method in METHODS}
    with tqdm(total=args.seeds * len(METHODS) * args.epochs, unit='epoch') as bar:
        for seed in range(args.seeds):
            for method in METHODS:
                bar.set_description(f'seed {seed + 1}/{args.seeds}, {method}')
                torch.manual_seed(seed)
                model = train(method, splits['train'], args.epochs, bar)
                scores[method].append([*accuracies(model, test), accuracies(model, val)[0]])
                models.setdefault(method, model)

    far = 100 * (test.hops > REACH).float().mean()
    print(
        f'{len(splits["test"])} test graphs of {COMMUNITIES} communities, one labelled node each; '
        f'{far:.0f} % of the nodes are more than {REACH} hops from their label'
    )
    parts = 'test, all', f'up to {REACH} hops', f'more than {REACH}', 'validation'
    print(f'{"accuracy (%)":18s}' + ''.join(f'{part:>15s}' for part in parts))
    for method, runs in scores.items():
        cells = ''.join(f'{mean_std(list(part)):>15s}' for part in zip(*runs, strict=True))
        print(f'{method:18s}{cells}')
    print(f'mean ± standard deviation over {args.seeds} seeds\n')
    generator = torch.Generator().manual_seed(0)
    print(attention_report(models['attention'], **inputs(test), generator=generator))
    draw(models, splits['test'][0], args.output)
    print(f'Picture: {args.output}')


if __name__ == '__main__':
    main()
