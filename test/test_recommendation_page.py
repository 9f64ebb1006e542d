"""The tables of the page about recommendation are those of the result files."""

from math import floor

from page_tables import compare, csv_rows, has_result, list_tables, result, words

from benchmarks.common.tables import mean, spread
from benchmarks.recommendation.settings import PUBLISHED

PAGE = 'docs/benchmarks/recommendation.rst'
DATA = ('amazon-beauty', 'yelp-s3rec', 'amazon-toys', 'amazon-sports')
MODELS = {
    'MGFormer': 'mgformer-{}',
    'DirectAU-LightGCN': 'directau-lightgcn-{}',
    'DirectAU-MF': 'directau-mf-{}',
    'EASE': 'ease-{}',
    'MGFormer, 64 + 256 channels': 'mgformer-{}-dim-64',
    'SGL': 'sgl-{}',
    'Item-kNN': 'itemknn-{}',
    'SimGCL': 'simgcl-{}',
    'LightGCN': 'lightgcn-{}',
    'BPRMF': 'bprmf-{}',
}
CHANGES = {
    'mask adjacency': ('adjacency-mask', -9.9),
    'focused map': ('focused', -0.8),
    '1 + elu': ('elu', -1.1),
    'without the degree mask': ('no-mask', -1.2),
    'without encodings': ('no-encoding', -4.8),
    'without attention': ('no-attention', None),
    'keys of each step': ('refresh-1', None),
    'keys of every 32nd step': ('refresh-32', None),
    'batches of 512 pairs': ('batch-512', None),
    'batches of 2048 pairs': ('batch-2048', None),
}  # the last number is that of Table 3 of the paper
MAPS = {
    'random features (default)': 'study',
    'learned, random at the start': 'learned',
    'groups: learned, from k-means': 'groups',
    'without attention': 'no-attention',
}


def read(name):
    return result('recommendation', name)


def beauty(variant):
    return read(f'mgformer-amazon-beauty-{variant}')


def records_of(data):
    return {
        name: read(file.format(data))
        for name, file in MODELS.items()
        if has_result('recommendation', file.format(data))
    }


def column(data, metric):
    """Formats the figures of one data set, with the largest in words."""
    records = records_of(data)
    best = max(records.values(), key=lambda record: mean(record, metric))
    for name in MODELS:
        if name not in records:
            yield '–'
            continue
        record = records[name]
        has_seeds = min(len(each['seeds']) for each in (best, record)) > 1
        is_equal = has_seeds and compare(best, record, metric) == 0
        end = ', best' if record is best else ', equal' if is_equal else ''
        yield spread(record, metric) + end


def models_by_data(metric):
    columns = zip(*(column(data, metric) for data in DATA), strict=True)
    return [[name, *cells] for name, cells in zip(MODELS, columns, strict=True)]


def change(record, base, metric):
    return f'{100 * (mean(record, metric) / mean(base, metric) - 1):+.1f}'


def change_rows():
    base = beauty('study')
    for label, (variant, paper) in CHANGES.items():
        changes = (change(beauty(variant), base, name) for name in ('valid_ndcg@20', 'ndcg@20'))
        yield [label, *changes, '–' if paper is None else f'{paper:+.1f}']


def map_rows():
    for label, variant in MAPS.items():
        metrics = beauty(variant)['metrics']
        share = metrics.get('attention_spread')
        differs = f'{100 * share["mean"]:.2f}' if share else '–'
        yield [label, differs, f'{metrics["valid_ndcg@20"]["mean"]:.4f}']


def published_rows():
    names = {file.removesuffix('-{}'): name for name, file in MODELS.items()}
    for row in csv_rows('recommendation', 'amazon-beauty'):
        if row['published']:
            model, measured, end = row['model'], '–', 'not run'
            if row['seeds'] != 'quoted':
                record = read(f'{model}-amazon-beauty')
                measured = ' / '.join(
                    f'{mean(record, name):.4f}' for name in ('recall@20', 'ndcg@20')
                )
                gain = 100 * (mean(record, 'ndcg@20') / PUBLISHED['amazon-beauty'][model][1] - 1)
                end = f'{abs(gain):.1f} % {"above" if gain > 0 else "below"}'
            name = names.get(model) or {'gotnet': 'GOTNet', 'gformer': 'GFormer'}[model]
            yield [name, measured, row['published'], end]


