import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch_geometric.nn import LightGCN

from benchmarks.recommendation import __main__ as recommendation
from benchmarks.recommendation import run as recommendation_run
from benchmarks.recommendation.datasets import Task
from benchmarks.recommendation.models import GraphEncoder, ease, item_knn


def test_keys_are_computed_every_few_steps(world):
    """Between, gradients reach the batch's own rows only; after an evaluation the keys are new."""
    task = Task(str(world / 'data'), 'tiny', torch.device('cpu'))
    model = recommendation_run.build_encoder(
        task,
        'mgformer',
        recommendation.DEFAULTS['mgformer'] | {'refresh': 3, 'dim': 4, 'encoding': 2},
    )
    nodes, reached = torch.tensor([0, 41]), []
    for step in range(6):
        (gradient,) = torch.autograd.grad(model.encode(nodes).sum(), model.embedding.weight)
        reached.append(int((gradient.abs().sum(1) > 0).sum()))
        with torch.no_grad():
            model.embedding.weight.add_(0.1)
            if step == 3:
                model.encode()
    assert reached == [60, 2, 2, 60, 60, 2]


def test_what_the_attention_adds(world):
    task = Task(str(world / 'data'), 'tiny', torch.device('cpu'))
    config = recommendation.DEFAULTS['mgformer'] | {'dim': 4, 'encoding': 0}
    model = recommendation_run.build_encoder(task, 'mgformer', config)
    with torch.no_grad():
        for parameter in (
            *model.layers[0].lin_query.parameters(),
            *model.layers[0].lin_key.parameters(),
        ):
            # queries and keys of 0: every node reads the mean of all, weighed by the mask
            parameter.zero_()
        model.embedding.weight.add_(3.0)
        diagnosis = model.diagnosis()
    assert diagnosis['attention_share'] == pytest.approx(1, abs=0.01)
    assert diagnosis['attention_spread'] < 0.01
    assert diagnosis['query_length'] == diagnosis['key_length'] == 0
    assert (
        recommendation_run.build_encoder(task, 'mgformer', config | {'layers': 0}).diagnosis() == {}
    )


def test_attention_that_starts_at_groups_by_the_encodings(world):
    """Users and items of a half of the graph have the same groups, so rows attend to their half."""
    task = Task(str(world / 'data'), 'tiny', torch.device('cpu'))
    changes = {'dim': 4, 'encoding': 2, 'feature_map': 'learned', 'num_features': 2, 'mask': 'none'}
    config = recommendation.DEFAULTS['mgformer'] | changes
    half = torch.cat([torch.arange(40) % 2, torch.arange(20) // 10])
    shares = {}
    for start in ('random', 'kmeans'):
        torch.manual_seed(0)
        model = recommendation_run.build_encoder(task, 'mgformer', config | {'start': start})
        every = torch.arange(60)
        pairs = torch.cartesian_prod(every, every).t()
        weight = model.layers[0].attention_scores(model.tokens(), pairs).detach().view(60, 60)
        shares[start] = float((weight * (half[:, None] == half)).sum() / weight.sum())
    assert shares['random'] == pytest.approx(0.5, abs=0.1)
    assert shares['kmeans'] > 0.95


def test_graph_encoder_views():
    pairs = torch.tensor([[2, 0, 1, 0], [0, 1, 1, 0]])
    encoder = GraphEncoder(pairs, 3, 2, 4, 2)
    edges = torch.cat(
        [pairs + torch.tensor([[0], [3]]), pairs.flip(0) + torch.tensor([[3], [0]])], 1
    )
    reference = LightGCN(5, 4, 2)
    reference.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(encoder.encode(), reference.get_embedding(edges))
    torch.testing.assert_close(
        encoder.propagate_layers(encoder.normalized_adjacency(torch.tensor([1.0, 0, 1, 1]))),
        reference.get_embedding(edges[:, [0, 2, 3, 4, 6, 7]]),
    )
    for out in (encoder.encode(), reference.get_embedding(edges)):
        (out * torch.arange(20.0).view(5, 4)).sum().backward()
    torch.testing.assert_close(encoder.embedding.weight.grad, reference.embedding.weight.grad)
    torch.testing.assert_close(encoder.encode_dropped(0.0), encoder.encode())
    torch.testing.assert_close(encoder.encode_perturbed(0.0), encoder.encode())
    noise = GraphEncoder(pairs, 3, 2, 4, 1, skip_input=True)
    torch.testing.assert_close(
        (noise.encode_perturbed(0.1) - noise.encode()).norm(dim=1), torch.full((5,), 0.1)
    )


def test_closed_forms_by_hand():
    matrix = csr_array(np.array([[1, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=np.float32))
    users = torch.arange(3)
    expected = torch.tensor([[2.0, 2, 1], [2, 1, 1], [2, 2, 1]])
    torch.testing.assert_close(item_knn(matrix, 0.0)(users), expected)
    gram = torch.tensor(matrix.toarray()).double().t() @ torch.tensor(
        matrix.toarray()
    ).double() + 0.5 * torch.eye(3)
    inverse = gram.inverse()
    weight = torch.eye(3) - inverse / inverse.diagonal()
    torch.testing.assert_close(
        ease(matrix, 0.5)(users), (torch.tensor(matrix.toarray()).double() @ weight).float()
    )
