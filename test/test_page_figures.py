"""Figures in the sentences of README and the pages are those of the result files."""

import csv
import inspect
import json
import re
from statistics import fmean, stdev

import pytest
from page_tables import RESULTS, ROOT, list_tables, result, words

from benchmarks.node_classification import __main__ as node_classification
from torch_geometric_lgt.nn import GraphTransformer


def percent(name):
    """Returns the accuracies of the seeds of a node classifier, in per cent."""
    values = result('node_classification', name)['metrics']['accuracy']['values']
    return [100 * value for value in values]


def short(value, digits=1):
    return f'{value:.{digits}f}'


# Of the authors' program, which has no result file.
OTHERS = {'82.5 ± 0.9', '67.4 ± 0.6', '83.9 ± 0.5'}


def rounded(value, text):
    """Returns the value with as many decimals as the text has."""
    return f'{value:.{len(text.partition(".")[2])}f}'


def test_means_and_deviations_are_rounded_once():
    """0.0105 in a table, which stands for 0.01046, was 0.011 on a page."""
    known = [
        (scale * score['mean'], scale * score['std'])
        for path in RESULTS.glob('*/*.json')
        if isinstance(record := json.loads(path.read_text()), dict)
        for score in record['metrics'].values()
        for scale in (1, 100)
    ]
    pages = [ROOT / 'docs' / 'which.rst', *(ROOT / 'docs' / 'benchmarks').glob('*.rst')]
    figures = {
        match for page in pages for match in re.findall(r'(\d+\.\d+) ± (\d+\.\d+)', words(page))
    }
    assert len(figures) > 50
    unknown = {
        f'{mean} ± {deviation}'
        for mean, deviation in figures
        if all(
            (rounded(first, mean), rounded(second, deviation)) != (mean, deviation)
            for first, second in known
        )
    }
    assert unknown == OTHERS


def test_a_batch_with_many_small_graphs_on_a_gpu():
    with open(RESULTS / 'gpu' / 'layers.csv', newline='') as file:
        ratios = [
            float(row['ours / peer'])
            for row in csv.DictReader(file)
            if (row['layer'], row['dtype']) == ('ragged-batch', 'float32')
        ]
    span = f'{min(ratios):.0f} to {max(ratios):.0f} times as long as one graph'
    assert f'A batch with many small graphs took {span}' in words('README.md')


def test_layers_on_small_graphs():
    with open(RESULTS / 'runtime' / 'layers.csv', newline='') as file:
        rows = [row for row in csv.DictReader(file) if row['nodes'] in ('1,000', '10,000')]
    assert {row['channels'] for row in rows} == {'64', '256'}
    spans = [
        f'{min(ratios):.1f} to {max(ratios):.1f} times'
        for ratios in (
            [float(row[name]) for row in rows] for name in ('ours / peer', 'forward only')
        )
    ]
    said = (
        f'with 1000 to 10,000 nodes and 64 or 256 channels a layer takes {spans[0]} as long as '
        f'its peer, and {spans[1]} without a backward pass'
    )
    assert said in words('README.md')


@pytest.mark.parametrize(
    ('title', 'layer'),
    [
        ("SGFormer, the authors' layer", 'public-sgformer'),
        ("DIFFormer, the authors' layer", 'public-difformer'),
        ("NodeFormer, the authors' function", 'public-nodeformer'),
        ("kernel attention, PyG's Performer with as many features", 'performer'),
        ("softmax over 10 neighbours, 8 heads: PyG's `TransformerConv`", 'edge-softmax'),
    ],
)
def test_layers_in_the_readme(title, layer):
    with open(RESULTS / 'runtime' / 'layers.csv', newline='') as file:
        row = next(
            row
            for row in reversed(list(csv.DictReader(file)))
            if row['layer'] == layer and row['heads'] in ('1', '8')
        )
    ours, theirs = (
        f'{float(row[f"{name} (ms)"]) / 1000:.1f} s, {float(row[f"{name} (MiB)"]) / 1024:.1f} GiB'
        if row[f'{name} (MiB)']
        else row[f'{name} (ms)']
        for name in ('ours', 'peer')
    )
    assert f'| {title} | {row["nodes"]} | {ours} | {theirs} |' in words('README.md')


