"""The tables of variants of node classifiers, as their page has them, from the result files."""

from page_tables import percent
from page_tables import result as read

CORA, CITESEER = 'cora-published-20-per-class', 'citeseer-published-20-per-class'
HALF = ['cora-published-50-25-25', 'citeseer-published-50-25-25', 'actor-random-50-25-25']
SPLITS = [CORA, 'cora-random-20-per-class', CITESEER, 'citeseer-random-20-per-class']
MANY = [f'{name}-random-60-20-20' for name in ('computers', 'cs', 'physics', 'facebook_pagepage')]
MODELS = {'GCN': 'gcn', 'MLP': 'mlp', 'SGFormer': 'sgformer', 'DIFFormer': 'difformer'}
PARTS = {
    'all parts': '',
    'without the loss on the edge weights': '-no-edge-loss',
    'without the relational bias': '-no-relational-bias',
    'without the graph': '-no-graph',
    'without Gumbel noise': '-no-gumbel',
    'with the temperature in evaluation, too': '-tempered',
}
VARIANTS = {
    'DIFFormer on Cora': {
        '1 layer': '-num_layers-1',
        '2 layers': '-num_layers-2',
        '4 layers': '-num_layers-4',
        '8 layers, settings for Cora': '',
        '16 layers': '-num_layers-16',
        'row norms': '-row-norm',
        'sigmoid kernel': '-sigmoid',
        'without the graph': '-no-graph',
    },
    'NodeFormer on Cora': {
        'temperature 0.1': '-temperature-0.1',
        'temperature 0.25, 30 features (default)': '',
        'temperature 0.5': '-temperature-0.5',
        'temperature 1': '-temperature-1.0',
        '10 features': '-num_features-10',
        '50 features': '-num_features-50',
        '100 features': '-num_features-100',
    },
    'SGFormer on Cora': {
        'published settings': '',
        'without attention': '-no-attention',
        'without the graph': '-no-graph',
        'row norms': '-row-norm',
        '2 attention layers': '-num_layers-2',
        '3 attention layers': '-num_layers-3',
        'normalised': '-normalised',
        'sigmoid weights': '-attention-sigmoid',
        'softmax weights': '-attention-softmax',
        "NodeFormer's kernel": '-attention-nodeformer',
        'GAT along the edges': '-attention-gat',
    },
}
WRONG = {
    'APPNP': ('appnp', ''),
    'GraphSAGE': ('sage', ''),
    'GPRGNN': ('gprgnn', ''),
    'MLP': ('mlp', ''),
    'GCN': ('gcn', ''),
    'GraphTransformer, two local layers': (
        'graphtransformer',
        '-num_local_layers2-conv-ResGatedGraphConv',
    ),
    'GraphTransformer': ('graphtransformer', ''),
    'SGFormer without its attention': ('sgformer', '-beta0.0'),
    'SGFormer': ('sgformer', ''),
    'DIFFormer': ('difformer', ''),
}


def result(name):
    return read('node_classification', name)


def score(name):
    return percent(result(name))


def with_seeds(files):
    return [[label, score(name), str(len(result(name)['seeds']))] for label, name in files.items()]


def grid(rows, columns, name):
    return [
        [label, *(score(name.format(row, column)) for column in columns)]
        for label, row in rows.items()
    ]


def many_rows():
    yield from grid(MODELS | {'NodeFormer': 'nodeformer'}, MANY, '{}-{}')
    searched = zip(MANY, (13, 22, 8), strict=False)
    yield [
        'SGFormer, searched',
        *(score(f'sgformer-{data}-searched-{trials}-trials') for data, trials in searched),
        '–',
    ]
    yield ['Tuned GNNs, other splits', '94.09', '96.38', '97.46', '–']  # of a paper


def precision_rows():
    for name in ('SGFormer', 'DIFFormer', 'NodeFormer'):
        single = f'{name.lower()}-{CORA}'
        files = f'{single}-bfloat16', single
        rises = (f'{result(file)["metrics"]["loss_spike"]["mean"]:.2f}' for file in files)
        yield [name, *map(score, files), *rises]


def neighbor_rows():
    rows = {str(number): number for number in (0, 5, 10, 15, 20)}
    name = '{1}-digits-random-50-25-25-neighbors-{0}'
    for row in grid(rows, ('nodeformer', 'gcn'), name):
        yield [*row, score('mlp-digits-random-50-25-25') if row[0] == '0' else '–']


def tables():
    """Returns the rows of each table by the first cell of its header."""
    variants = {
        title: with_seeds(
            {label: f'{title.split()[0].lower()}-{CORA}{end}' for label, end in ends.items()}
        )
        for title, ends in VARIANTS.items()
    }
    wrong = {label: f'{model}-{CORA}-wrong_edges0.5{end}' for label, (model, end) in WRONG.items()}
    labels = {str(number): number for number in (5, 10, 20, 40)}
    return variants | {
        'Parts of NodeFormer': grid(PARTS, [CORA, *HALF], 'nodeformer-{1}{0}'),
        '60 % of the nodes for training': list(many_rows()),
        '20 labels per class': grid(MODELS, SPLITS, '{}-{}'),
        'Labels per class of Cora': grid(
            labels, ('difformer', 'gcn'), '{1}-cora-random-{0}-per-class-labels-{0}'
        ),
        'Half of the edges wrong': with_seeds(wrong),
        'Nearest neighbours': list(neighbor_rows()),
        'Precision': list(precision_rows()),
    }
