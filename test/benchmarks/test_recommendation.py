import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch_geometric.nn import LightGCN

from benchmarks import recommendation
from benchmarks.recommenders import GraphEncoder, ease, item_knn


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Two groups of users, each with items of its own."""
    generator = np.random.default_rng(0)
    lines = [f'{user} ' + ' '.join(map(str, 10 * (user % 2) + generator.permutation(10)[:8])) for user in range(40)]
    (tmp_path / 'data' / 'tiny').mkdir(parents=True)
    (tmp_path / 'data' / 'tiny' / 'raw.txt').write_text('\n'.join(lines))
    monkeypatch.setattr(recommendation, 'RESULTS', tmp_path / 'results')
    monkeypatch.setattr(recommendation, 'CHECKPOINTS', tmp_path / 'checkpoints')
    return tmp_path


def command(world, *options):
    return ['--root', str(world / 'data'), '--dataset', 'tiny', *options]


@pytest.mark.parametrize('model', ['mgformer', 'directau-lightgcn', 'directau-mf', 'lightgcn', 'bprmf', 'sgl', 'simgcl', 'ease', 'itemknn'])
def test_every_model_learns_the_groups(world, model):
    trained = 'epochs' in recommendation.DEFAULTS[model]
    options = ['--epochs', '30', '--lr', '0.05', '--every', '5', '--batch-size', '64', '--dim', '8', '--seeds', '0'] if trained else []
    options += {'mgformer': ['--encoding', '4'], 'simgcl': ['--weight', '0.02']}.get(model, [])
    args, config = recommendation.parse(command(world, '--model', model, '--variant', 'test', *options))
    path = recommendation.run(args, config)
    record = json.loads(path.read_text())
    assert record['metrics']['recall@20']['mean'] == 1.0  # no more than 12 items are left for anyone
    assert record['metrics']['ndcg@20']['mean'] > 0.6  # by chance 0.41 over all items, 0.71 over those of the group
    assert f'| {model} | test | {config.get("scoring", "")} | 1.0000 ± 0.0000 |' in recommendation.table('tiny')


@pytest.mark.parametrize('mask', ['none', 'adjacency'])
def test_masks_and_scoring_rules(world, mask):
    options = [
        '--epochs',
        '20',
        '--lr',
        '0.05',
        '--every',
        '10',
        '--batch-size',
        '64',
        '--dim',
        '8',
        '--seeds',
        '0',
        '1',
        '--encoding',
        '0',
    ]
    found = {}
    for rule in ('inner', 'cosine', 'popularity'):
        args, config = recommendation.parse(command(world, '--mask', mask, '--scoring', rule, '--variant', rule, *options))
        found[rule] = json.loads(recommendation.run(args, config).read_text())
    valid = {rule: record['metrics']['valid_ndcg@20']['values'] for rule, record in found.items()}
    for rule in ('inner', 'cosine'):  # popularity has both among its ways
        assert all(high >= low for high, low in zip(valid['popularity'], valid[rule], strict=True))
    assert len({tuple(values) for values in valid.values()}) > 1
    assert found['inner']['seeds'] == [0, 1]


def test_graph_encoder_views():
    pairs = torch.tensor([[2, 0, 1, 0], [0, 1, 1, 0]])
    encoder = GraphEncoder(pairs, 3, 2, 4, 2)
    edges = torch.cat([pairs + torch.tensor([[0], [3]]), pairs.flip(0) + torch.tensor([[3], [0]])], 1)
    reference = LightGCN(5, 4, 2)
    reference.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(encoder.encode(), reference.get_embedding(edges))
    torch.testing.assert_close(
        encoder.propagated(encoder.graph(torch.tensor([1.0, 0, 1, 1]))), reference.get_embedding(edges[:, [0, 2, 3, 4, 6, 7]])
    )
    for out in (encoder.encode(), reference.get_embedding(edges)):
        (out * torch.arange(20.0).view(5, 4)).sum().backward()
    torch.testing.assert_close(encoder.embedding.weight.grad, reference.embedding.weight.grad)
    torch.testing.assert_close(encoder.dropped(0.0), encoder.encode())
    torch.testing.assert_close(encoder.perturbed(0.0), encoder.encode())
    noise = GraphEncoder(pairs, 3, 2, 4, 1, skip_input=True)
    torch.testing.assert_close((noise.perturbed(0.1) - noise.encode()).norm(dim=1), torch.full((5,), 0.1))


def test_closed_forms_by_hand():
    matrix = csr_array(np.array([[1, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=np.float32))
    users = torch.arange(3)
    expected = torch.tensor([[2.0, 2, 1], [2, 1, 1], [2, 2, 1]])
    torch.testing.assert_close(item_knn(matrix, 0.0)(users), expected)
    gram = torch.tensor(matrix.toarray()).double().t() @ torch.tensor(matrix.toarray()).double() + 0.5 * torch.eye(3)
    inverse = gram.inverse()
    weight = torch.eye(3) - inverse / inverse.diagonal()
    torch.testing.assert_close(ease(matrix, 0.5)(users), (torch.tensor(matrix.toarray()).double() @ weight).float())


def test_options_of_another_model_are_refused(capsys):
    with pytest.raises(SystemExit):
        recommendation.parse(['--model', 'ease', '--gamma', '1'])
    assert 'ease has no option gamma' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        recommendation.parse(['--gamma', '1'])
    assert 'needs a name: --variant' in capsys.readouterr().err
    assert recommendation.parse(['--gamma', '0.5'])[1] == recommendation.DEFAULTS['mgformer']