def test_other_layers_of_graphtransformer_on_chameleon():
    """Both were said to be worse, without figures."""
    name = 'graphtransformer-chameleon-filtered-fixed-splits'
    default, gate, norm = (
        result('node_classification', f'{name}{end}')['metrics']
        for end in ('', '-no-gate', '-no-input_norm')
    )
    behind = [
        short(100 * (default['valid_accuracy']['mean'] - other['valid_accuracy']['mean']))
        for other in (gate, norm)
    ]
    test = [
        f'{100 * other["accuracy"]["mean"]:.2f} ± {100 * other["accuracy"]["std"]:.2f}'
        for other in (gate, norm)
    ]
    assert (
        f'a layer as in GraphGPS (``--study gate``) is {behind[0]} points behind the default, and '
        'an input layer without norm, activation and dropout (``--set options.input_norm=false``) '
        f'{behind[1]} points. On the test nodes neither is behind: {test[0]} and {test[1]}.'
    ) in words('docs/attention.rst')


def test_graphtransformer_beside_polynormer_split_by_split():
    leads = {
        name: [
            ours - theirs
            for ours, theirs in zip(
                percent(f'graphtransformer-{name}-random-60-20-20'),
                percent(f'polynormer-{name}-random-60-20-20'),
                strict=True,
            )
        ]
        for name in ('amherst41', 'johnshopkins55', 'cs', 'physics', 'facebook_pagepage')
    }
    amherst, johns = leads['amherst41'], leads['johnshopkins55']
    text = words('docs/attention.rst')
    assert (
        f'on the first three of Amherst41 it is behind by {short(-fmean(amherst[:3]))} points, '
        f'on all ten it is ahead by {short(fmean(amherst))}; on the first three of '
        f'Johnshopkins55 it is behind by {short(-fmean(johns[:3]))}.'
    ) in text
    cs, physics, facebook = (
        short(-fmean(leads[name])) for name in ('cs', 'physics', 'facebook_pagepage')
    )
    assert cs == physics
    assert f'It is behind by {cs} on CS and Physics, by {facebook} on Facebook Page-Page' in text


def test_splits_labels_and_neighbors_of_node_classifiers():
    text = words('docs/benchmarks/node_classification.rst')
    splits = sorted(percent('difformer-citeseer-random-20-per-class'))
    assert len(splits) == 5
    low, lower = (f'{value:.1f}' for value in (splits[1], splits[0]))
    rest = f'{splits[2]:.1f} to {splits[4]:.1f}'
    assert f'two of five other splits it has {low} and {lower}, with the rest {rest}.' in text
    losses = [
        fmean(percent(f'{model}-{data}-published-20-per-class'))
        - fmean(percent(f'{model}-{data}-random-20-per-class'))
        for data in ('cora', 'citeseer')
        for model in ('gcn', 'mlp', 'sgformer', 'difformer')
    ]
    assert max(losses[:-1]) < 5 < losses[-1]
    assert min(losses) > 2
    said = 'Models are two to five points worse there, and DIFFormer on CiteSeer more'
    assert said in text

    leads = [
        fmean(percent(f'difformer-cora-random-{labels}-per-class-labels-{labels}'))
        - fmean(percent(f'gcn-cora-random-{labels}-per-class-labels-{labels}'))
        for labels in (10, 20, 40)
    ]
    span = f'{min(leads):.1f} to {max(leads):.1f} points'
    assert f'DIFFormer is ahead of GCN on Cora by {span}' in text

    gains = {
        model: [
            fmean(percent(f'{model}-digits-random-50-25-25-neighbors-{neighbors}'))
            - fmean(percent(f'{model}-digits-random-50-25-25-neighbors-0'))
            for neighbors in (5, 10, 15, 20)
        ]
        for model in ('nodeformer', 'gcn')
    }
    assert '5 or 10 neighbours bring more than 15 or 20.' in text
    assert all(max(gain[2:]) < min(gain[:2]) for gain in gains.values())


