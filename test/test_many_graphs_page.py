"""The tables of the page about many graphs are those of the result files."""

from page_tables import compare, csv_rows, has_result, list_tables, percent, result, words

from benchmarks.common.tables import mean
from benchmarks.many_graphs.report import PUBLISHED, PUBLISHED_DEPTHS

PAGE = 'docs/benchmarks/many_graphs.rst'
NETWORKS = {
    'GraphTransformer, attention by position': 'graphtransformer',
    'softmax (GT)': 'gt',
    'Jaccard': 'litegt-jaccard',
    'subtractor': 'litegt-subtractor',
    'Jaccard, sampled': 'litegt-jaccard-sampling',
    'subtractor, sampled': 'litegt-subtractor-sampling',
    'Jaccard alone': 'jaccard-alone',
    'subtractor alone': 'subtractor-alone',
    'mean alone': 'mean-alone',
    'GatedGCN': 'gatedgcn',
    'MoNet': 'monet',
    'GCN': 'gcn',
    'GIN': 'gin',
    'GraphSAGE': 'sage',
    'GAT': 'gat',
}
TASKS = {'CLUSTER': ('sbm', 'cluster'), 'PATTERN': ('sbm', 'pattern'), 'tours': ('tsp', 'tsp')}
SAMPLED = {
    'GT': 'gt',
    'Jaccard with sampling': 'litegt-jaccard-sampling',
    'subtractor with sampling': 'litegt-subtractor-sampling',
}
GT_WITH_12_LAYERS = '60.5'  # Table 6 of LiteGT's paper


def metric_of(task):
    return 'f1' if task == 'tsp' else 'accuracy'


def score(network, task, data, end='small'):
    return 100 * mean(result(task, f'{network}-{data}-{end}'), metric_of(task))


def column(task, data):
    """Formats the scores of a task, with those that one seed does not tell from the best."""
    limit = 1 if task == 'tsp' else 2
    scores = {
        network: score(network, task, data)
        for network in NETWORKS.values()
        if has_result(task, f'{network}-{data}-small')
    }
    best = max(scores.values())
    for network in NETWORKS.values():
        if network not in scores:
            yield '–'
            continue
        behind = best - scores[network]
        end = ', best' if behind == 0 else ', near' if behind < limit else ''
        yield percent(result(task, f'{network}-{data}-small'), metric_of(task)) + end


def score_rows():
    columns = zip(*(column(*task) for task in TASKS.values()), strict=True)
    return [[name, *cells] for name, cells in zip(NETWORKS, columns, strict=True)]


def control_rows():
    for label, name in (
        ('CLUSTER, 1000 graphs', 'cluster-small'),
        ('PATTERN, 1000 graphs', 'pattern-small'),
        ('CLUSTER, all 10,000 graphs', 'cluster-medium'),
    ):
        ends = '', '-mean', '-no-attention'
        ours, *controls = (result('sbm', f'graphtransformer-{name}{end}') for end in ends)
        cells = [percent(record) for record in (ours, *controls)]
        signs = {compare(ours, control, 'accuracy') for control in controls}
        verdict = 'ahead' if signs == {1} else 'equal'
        if len(ours['seeds']) == 1:
            verdict = 'one seed'
        yield [label, *cells, verdict]


def sampling_rows():
    for label, (task, data) in TASKS.items():
        for kernel in ('Jaccard', 'subtractor'):
            name = f'litegt-{kernel.lower()}'
            scores = [score(f'{name}{end}', task, data) for end in ('', '-sampling')]
            paper = [100 * PUBLISHED[data][f'{name}{end}'] for end in ('', '-sampling')]
            lost = [full - part for full, part in (scores, paper)]
            files = (f'{name}{end}-{data}-small' for end in ('', '-sampling'))
            cells = [percent(result(task, file), metric_of(task)) for file in files]
            yield [f'{label}, {kernel}', *cells, *(f'{points:.1f}' for points in lost)]


