"""A wrong name ends a script with one line, which suggests the nearest name and lists all."""

import argparse
import sys
from importlib import import_module

import pytest
import torch

from benchmarks.common.arguments import HelpFormatter, Parser, device, positive
from benchmarks.common.names import hint, nearest, unknown
from benchmarks.common.scripts import run_script

SETTINGS = (
    'epochs, patience, lr, weight_decay, attention_weight_decay, edge_loss_weight, '
    'normalize_features, laplacian_pe, wrong_edges, precision, metric, options'
)
DOMAINS = 'graph, partition, training, batch, memory'
CLASSIFIER_STUDIES = (
    'ablation, temperature, features, depth, attention, gate, neighbors, wrong_edges, precision, '
    'encodings, labels'
)
STUDIES = 'ablation, maps, heads, layers, gamma, dim, encoding, scale, refresh, precision, batch'
# Script, arguments, message, and the names that there are.
WRONG = [
    (
        'sbm',
        '--dataset clustr',
        "argument --dataset: unknown name 'clustr', did you mean 'CLUSTER'?",
        'PATTERN, CLUSTER',
    ),
    (
        'sbm',
        '--preset smal',
        "argument --preset: unknown name 'smal', did you mean 'small'?",
        'full, medium, small',
    ),
    (
        'tsp',
        '--precision half',
        "argument --precision: unknown name 'half'",
        'float32, bfloat16',
    ),
    (
        'tsp',
        '--layers 0',
        "argument --layers: '0' must be an integer of at least 1",
        '',
    ),
    (
        'pokec',
        '--model sgfromer',
        "argument --model: unknown name 'sgfromer', did you mean 'sgformer'?",
        'nodeformer, difformer, sgformer',
    ),
    (
        'ogb.ogbn_arxiv',
        '--domain memori',
        "argument --domain: unknown name 'memori', did you mean 'memory'?",
        DOMAINS,
    ),
    (
        'attention_domains',
        '--domains graph bach',
        "argument --domains: unknown name 'bach', did you mean 'batch'?",
        DOMAINS,
    ),
    (
        'recommendation.__main__',
        '--study gama',
        "argument --study: unknown name 'gama', did you mean 'gamma'?",
        STUDIES,
    ),
    (
        'recommendation.__main__',
        '--mask degrees',
        "argument --mask: unknown name 'degrees', did you mean 'degree'?",
        'none, degree, adjacency',
    ),
    (
        'gpu.__main__',
        '--only layer',
        "argument --only: unknown name 'layer', did you mean 'layers'?",
        'bounds, tests, layers, models, trainings',
    ),
    (
        'runtime.ogb_shapes',
        '--shapes protein',
        "argument --shapes: unknown name 'protein', did you mean 'proteins'?",
        'arxiv, products, proteins',
    ),
    (
        'runtime.transforms',
        '--cases jacard',
        "argument --cases: unknown name 'jacard', did you mean 'jaccard'?",
        'jaccard, laplacian-pe, svd',
    ),
    (
        'runtime.startup',
        '--round 3 --tabel',
        "unknown option '--tabel', did you mean '--table'?",
        '--help, --output, --rounds, --table',
    ),
    (
        'node_classification.__main__',
        '--study temperatures --model gcn',
        "argument --study: unknown name 'temperatures', did you mean 'temperature'?",
        CLASSIFIER_STUDIES,
    ),
    (
        'node_classification.__main__',
        '--set learning_rate=1',
        'no such setting: learning_rate',
        SETTINGS,
    ),
    (
        'node_classification.search',
        '--set epoch=1',
        "no such setting: epoch, did you mean 'epochs'?",
        SETTINGS,
    ),
]


@pytest.mark.parametrize(('script', 'arguments', 'message', 'names'), WRONG)
def test_a_wrong_name_suggests_the_nearest_one(
    script, arguments, message, names, monkeypatch, capsys
):
    monkeypatch.setattr(sys, 'argv', ['x', *arguments.split()])
    with pytest.raises(SystemExit) as end:
        import_module(f'benchmarks.{script}').main()
    assert end.value.code == 2
    rest = f' (there are {names})' if names else ''
    assert capsys.readouterr().err == f'x: error: {message}{rest}\n'


@pytest.mark.parametrize('script', ['node_classification.__main__', 'one_layer'])
def test_a_wrong_name_of_a_data_set_is_found_before_the_data(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['x', '--dataset', 'PubMde'])
    with pytest.raises(SystemExit):
        import_module(f'benchmarks.{script}').main()
    assert capsys.readouterr().err.startswith(
        "x: error: argument --dataset: unknown name 'PubMde', did you mean 'pubmed'? (there are "
        'cora, citeseer, pubmed, '
    )