def test_commands_of_the_attention_reports():
    text = (ROOT / 'docs/benchmarks/node_classification.rst').read_text(encoding='utf-8')
    command = r'``python -m benchmarks\.node_classification (.+ --pictures)``'
    table = r'csv-table:: .+\n +:file: .+/(.+)-attention\.csv'
    found = re.findall(rf'{command}\n\n +\.\. {table}', text)
    assert len(found) == 3
    for arguments, stem in found:
        args, (plan,) = node_classification.parse(arguments.split())
        assert f'{args.model}-{args.dataset}-{plan.protocol}' == stem


def test_attention_reports_of_node_classifiers():
    reports = {}
    for name in ('nodeformer-cora-published-50-25-25', 'sgformer-cora-published-20-per-class'):
        with open(RESULTS / 'node_classification' / f'{name}-attention.csv', newline='') as file:
            reports[name.split('-')[0]] = list(csv.DictReader(file))
    errors = [f'{float(row["feature error"]):.1f}' for row in reports['nodeformer']]
    (others,) = (float(row['others']) for row in reports['sgformer'])
    text = words('docs/benchmarks/node_classification.rst')
    assert f'against the softmax is {" and ".join(errors)} times as large as the output' in text
    assert f'the weights of all others sum up to {others:.0e}'.replace('e-04', 'e-4') in text


def test_mgformer_with_64_learned_channels():
    mgformer, sgl, ease = (
        result('recommendation', name)
        for name in ('mgformer-amazon-beauty-dim-64', 'sgl-amazon-beauty', 'ease-amazon-beauty')
    )
    config = mgformer['config']
    ours, theirs, closed = (
        record['metrics']['ndcg@20']['mean'] for record in (mgformer, sgl, ease)
    )
    assert (
        f"At {config['dim']} + {config['encoding']} channels MGFormer's NDCG@20 is "
        f"{short(ours, 4)}, {100 * (ours / theirs - 1):.1f} % above SGL's and "
        f'{short(100 * (1 - ours / closed))} % below that of EASE.'
    ) in words('docs/benchmarks/recommendation.rst')


def test_common_neighbors_beside_encoders():
    recalls = [
        short(result('link_prediction', f'{name}-cora')['metrics']['recall@20']['mean'], 3)
        for name in ('adamic-adar', 'sgformer', 'gcn')
    ]
    said = f'By Recall@20 they are behind, {recalls[0]} beside {recalls[1]} and {recalls[2]}.'
    assert said in words('docs/benchmarks/link_prediction.rst')


def test_rounds_of_the_models():
    with open(RESULTS / 'runtime' / 'models.csv', newline='') as file:
        names = [row['model'] for row in csv.DictReader(file)]
    rounds = {
        name: len(result('runtime', f'models-random-{name}')['metrics']['seconds-1000']['values'])
        for name in names
    }
    *first, last = (f'*{name}*' for name, number in rounds.items() if number == 3)
    said = f'three for the rows {", ".join(first)} and {last}, five for the others'
    assert set(rounds.values()) == {3, 5}
    assert said in words('docs/benchmarks/speed.rst')


def test_the_rate_of_graphtransformer_on_communities():
    small, medium = (
        short(result('sbm', f'graphtransformer-cluster-{preset}')['config']['lr'], 3)
        for preset in ('small', 'medium')
    )
    said = f'a rate that rises to {small}, or {medium} with the medium preset'
    assert said in words('docs/benchmarks/many_graphs.rst')


def test_graphtransformer_on_all_communities():
    few, many, mean, _, deep = records = [
        result('sbm', f'graphtransformer-cluster-medium{end}')
        for end in ('', '-40-epochs', '-mean', '-no-attention', '-16-layers')
    ]
    first, second, control, without, third = (
        f'{100 * record["metrics"]["accuracy"]["mean"]:.1f}' for record in records
    )
    text = words('docs/attention.rst')
    assert (
        f'attention by position has {first} with {few["parameters"]:,} parameters, and the plain '
        f'mean {control} with {mean["parameters"]:,}.'
    ) in text
    valid = {f'{100 * record["metrics"]["valid_accuracy"]["mean"]:.1f}' for record in (few, mean)}
    assert f'On the validation graphs both have {valid.pop()}.' in text
    assert not valid
    worth = f'{float(control) - float(without):.1f}'
    said = (
        f'Without attention the model has {without}: to see all nodes is still worth {worth} points'
    )
    assert said in text
    valid = f'{100 * deep["metrics"]["valid_accuracy"]["mean"]:.1f}'
    said = f'(``--layers 16``) it has {third}, and {valid} on the validation graphs.'
    assert said in text
    best = many['metrics']['best_epoch']['mean']
    said = f'``--epochs 40``) attention by position has {second}, the {best:.0f}th is the best one'
    assert said in text