def node_rows():
    for label, (task, data) in TASKS.items():
        for name, network in SAMPLED.items():
            rows = {
                row['chosen by']: [float(row[f'layer {layer}']) for layer in (2, 3, 4)]
                for row in csv_rows(task, f'{data}-{network}-small-sampling')
            }
            random = rows['random']
            ratios = [
                100 * (ours / other - 1) for ours, other in zip(rows['Eq. 10'], random, strict=True)
            ]
            best = rows['true entropy'][-1] / random[-1]
            span = f'{min(ratios):.0f} to {max(ratios):.0f} % farther'
            yield [f'{label}, {name}', span, f'{best:.1f} times as far']


def depth_rows():
    for layers in (4, 8, 10, 12, 14, 16):
        cells = []
        for network in ('gt', 'litegt-jaccard-sampling'):
            file = f'{network}-cluster-small' + (f'-{layers}-layers' if layers > 4 else '')
            cells.append(percent(result('sbm', file)) if has_result('sbm', file) else '–')
            paper = PUBLISHED_DEPTHS['cluster', network].get(f'{layers}-layers')
            cells.append(f'{100 * paper:.1f}' if paper else '–')
        if layers == 12:
            cells[1] = GT_WITH_12_LAYERS
            cells[3] = f'{100 * PUBLISHED["cluster"]["litegt-jaccard-sampling"]:.1f}'
        yield [str(layers), *cells]


EXPECTED = {
    'Test score (%)': score_rows(),
    'Attention by position': list(control_rows()),
    'Points lost by sampling': list(sampling_rows()),
    'Distance from equal weights': list(node_rows()),
    'Layers, CLUSTER': list(depth_rows()),
}


def test_written_tables():
    assert list_tables(PAGE) == EXPECTED


def test_words_beside_the_tables():
    text = words(PAGE)
    lost = {row[0]: float(row[3]) for row in EXPECTED['Points lost by sampling']}
    cluster, tours = (
        [lost[f'{data}, {kernel}'] for kernel in ('subtractor', 'Jaccard')]
        for data in ('CLUSTER', 'tours')
    )
    assert f'7 to 10 points on CLUSTER, {tours[0]} to {tours[1]} on tours.' in text
    assert (round(min(cluster)), round(max(cluster))) == (7, 10)
    seconds = {
        name: result('sbm', name)['epoch_seconds']
        for name in (
            *(
                f'{name}-{data}-small'
                for name in ('gt', 'litegt-jaccard')
                for data in ('cluster', 'pattern')
            ),
            *(f'{name}-cluster-small-16-layers' for name in ('gt', 'litegt-jaccard-sampling')),
        )
    }
    for data in ('cluster', 'pattern'):
        assert seconds[f'litegt-jaccard-{data}-small'] < seconds[f'gt-{data}-small'] / 2
    deep = [
        seconds[f'{name}-cluster-small-16-layers'] for name in ('litegt-jaccard-sampling', 'gt')
    ]
    assert f'in {deep[0] / deep[1]:.1f} of the time of an epoch' in text
    half, single = (
        result('sbm', f'litegt-jaccard-cluster-small{end}') for end in ('-bfloat16', '')
    )
    assert f'has {percent(half)}, and {percent(single)} in single precision' in text
    assert [mean(record, 'loss_spike') for record in (half, single)] == [0, 0]


def test_kernels_alone():
    text = words(PAGE)
    drops = {
        (data, kernel): score(f'litegt-{kernel}', *TASKS[data])
        - score(f'{kernel}-alone', *TASKS[data])
        for data in ('CLUSTER', 'tours')
        for kernel in ('jaccard', 'subtractor')
    }
    assert min(drops['CLUSTER', kernel] for kernel in ('jaccard', 'subtractor')) > 8
    subtractor, jaccard = (drops['tours', kernel] for kernel in ('subtractor', 'jaccard'))
    said = f'On tours it is {subtractor:.1f} (subtractor) to {jaccard:.1f} points (Jaccard) worse'
    assert said in text


def test_litegt_of_the_published_size():
    full = score('litegt-jaccard-sampling', 'sbm', 'cluster', 'medium-12-layers')
    paper = 100 * PUBLISHED['cluster']['litegt-jaccard-sampling']
    said = f'After 20 epochs it has {full:.1f}, one seed. The paper has {paper:.1f}, with'
    assert said in words(PAGE)
