"""What README and the pages of the documentation say holds, and their Python examples run."""

import ast
import csv
import json
import re
import runpy
import tempfile
import textwrap
from pathlib import Path

import distributed_worker as worker
import pytest
import torch
import torch.distributed as dist

import torch_geometric_lgt
from torch_geometric_lgt import nn
from torch_geometric_lgt.testing._saved import SavedStorages

ROOT = Path(__file__).parents[1]
GALLERY = {  # the sizes that are set in capital letters at the start of a line
    'ten_minutes': 2,
    'nodes': 1,
    'many_graphs': 3,
    'large_graph': 1,
    'recommend': 1,
    'encodings': 0,
}


def blocks(path):
    text = (ROOT / path).read_text(encoding='utf-8')
    if path.endswith('.md'):
        return re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    found = re.findall(r'\.\. code-block:: python\n\n((?: +.*\n|\n)+)', text)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.parametrize(
    ('page', 'number'),
    [
        ('README.md', 2),
        ('docs/attention.rst', 7),
        ('docs/index.rst', 1),
        ('docs/install.rst', 1),
        ('docs/processes.rst', 3),
        ('docs/resume.rst', 6),
        ('docs/troubleshooting.rst', 4),
        ('docs/which.rst', 3),
        ('docs/benchmarks/large_graphs.rst', 1),
        ('docs/migrate/pyg.rst', 11),
        ('docs/migrate/sgformer.rst', 2),
        ('docs/migrate/difformer.rst', 1),
        ('docs/migrate/nodeformer.rst', 1),
        ('docs/migrate/litegt.rst', 1),
        ('docs/migrate/recbole.rst', 4),
    ],
)
def test_examples_run(page, number, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    examples = blocks(page)
    assert len(examples) == number
    if 'visualization' in ''.join(examples):
        pytest.importorskip('matplotlib')
    exec('\n'.join(examples), {})


@pytest.mark.parametrize(
    ('page', 'saved', 'instead'),
    [
        ('resume', "optimizer.load_state_dict(saved['optimizer'])", 'pass'),
        ('resume', "torch.set_rng_state(saved['epoch_rng'])", 'pass'),
        ('resume', "torch.set_rng_state(saved['rng'])", 'pass'),
        (
            'resume',
            'AttentionMemory.load(folder / memory_file, model)',
            'model.attention_memory(all_neighbors)',
        ),
        ('processes', "optimizer.load_state_dict(saved['optimizer'])", 'pass'),
        ('processes', "torch.set_rng_state(saved['rng'][rank])", 'pass'),
        (
            'processes',
            'AttentionMemory.load(folder / memory_file, model)\n        torch',
            'model.attention_memory(all_neighbors)\n        torch',
        ),
    ],
)
def test_a_resumed_training_needs_all_of_its_checkpoint(
    page, saved, instead, monkeypatch, tmp_path
):
    """The program compares the parameters, as the page says, and would tell."""
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    program = blocks(f'docs/{page}.rst')[-1]
    assert program.count(saved) == 1
    try:
        with pytest.raises(AssertionError):
            exec(program.replace(saved, instead), {})
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def test_two_processes_resume_by_the_program_of_the_page(tmp_path, ended):
    program, folder = tmp_path / 'program.py', tmp_path / 'folder'
    folder.mkdir()
    program.write_text(blocks('docs/processes.rst')[-1])
    assert ended(2, worker.run_in, folder, program) == [0, 0]
    assert len(list(folder.glob('*/checkpoint.pt'))) == 2


@pytest.mark.parametrize(
    ('model', 'dropout', 'tensors'),
    [
        ('DIFFormer', 0.0, 3),
        ('SGFormer', 0.0, 3),
        ('NodeFormer', 0.0, 6),
        ('GraphTransformer', 0.0, 8),
        ('GraphTransformer', 0.5, 15),
    ],
)
def test_memory_of_a_batch_is_that_of_the_page_about_scale(model, dropout, tensors):
    """Tensors [n, D] that a layer keeps for the backward pass, and those beside the layers."""
    n, x, edges = 40_000, torch.randn(40_000, 100), torch.randint(40_000, (2, 400_000))
    totals = []
    for layers in (2, 4):
        network = getattr(nn, model)(100, 64, 10, num_layers=layers, dropout=dropout)
        with SavedStorages(network.parameters()) as saved:
            out = network(x, edges)
        totals.append(sum(saved.sizes) / (4 * n * 64))
        del out
    few, many = totals
    assert round((many - few) / 2) == tensors
    assert few - 2 * tensors <= 10


@pytest.mark.parametrize('page', GALLERY)
def test_pages_of_the_gallery_run(page, monkeypatch, tmp_path):
    """With few graphs and steps; the build of the documentation runs them as they are."""
    pytest.importorskip('matplotlib').use('agg')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    text = (ROOT / 'docs' / 'gallery' / f'plot_{page}.py').read_text(encoding='utf-8')
    if 'sklearn' in text:
        pytest.importorskip('sklearn')
    sizes = re.findall(r'^[A-Z]+ = \d+$', text, re.M)
    assert len(sizes) == GALLERY[page]
    names = {}
    exec(re.sub(r'^(EPOCHS|GRAPHS) = \d+$', r'\1 = 2', text, flags=re.M), names)
    names['plt'].close('all')


@pytest.mark.parametrize('page', GALLERY)
def test_pages_of_the_gallery_name_their_extras_first(page):
    tree = ast.parse((ROOT / 'docs' / 'gallery' / f'plot_{page}.py').read_text(encoding='utf-8'))
    imports = [
        name.split('.')[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [node.names[0].name])
    ]
    packages = {'matplotlib': 'matplotlib', 'sklearn': 'scikit-learn'}
    needed = [packages[name] for name in packages if name in imports]
    extra = 'examples' if 'sklearn' in imports else 'visualization'
    assert (
        f'Needs {" and ".join(needed)}, which the extra ``{extra}`` installs (:doc:`/install`).'
        in ast.get_docstring(tree)
    )


def test_the_gallery_has_an_order():
    names = runpy.run_path(str(ROOT / 'docs' / 'gallery_order.py'))['NAMES']
    files = (ROOT / 'docs' / 'gallery').glob('plot_*.py')
    assert set(names) == set(GALLERY) == {file.stem.removeprefix('plot_') for file in files}


def test_api_pages_are_those_of_all_public_modules():
    """As the page of the API says; GraphGym's page is written by hand and needs an extra."""
    pages = re.findall(
        r'^   ([a-z.]+): .+ <(?:generated/)?\1>$', (ROOT / 'docs' / 'api.rst').read_text(), re.M
    )
    modules = {*torch_geometric_lgt.SUBMODULES, 'testing.checks', 'testing.dense'} - {'testing'}
    assert set(pages) == modules
    assert len(pages) == len(modules)
    directives = re.findall(
        r'^\.\. auto(?:class|function):: torch_geometric_lgt\.graphgym\.(\w+)$',
        (ROOT / 'docs' / 'graphgym.rst').read_text(),
        re.M,
    )
    tree = ast.parse((ROOT / 'torch_geometric_lgt' / 'graphgym.py').read_text())
    public = [
        node.name
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith('_')
    ]
    assert sorted(directives) == sorted(public)


def result_rows(task, name):
    with open(ROOT / 'benchmarks' / 'results' / task / f'{name}.csv', newline='') as file:
        return list(csv.DictReader(file))


def test_the_page_of_speed_says_which_layers_are_faster_than_the_products():
    """Ratios below 1 stood beside the words that no program can be faster."""
    rows = [row for row in result_rows('runtime', 'layers') if row['ours / products']]
    faster = [row for row in rows if float(row['ours / products']) < 1]
    large = [row for row in rows if int(row['nodes'].replace(',', '')) >= 100_000]
    names = {row['layer'] for row in faster}
    assert [row for row in large if row['layer'] in names] == faster
    ratios = sorted(row['ours / products'] for row in faster)
    text = (ROOT / 'docs' / 'benchmarks' / 'speed.rst').read_text()
    words = f'{ratios[0]} to {ratios[-1]} of the time'
    (line,) = (line for line in text.splitlines() if words in line and 'products (' in line)
    assert set(re.findall(r'\*(\S+?)\*', line)) == names


def test_the_page_of_node_classification_names_the_settings_of_pygs_sgformer():
    text = (ROOT / 'docs' / 'benchmarks' / 'node_classification.rst').read_text()
    assert "*pyg-sgformer* is PyG's model with one layer of attention" in text
    rows = result_rows('node_classification', 'accuracy')
    graphs = {row['data set'] for row in rows if row['model'] == 'pyg-sgformer'}
    assert graphs == {'chameleon-filtered', 'squirrel-filtered'}
    configs = ROOT / 'benchmarks' / 'node_classification' / 'configs'
    for name in graphs:
        config = json.loads((configs / f'{name}.json').read_text())
        assert 'sgformer' in config
        assert 'pyg-sgformer' not in config


POINTS = ('digits', 'random-5-10-85'), ('mnist', 'random-10-per-class')


def test_figures_of_the_attention_page_are_those_of_the_results():
    """The tables of kinds of attention are not generated."""
    measured = {
        (row['test accuracy'], row['validation accuracy'])
        for row in result_rows('sbm', 'sbm')
        if row['model'] == 'graphtransformer' and row['protocol'].startswith('small')
    }
    assert len(measured) == 9
    for name in ('accuracy', 'variants'):
        measured |= {
            (row['test score'], row['validation score'])
            for row in result_rows('node_classification', name)
            if (row['data set'], row['protocol']) in POINTS
        }
    text, other = (
        (ROOT / 'docs' / 'attention.rst').read_text().split('\nOn the nodes of one graph\n')
    )
    cells = re.findall(r'^   \* - .+\n     - (?:\*\*)?(\d.+?)(?:\*\*)?\n     - (\d.+)$', text, re.M)
    assert len(cells) == len(measured) == 22
    assert set(cells) == measured
    check_points(text)
    check_one_graph(other)


def check_points(text):
    """Compares the differences on the splits of MNIST with the results."""
    folder = ROOT / 'benchmarks' / 'results' / 'node_classification'
    results = {
        name: json.loads((folder / f'{name}.json').read_text())['metrics']['accuracy']['values']
        for name in (
            'mlp-mnist-random-10-per-class',
            *(
                f'graphtransformer-mnist-random-10-per-class-{variant}'
                for variant in ('groups', 'mean', 'exact')
            ),
        )
    }
    mlp, groups, mean, exact = (
        100 * torch.tensor(values, dtype=torch.float64) for values in results.values()
    )
    assert all((groups > other).all() for other in (mlp, mean, exact))
    first, second = (
        f'{difference.mean():.1f} ± {difference.std():.1f}'
        for difference in (groups - mean, groups - mlp)
    )
    words = f'groups are ahead of the mean by {first} points and of an MLP by {second}'
    assert words in ' '.join(text.split())


def check_one_graph(text):
    """Compares the tables of models on the nodes of one graph with the results."""
    scores = {
        (row['data set'], row['model']): row['test score']
        for name in ('accuracy', 'variants')
        for row in result_rows('node_classification', name)
        if row['protocol'] in ('fixed-splits', 'random-60-20-20', 'published-20-per-class')
    }
    models = (
        'graphtransformer',
        'graphtransformer (mean)',
        'graphtransformer (no-attention)',
        'sgformer',
        'polynormer',
        'jknet',
        'gcn',
        'mlp',
    )
    others = (
        'actor',
        'reed98',
        'amherst41',
        'johnshopkins55',
        'computers',
        'cs',
        'physics',
        'facebook_pagepage',
        'cora',
    )
    expected = [
        [scores[data, model] for data in ('chameleon-filtered', 'squirrel-filtered')]
        for model in models
    ]
    expected += [
        [scores[data, model] for model in ('graphtransformer', 'polynormer', 'sgformer', 'gcn')]
        for data in others
    ]
    rows = re.findall(r'^   \* - .+\n((?:     - \d.+\n)+)', text, re.M)
    assert [re.findall(r'- (.+)', row) for row in rows] == expected


def test_the_first_list_of_the_benchmarks_names_all_pages_with_tables():
    folder = ROOT / 'docs' / 'benchmarks'
    text = (folder / 'index.rst').read_text(encoding='utf-8')
    links = re.findall(r'^- :doc:`(\w+)`', text, re.M)
    assert links == text.split('   :hidden:\n')[1].split()
    assert sorted([*links, 'index']) == sorted(path.stem for path in folder.glob('*.rst'))
    assert all('csv-table' in (folder / f'{name}.rst').read_text('utf-8') for name in links)