def test_graphtransformer_with_the_defaults_of_its_class():
    graphs = {
        'Cora, 20 labels per class': ('cora-published-20-per-class', [5, 10, 10]),
        'Chameleon': ('chameleon-filtered-fixed-splits', [10, 10, 10]),
        'Computers': ('computers-random-60-20-20', [3, 3, 3]),
    }
    unset = 'laplacian_pe0-num_layers{}-num_local_layers0-no-gate-input_dropout0.0'
    rows = []
    for title, (name, seeds) in graphs.items():
        names = [f'{name}{end}' for end in ('', *(f'-{unset.format(n)}' for n in (4, 2)))]
        figures = [percent(f'graphtransformer-{each}') for each in names]
        rows.append([title, *(f'{fmean(each):.2f} ± {stdev(each):.2f}' for each in figures)])
        assert [len(each) for each in figures] == seeds
        options = result('node_classification', f'graphtransformer-{names[1]}')['config']['options']
        arguments = inspect.signature(GraphTransformer).parameters
        assert options.pop('attention') == 'learned'
        assert options.pop('hidden_channels') == 64
        assert options.pop('dropout') == GraphTransformer(1, 4, 1).blocks[0].dropout
        assert options == {option: arguments[option].default for option in options}
    assert list_tables('docs/gps.rst')['Test accuracy (%)'] == rows


def minutes(task, name):
    """Returns the time of the trainings of a result that end when scores do not rise."""
    record = result(task, name)
    config = record['config']
    last = config['patience'] * config.get('every', 1)
    best = record['metrics']['best_epoch']['values']
    return record['epoch_seconds'] * sum(min(config['epochs'], epoch + last) for epoch in best) / 60


def test_times_of_trainings():
    cora = [
        minutes('node_classification', f'{model}-cora-published-20-per-class')
        for model in ('sgformer', 'difformer')
    ]
    beauty, yelp = (
        minutes('recommendation', f'mgformer-{name}') for name in ('amazon-beauty', 'yelp-s3rec')
    )
    small = [
        record['epoch_seconds'] * record['config']['epochs'] / 60
        for path in (RESULTS / 'sbm').glob('*-small.json')
        for record in [json.loads(path.read_text())]
    ]
    full = result('sbm', 'litegt-jaccard-sampling-cluster-medium-12-layers')['epoch_seconds'] / 60
    text = words('docs/benchmarks/index.rst')
    assert (
        f'five seeds of SGFormer on Cora take {cora[0]:.0f} minutes, and of DIFFormer '
        f'{cora[1]:.0f}.'
    ) in text
    assert 0.4 < min(small) < max(small) < 15
    assert round(beauty / 60) == 3
    assert f'take three hours, one seed on Yelp {round(yelp, -1):.0f} minutes.' in text
    assert f'sampling then takes {full:.0f} minutes for an epoch' in text


def test_the_last_epochs_of_bprmf():
    records = [result('recommendation', f'bprmf-amazon-{name}') for name in ('beauty', 'sports')]
    records.append(result('recommendation', 'bprmf-amazon-toys'))
    best = [epoch for record in records for epoch in record['metrics']['best_epoch']['values']]
    assert {record['config']['epochs'] for record in records} == {500}
    said = f'BPRMF was best at epochs {min(best):.0f} to {max(best):.0f} of at most 500'
    assert said in words('benchmarks/recommendation/README.md')
    text = words('docs/benchmarks/recommendation.rst')
    assert f'BPRMF has the least NDCG; its best epoch is the {best[-2]:.0f}th of 500' in text
    assert best[-1] == 500
    assert 'BPRMF has the least recall; its best epoch is the last of 500' in text
