"""What holds for any graphs, lengths, heads and chunks, over examples that hypothesis draws (the
same ones each time, see conftest.py)."""

from typing import NamedTuple

import pytest
import torch
from constants import set_constants
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional._engine.dispatch import PLAIN_ELEMENTS
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormerConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    SGFormerConv,
)
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.testing._samples import subgraph

MAPS = ('simplex', 'orthogonal', 'positive', 'fourier', 'elu', 'relu', 'focused', 'learned')
LAYERS = {
    **{
        name: lambda heads, name=name: KernelAttentionConv(4, 8, heads, feature_map=name)
        for name in MAPS
    },
    'degree': lambda heads: DegreeMaskedAttention(4, min(heads, 2), max_degree=30),
    'sgformer-row': lambda heads: SGFormerConv(4, 8, heads, norm='row'),
    'sgformer': lambda heads: SGFormerConv(4, 8, heads),
    'difformer': lambda heads: DIFFormerConv(4, 8, heads),
    'difformer-frobenius': lambda heads: DIFFormerConv(4, 8, heads, norm='frobenius'),
    'jaccard': lambda heads: JaccardSubtractorConv(4, 8, 2 * (heads // 2) or 2),
}


class Problem(NamedTuple):
    x: torch.Tensor
    edges: torch.Tensor
    batch: torch.Tensor
    heads: int
    rows: int
    seed: int


@st.composite
def problems(draw, largest=3.0, least=-6.0):
    """Graphs of any sizes, mixed, with features of any length; rows is how many elements a chunk
    has."""
    num_nodes, seed = draw(st.integers(1, 25)), draw(st.integers(0, 2**20))
    generator = torch.Generator().manual_seed(seed)
    batch = torch.tensor(
        draw(
            st.lists(
                st.integers(0, draw(st.integers(0, 5))), min_size=num_nodes, max_size=num_nodes
            )
        )
    )
    x = torch.randn(num_nodes, 4, dtype=torch.float64, generator=generator)
    x *= 10 ** draw(st.floats(least, largest)) / x.norm(dim=1).max()
    edges = torch.randint(num_nodes, (2, draw(st.integers(0, 60))), generator=generator)
    edges = edges[:, batch[edges[0]] == batch[edges[1]]]
    return Problem(
        x,
        edges,
        batch,
        draw(st.sampled_from([1, 2, 4])),
        draw(st.sampled_from([1, 256, 1 << 17])),
        seed,
    )


def made(name, problem):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(problem.seed)
        return LAYERS[name](problem.heads).double()


def run(layer, x, edges, batch, rows=1 << 17):
    with pytest.MonkeyPatch.context() as patch:
        set_constants(patch.setattr, input_chunk=rows, plain_elements=PLAIN_ELEMENTS)
        if isinstance(layer, JaccardSubtractorConv):
            return layer(x, edges, jaccard(edges, x.size(0)).to(x.dtype))
        if isinstance(layer, DegreeMaskedAttention):
            return layer(x, degrees(edges, x.size(0)), batch)
        return layer(x, edges, batch)


def close(actual, expected, bound=1e-7):
    """Of exponents of 1000 a double keeps 13 digits."""
    assert (
        float((actual - expected).detach().norm())
        <= bound * float(expected.detach().norm()) + 1e-300
    )


@pytest.mark.parametrize('name', LAYERS)
@given(problem=problems())
def test_finite_in_single_precision(name, problem):
    layer = made(name, problem).float()
    x = problem.x.float().requires_grad_()
    out = run(layer, x, problem.edges, problem.batch, problem.rows)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert out.isfinite().all()
    assert grad.isfinite().all()


@pytest.mark.parametrize('name', LAYERS)
@given(problem=problems(), order=st.randoms(use_true_random=False))
def test_permuted_split_and_chunked(name, problem, order):
    x, edges, batch, _, rows, _ = problem
    layer = made(name, problem)
    out = run(layer, x, edges, batch)
    close(run(layer, x, edges, batch, rows), out)
    nodes = list(range(x.size(0)))
    order.shuffle(nodes)
    nodes = torch.tensor(nodes)
    close(run(layer, x[nodes], subgraph(edges, nodes, x.size(0)), batch[nodes], rows), out[nodes])
    for graph in batch.unique():
        members = (batch == graph).nonzero().flatten()
        close(run(layer, x[members], subgraph(edges, members, x.size(0)), None, rows), out[members])


@pytest.mark.parametrize('name', LAYERS)
@given(problem=problems())
def test_other_graphs_do_not_matter(name, problem):
    x, edges, batch, *_ = problem
    layer, graph, num_nodes = made(name, problem), batch[0], x.size(0)
    out = run(layer, x, edges, batch)
    in_graph = batch == graph
    close(
        run(layer, torch.where(in_graph[:, None], x, 1e3 * x), edges, batch)[in_graph],
        out[in_graph],
    )
    twice = run(
        layer,
        torch.cat([x, x]),
        torch.cat([edges, edges + num_nodes], 1),
        torch.cat([batch, batch + 7]),
    )
    close(twice[:num_nodes], out)
    close(twice[num_nodes:], out)


@pytest.mark.parametrize(
    'name', [name for name in LAYERS if name not in ('jaccard', 'difformer', 'difformer-frobenius')]
)
@given(problem=problems(), cut=st.integers(0, 25))
def test_states_of_two_parts_make_the_whole(name, problem, cut):
    x, edges, *_ = problem
    layer, cut = made(name, problem), min(cut, x.size(0))
    degree = degrees(edges, x.size(0))
    extra = (lambda part: (degree[part],)) if name == 'degree' else lambda part: ()
    parts = [
        layer.attention_state(x[part], *extra(part)) for part in (slice(0, cut), slice(cut, None))
    ]
    options = {'state': parts[0].merge(parts[1])}
    actual = layer(x, degree, **options) if name == 'degree' else layer(x, **options)
    close(actual, run(layer, x, edges, None))


@pytest.mark.parametrize('name', MAPS)
@given(problem=problems(largest=0.5, least=-2))
def test_the_definition(name, problem):
    x, _, batch, heads, rows, _ = problem
    layer = made(name, problem)
    phi = layer.feature_map
    scale = layer.head_key_channels**-0.25 if phi.projection is not None else 1.0
    q, k, v = (
        lin(x).unflatten(-1, (heads, -1))
        for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
    )
    if phi.is_learned:
        q, k = phi.logits(q), phi.logits(k)
    features = [dense.feature_map(phi.map.name, scale * part, phi.projection) for part in (q, k)]
    expected = dense.kernel_attention(*features, v, None, batch, batch).flatten(1)
    if (
        name == 'fourier'
        and float(torch.einsum('ihm,jhm->ijh', *features).detach().sum(1).abs().min()) < 1e-3
    ):
        return  # signed features, whose sum may vanish
    close(run(layer, x, None, batch, rows), expected)
    if name != 'fourier':
        close(run(layer.float(), x.float(), None, batch, rows), expected, 1e-5)


@given(problem=problems())
def test_scores_and_degrees_of_edges(problem):
    _, edges, batch, *_ = problem
    adjacency = torch.zeros(batch.numel(), batch.numel(), dtype=torch.float64)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1
    adjacency.fill_diagonal_(0)
    assert torch.equal(degrees(edges, batch.numel()), adjacency.sum(1).long())
    close(
        jaccard(edges, batch.numel()).double(), dense.jaccard(adjacency)[edges[0], edges[1]], 1e-6
    )