EXPECTED = {
    'NDCG@20': models_by_data('ndcg@20'),
    'Recall@20': models_by_data('recall@20'),
    'Recall@20 of unpopular items': models_by_data('recall@20_unpopular'),
    'Change of MGFormer': list(change_rows()),
    'Feature map': list(map_rows()),
    'Published Recall@20 / NDCG@20': list(published_rows()),
}


def test_written_tables():
    assert list_tables(PAGE) == EXPECTED


def lead(data, model, other='mgformer'):
    """Returns by how many per cent the NDCG@20 of a model is above that of another."""
    first, second = (mean(read(f'{name}-{data}'), 'ndcg@20') for name in (model, other))
    return 100 * (first / second - 1)


def test_leads_of_one_seed():
    toys, sports = (
        [lead(data, 'mgformer', other) for other in ('directau-lightgcn', 'directau-mf')]
        for data in ('amazon-toys', 'amazon-sports')
    )
    assert (
        f"On Toys MGFormer's NDCG is {toys[0]:.1f} % above that of DirectAU-LightGCN and "
        f'{toys[1]:.1f} % above that of DirectAU-MF. On Sports it is {-sports[0]:.1f} % below the '
        f'first and {sports[1]:.1f} % above the second.'
    ) in words(PAGE)


def test_leads_at_256_channels():
    wide = ('mgformer', 'directau-lightgcn', 'directau-mf')
    others = [
        file.removesuffix('-{}')
        for file in MODELS.values()
        if file.endswith('-{}') and file.removesuffix('-{}') not in wide
    ]
    least = min(lead(DATA[0], model, other) for model in wide for other in others)
    text = words(PAGE)
    assert f'the DirectAU models are {floor(10 * least) / 10} % and more above all others' in text
    (change,) = (-float(row[1]) for row in change_rows() if row[0] == 'without attention')
    assert f'a validation NDCG@20 that is {change:.1f} % lower, from one seed' in text


def test_times_of_an_epoch():
    times = {row['model']: float(row['s / epoch']) for row in csv_rows('runtime', 'epochs')}
    ours, fresh, narrow = (
        times[name] / times['directau-lightgcn']
        for name in ('mgformer', 'mgformer-fresh-keys', 'mgformer-narrow-keys')
    )
    text = words(PAGE)
    assert f'an epoch of MGFormer takes {ours:.2f} of the time of one of DirectAU-LightGCN' in text
    assert f'an epoch takes {fresh:.1f} times as long' in text
    assert f'it takes {narrow:.1f} times as long. They are as good' in text
    again = times['mgformer-fresh-keys'] / times['mgformer']
    assert f'In turn, at 256 channels, it is {again:.1f} times as long.' in text
    assert 5.5 < beauty('refresh-1')['epoch_seconds'] / beauty('study')['epoch_seconds'] < 6
    keys, default = (
        f'{mean(record, "valid_ndcg@20"):.4f}'
        for record in (beauty('key_channels64'), read('mgformer-amazon-beauty'))
    )
    said = (
        f'validation NDCG@20 is {keys} (row *key_channels64* above, one seed), that of the default'
    )
    assert f'{said} {default}.' in text


def test_the_training_of_sgl():
    sgl = read('sgl-amazon-beauty')
    epochs, best = sgl['config']['epochs'], mean(sgl, 'best_epoch')
    assert f'SGL ran for {epochs} epochs, and the {best:.0f}th was the best.' in words(PAGE)


def recalls_of(data, metric):
    return {name: mean(record, metric) for name, record in records_of(data).items()}


def test_recall_of_the_groups():
    text = words(PAGE)
    assert 'Item-kNN has the most on all four data sets.' in text
    least = [
        data
        for data in DATA
        if min(recalls := recalls_of(data, 'recall@20'), key=recalls.get) == 'Item-kNN'
    ]
    assert least == ['amazon-beauty', 'yelp-s3rec', 'amazon-sports']
    assert 'the least recall over all items on Amazon-Beauty, Yelp and Sports.' in text
    for data in DATA[1:]:
        found = recalls_of(data, 'recall@20_unpopular')
        ours = found.pop('MGFormer')
        assert all(ours > value for name, value in found.items() if name.startswith('DirectAU'))
    assert 'On the other data it is ahead of the DirectAU models, from one seed.' in text
