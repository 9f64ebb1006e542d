"""A training step that is captured as a CUDA graph and replayed."""

import copy

import pytest
import torch
from cuda_cases import BATCH, DEGREE, EDGES, JACCARD, SAMPLED, F, X, mgformer

from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    SGFormer,
    SGFormerConv,
)

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason='it needs a CUDA device'),
]
WARM_UP, REPLAYS = 3, 4


def sampled():
    """Keys with three samples, whose noise is the same in each step."""
    layer = KernelAttentionConv(F, 8, 2, num_gumbel_samples=3)
    layer.register_buffer('noise', torch.randn(len(X), 2 * 3))  # no copy may be captured
    layer.key_noise = lambda _: layer.noise
    return layer


MODULES = {
    'kernel': (lambda: KernelAttentionConv(F, 8, 2), ()),
    'degree': (lambda: DegreeMaskedAttention(F, 2, max_degree=64), ('degree',)),
    'sgformer': (lambda: SGFormerConv(F, 8), ()),
    'difformer': (lambda: DIFFormerConv(F, 8), ('edges',)),
    'difformer, plain edges': (lambda: DIFFormerConv(F, 8), ('plain edges',)),
    'SGFormer': (lambda: SGFormer(F, 8, 3), ('edges',)),
    'DIFFormer': (lambda: DIFFormer(F, 8, 3), ('edges',)),
    'GraphTransformer': (lambda: GraphTransformer(F, 8, 3, 1, 2, 1, dropout=0.0), ('edges',)),
    'Gumbel samples': (sampled, ()),
    'edge features': (
        lambda: JaccardSubtractorConv(F, 8, 4, edge_channels=1),
        ('edges', 'jaccard', 'features'),
    ),
    'LiteGT': (lambda: LiteGT(F, 16, 3, num_layers=2), ('edges', 'jaccard')),
    'MGFormer': (mgformer, ()),
}


@pytest.mark.parametrize('name', MODULES)
def test_replayed_steps_are_the_steps_themselves(name, device):
    build, needs = MODULES[name]
    torch.manual_seed(0)
    model, x = build().to(device), X.to(device)
    arguments = {
        'degree': (DEGREE.to(device),),
        'plain edges': (EDGES.to(device),),
        'edges': (sorted_edges(EDGES.to(device), len(X), len(X), backward=True),),
        'jaccard': (),
        'features': (),
    }
    keywords = (
        {'edge_jaccard': JACCARD.to(x), 'sampled_mask': SAMPLED.to(device)}
        if 'jaccard' in needs
        else {}
    )
    positions = [part for need in needs for part in arguments[need]]
    if 'features' in needs:
        keywords['edge_attr'] = JACCARD[:, None].to(x)
    other = copy.deepcopy(model)

    def stepper(module):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

        def step():
            optimizer.zero_grad(set_to_none=False)
            out = (
                module.get_embedding() if name == 'MGFormer' else module(x, *positions, **keywords)
            )
            loss = out.square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    captured, eager = stepper(model), stepper(other)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            captured()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = captured()
    for _ in range(REPLAYS):
        graph.replay()
    for _ in range(WARM_UP + REPLAYS):
        expected = eager()
    torch.testing.assert_close(loss, expected)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.filterwarnings('ignore:The CUDA Graph is empty')
def test_batches_are_refused(device):
    layer, x, batch = KernelAttentionConv(F, 8).to(device), X.to(device), BATCH.to(device)
    layer(x, batch=batch)
    with (
        pytest.raises(RuntimeError, match="a CUDA graph cannot be captured with 'batch'"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        layer(x, batch=batch, batch_size=4)