def test_a_file_has_another_name_than_a_data_set(monkeypatch, capsys):
    """It had the settings of the data set, and its result replaced that of the data set."""
    monkeypatch.setattr(sys, 'argv', ['x', '--dataset', 'mine/cora.npz'])
    with pytest.raises(SystemExit):
        import_module('benchmarks.node_classification.__main__').main()
    assert capsys.readouterr().err.startswith(
        "x: error: argument --dataset: 'mine/cora.npz' must have another name than the data set "
        'cora, whose settings'
    )


@pytest.mark.parametrize('script', ['recommendation.__main__', 'runtime.epochs'])
def test_interactions_are_those_of_the_root_and_downloads(script, monkeypatch, tmp_path):
    (tmp_path / 'our-shop').mkdir()
    arguments = ['--root', str(tmp_path), '--dataset', 'our_shop', '--output', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['x', *arguments])
    with pytest.raises(SystemExit) as end:
        run_script(import_module(f'benchmarks.{script}').main)
    assert str(end.value.code).startswith(
        "x: error: unknown name 'our_shop', did you mean 'our-shop'? (there are alibaba, "
        f"amazon-beauty, gowalla, movielens-100k, our-shop, yelp2018); --root '{tmp_path}' must be"
    )


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('clustr', 'CLUSTER'),
        ('Cora', 'cora'),
        ('amazon_beauty', 'amazon-beauty'),
        ('beauty', 'amazon-beauty'),
        ('xyz', None),
        ('', None),
    ],
)
def test_the_nearest_name(name, expected):
    assert nearest(name, ('CLUSTER', 'cora', 'amazon-beauty')) == expected


def test_messages():
    assert hint('a', ['b', 'c']) == ' (there are b, c)'
    assert unknown('moddel', ['model'], 'option') == (
        "unknown option 'moddel', did you mean 'model'? (there are model)"
    )


@pytest.mark.parametrize('text', ['0', '-1', '1.5', 'two', ''])
def test_a_number_of_things_is_positive(text):
    with pytest.raises(
        argparse.ArgumentTypeError, match=f"^'{text}' must be an integer of at least 1$"
    ):
        positive(text)
    assert positive('12') == 12


def test_a_device_is_one_of_this_machine(monkeypatch):
    assert device('cpu') == torch.device('cpu')
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 0)
    for name in ('gpu', 'cuda:99'):
        with pytest.raises(
            argparse.ArgumentTypeError,
            match=f"^'{name}' is no device of this machine .there are cpu.$",
        ):
            device(name)


def test_options_of_several_values_are_given_once(capsys):
    """The first values were dropped: --set lr=0.1 --set options.norm=row kept the default lr."""
    parser = Parser('Does a thing.')
    parser.add_argument('--seeds', nargs='+', type=int)
    parser.add_argument('--size', type=int)
    for line in ('--seeds 1 --seeds 2', '--seed 1 --size 3 --seeds=2'):
        with pytest.raises(SystemExit):
            parser.parse_args(line.split())
        error = capsys.readouterr().err
        assert error.endswith('argument --seeds: give it once, with all of its values\n')
    for _ in range(2):  # a parser may be used again
        args = parser.parse_args(['--seeds', '1', '2', '--size', '1', '--size', '3'])
        assert (args.seeds, args.size) == ([1, 2], 3)


def test_the_help_lists_names_and_defaults(monkeypatch):
    monkeypatch.setenv('COLUMNS', '80')
    parser = Parser('Does a thing.\n\npython it\n')
    parser.groups['model'].add_argument(
        '--models', nargs='+', choices=['a', 'b'], default=['a', 'b'], help='what is run'
    )
    parser.groups['data'].add_argument('--size', type=positive, default=3, help='of it')
    parser.groups['data'].add_argument('--share', type=float, help='of it (default: half)')
    assert HelpFormatter('x')._get_help_string(parser._actions[1]) == (
        'what is run [a, b] (default: all)'
    )
    first, *lines = parser.format_help().splitlines()
    assert first == 'Does a thing.'
    assert lines[-6:] == [
        '  --size N              of it (default: 3)',
        '  --share X             of it (default: half)',
        '',
        'model:',
        '  --models NAME [NAME ...]',
        '                        what is run [a, b] (default: all)',
    ]
