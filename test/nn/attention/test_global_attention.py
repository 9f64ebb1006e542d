import copy
import pickle
import re
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from gradients import assert_same_gradients, leaves_of
from torch_geometric.nn import GCNConv, GPSConv

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormerConv,
    GlobalAttention,
    JaccardSubtractorConv,
    KernelAttentionConv,
    SGFormerConv,
)
from torch_geometric_lgt.testing import dense

SIZES = (4, 1, 0, 7, 1)
BATCH = torch.arange(5).repeat_interleave(torch.tensor(SIZES))
EDGES = torch.tensor([[0, 1, 2, 5, 6, 7, 8, 11], [1, 2, 0, 6, 5, 8, 9, 5]])
DEGREE = torch.tensor([2, 2, 2, 0, 0, 2, 1, 1, 2, 1, 0, 1, 0])
LAYERS = {
    'kernel': lambda: KernelAttentionConv(8, 8, heads=2),
    'masked': lambda: DegreeMaskedAttention(8, heads=2, max_degree=4),
    'difformer': lambda: DIFFormerConv(8, 8, heads=2, norm='frobenius', use_graph=False),
    'sigmoid': lambda: DIFFormerConv(8, 8, heads=2, kernel='sigmoid', use_graph=False),
    'sgformer': lambda: SGFormerConv(8, 8, heads=2),
    'row': lambda: SGFormerConv(8, 8, heads=2, norm='row'),
}


def gps_of(layer, conv=None, **options):
    gps = GPSConv(8, conv, norm=None, **options).double()
    gps.attn = GlobalAttention(layer).double()
    return gps


def local_sum(gps, x, edges, attended):
    """The layer of "Recipe for a General, Powerful, Scalable Graph Transformer" without norms and
    dropout."""
    out = attended + x + (0 if gps.conv is None else gps.conv(x, edges) + x)
    return out + gps.mlp(out)


@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.parametrize('local', [False, True])
def test_gps_attends_within_each_graph(name, local):
    gps = gps_of(LAYERS[name](), GCNConv(8, 8) if local else None)
    x = torch.randn(13, 8, dtype=torch.float64, requires_grad=True)
    extra = {'degree': DEGREE} if name == 'masked' else {}
    with gps.attn.arguments(**extra):
        actual = gps(x, EDGES, BATCH)
    graphs = [(graph == BATCH).nonzero().flatten() for graph in range(5)]
    alone = [
        gps.attn.conv(x[nodes], **{key: value[nodes] for key, value in extra.items()})
        for nodes in graphs
    ]
    expected = local_sum(gps, x, EDGES, torch.cat(alone))
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    grad, leaves = torch.randn_like(actual), leaves_of(gps, x=x)
    assert_same_gradients(actual, expected, leaves, grad, rtol=1e-10, atol=1e-10)


def test_gps_matches_the_dense_definition():
    gps, x = gps_of(KernelAttentionConv(8, 8)), torch.randn(13, 8, dtype=torch.float64)
    conv = gps.attn.conv
    q, k, v = (lin(x)[:, None] for lin in (conv.lin_query, conv.lin_key, conv.lin_value))
    phi = [
        dense.feature_map('softmax', 8**-0.25 * part, conv.feature_map.projection)
        for part in (q, k)
    ]
    weights = dense.attention_matrix(*phi, None, BATCH, BATCH)
    expected = local_sum(gps, x, EDGES, torch.einsum('ijh,jhd->ihd', weights, v).flatten(1))
    torch.testing.assert_close(gps(x, EDGES, BATCH), expected, rtol=1e-10, atol=1e-10)


def test_one_graph_without_a_batch_vector():
    gps, x = gps_of(LAYERS['kernel']()), torch.randn(13, 8, dtype=torch.float64)
    torch.testing.assert_close(
        gps(x, EDGES), local_sum(gps, x, EDGES, gps.attn.conv(x)), rtol=1e-12, atol=1e-12
    )
    padded = gps.attn(x[None])
    torch.testing.assert_close(padded, gps.attn.conv(x)[None], rtol=1e-12, atol=1e-12)


def test_rows_outside_the_mask_are_not_read_and_0():
    attention = GlobalAttention(LAYERS['kernel']()).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.tensor([[True, True, False, False, False], [True, False, True, True, False]])
    out = attention(x.masked_fill(~mask[..., None], float('nan')).requires_grad_(), mask)
    assert out[~mask].eq(0).all()
    torch.testing.assert_close(
        out[1][mask[1]], attention.conv(x[1][mask[1]]), rtol=1e-12, atol=1e-12
    )


def test_another_graph_changes_nothing():
    gps, x = gps_of(LAYERS['kernel'](), GCNConv(8, 8)), torch.randn(13, 8, dtype=torch.float64)
    expected = gps(x, EDGES, BATCH)
    for value in (100.0, float('nan')):
        changed = gps(torch.where((BATCH == 3)[:, None], x * value, x), EDGES, BATCH)
        torch.testing.assert_close(
            changed[BATCH != 3], expected[BATCH != 3], rtol=1e-12, atol=1e-12
        )


def test_arguments_reach_the_layer_within_the_context_only():
    layer = KernelAttentionConv(8, 8, relational_order=1)
    gps, x = gps_of(layer), torch.randn(13, 8, dtype=torch.float64)
    with gps.attn.arguments(edge_index=EDGES):
        with gps.attn.arguments(edge_index=EDGES[:, :0]):
            inner = gps(x, EDGES, BATCH)
        actual = gps(x, EDGES, BATCH)
    assert not torch.allclose(inner, actual)
    torch.testing.assert_close(
        actual, local_sum(gps, x, EDGES, layer(x, EDGES, BATCH)), rtol=1e-12, atol=1e-12
    )
    with pytest.raises(ValueError, match="'edge_index' must be given"):
        gps(x, EDGES, BATCH)
    masked = gps_of(LAYERS['masked']())
    with pytest.raises(ZeroDivisionError), masked.attn.arguments(degree=DEGREE):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="'degree' or 'edge_index' must be given"):
        masked(x, EDGES, BATCH)


def test_threads_have_arguments_of_their_own():
    """One thread got the degrees of the other one, and the first one to leave its block left them
    behind."""
    gps, x = gps_of(LAYERS['masked']()), torch.randn(13, 8, dtype=torch.float64)
    degrees = DEGREE, DEGREE.flip(0)
    attended = [gps.attn.conv(x, degree, batch=BATCH) for degree in degrees]
    assert not torch.allclose(*attended)
    entered, left = threading.Barrier(2), threading.Barrier(2)

    def attend(number):
        with gps.attn.arguments(degree=degrees[number]):
            entered.wait(30)
            out = gps(x, EDGES, BATCH)
            entered.wait(30)
            if number == 1:
                left.wait(30)
        if number == 0:
            left.wait(30)
        return out

    with ThreadPoolExecutor(2) as pool:
        outs = [*pool.map(attend, range(2))]
    for out, part in zip(outs, attended, strict=True):
        expected = local_sum(gps, x, EDGES, part)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="'degree' or 'edge_index' must be given"):
        gps(x, EDGES, BATCH)


def test_a_thread_of_the_backward_pass_has_the_arguments_of_the_only_block(monkeypatch):
    """A GPU has such a thread, in which a checkpoint calls the layer."""
    gps, x = gps_of(LAYERS['masked']()), torch.randn(13, 8, dtype=torch.float64)
    monkeypatch.setattr(torch._C, '_current_graph_task_id', lambda: 0)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        with gps.attn.arguments(degree=DEGREE):
            expected = gps(x, EDGES, BATCH)
            actual = one.submit(gps, x, EDGES, BATCH).result()
            assert torch.equal(actual, expected)
            block = gps.attn.arguments(degree=DEGREE)
            two.submit(block.__enter__).result()
            with pytest.raises(RuntimeError, match=r"'arguments' must be .* .got 2 threads."):
                one.submit(gps, x, EDGES, BATCH).result()
            two.submit(block.__exit__, None, None, None).result()
            assert torch.equal(one.submit(gps, x, EDGES, BATCH).result(), expected)
        with pytest.raises(ValueError, match="'degree' or 'edge_index' must be given"):
            one.submit(gps, x, EDGES, BATCH).result()


def test_dropout_of_gps_acts_on_the_attention():
    gps, x = gps_of(LAYERS['kernel'](), dropout=0.9), torch.randn(13, 8, dtype=torch.float64)
    torch.manual_seed(1)
    one = gps(x, EDGES, BATCH)
    assert not torch.equal(one, gps(x, EDGES, BATCH))
    torch.manual_seed(1)
    assert torch.equal(gps(x, EDGES, BATCH), one)
    gps.eval()
    assert torch.equal(gps(x, EDGES, BATCH), gps(x, EDGES, BATCH))


def test_reset_redraw_state_dict_and_copies():
    gps, x = gps_of(LAYERS['kernel'](), GCNConv(8, 8)), torch.randn(13, 8, dtype=torch.float64)
    assert {name for name in gps.state_dict() if name.startswith('attn.')} == {
        f'attn.conv.{name}' for name in gps.attn.conv.state_dict()
    }
    out = gps(x, EDGES, BATCH)
    other = gps_of(LAYERS['kernel'](), GCNConv(8, 8))
    other.load_state_dict(gps.state_dict())
    for copied in (other, copy.deepcopy(gps), pickle.loads(pickle.dumps(gps))):
        assert torch.equal(copied(x, EDGES, BATCH), out)
    before = {name: value.clone() for name, value in gps.attn.state_dict().items()}
    gps.attn.redraw_projection_matrix()
    changed = {
        name
        for name, value in gps.attn.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert changed == {'conv.feature_map.projection'}
    gps.reset_parameters()
    assert not any(
        torch.equal(value, before[name]) for name, value in gps.attn.state_dict().items()
    )
    GlobalAttention(LAYERS['sgformer']()).redraw_projection_matrix()
    attention = KernelAttentionConv(8, 8)
    assert repr(GlobalAttention(attention)) == f'GlobalAttention({attention})'


@pytest.mark.compiled
# torch, where GPSConv breaks the graph
@pytest.mark.filterwarnings('ignore:The .grad attribute of a Tensor')
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_compiles_as_far_as_gps_does():
    gps = gps_of(LAYERS['kernel'](), GCNConv(8, 8)).float()
    compiled = torch.compile(gps, dynamic=True, backend='aot_eager')
    for size in (13, 12):
        x = torch.randn(size, 8, requires_grad=True)
        actual, expected = compiled(x, EDGES, BATCH[:size]), gps(x, EDGES, BATCH[:size])
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(
            *(torch.autograd.grad(out.square().sum(), x)[0] for out in (actual, expected))
        )
    masked = gps_of(LAYERS['masked']()).float()
    compiled = torch.compile(masked, backend='eager')
    for degree in (DEGREE[:12], DEGREE[:12].flip(0)):
        with masked.attn.arguments(degree=degree):
            actual, expected = compiled(x, EDGES, BATCH[:12]), masked(x, EDGES, BATCH[:12])
        torch.testing.assert_close(actual, expected)


def test_examples_and_warnings_of_the_documentation_hold(capsys, monkeypatch, tmp_path):
    pytest.importorskip('matplotlib')
    monkeypatch.chdir(tmp_path)
    train = np.arange(40) % 2 == 0
    np.savez(
        'chameleon_filtered.npz',
        node_features=np.eye(40),
        node_labels=np.arange(40) % 5,
        edges=np.stack([np.arange(40), (np.arange(40) + 1) % 40], 1),
        train_masks=train[None],
        val_masks=~train[None],
        test_masks=~train[None],
    )
    page = (Path(__file__).parents[3] / 'docs' / 'gps.rst').read_text(encoding='utf-8')
    blocks = re.findall(r'\.\. code-block:: python\n\n((?: +.*\n|\n)+)', page)
    names = {}
    text = '\n'.join(textwrap.dedent(block) for block in blocks)
    assert text.count('range(500)') == 1
    exec(text.replace('range(500)', 'range(3)'), names)
    names['file'].close()
    assert len(blocks) == 11
    accuracy, _, row = capsys.readouterr().out.splitlines()
    assert accuracy.startswith('test accuracy ')
    assert row.startswith('attn.conv  ')
    assert names['out'].shape == (10, 16)
    x = torch.randn(13, 8)
    bare = GPSConv(8, None, norm=None)
    bare.attn = KernelAttentionConv(8, 8)
    # the attention is the identity
    torch.testing.assert_close(bare(x, EDGES, BATCH), 2 * x + bare.mlp(2 * x))
    mixed = GPSConv(8, KernelAttentionConv(8, 8), norm=None).eval()
    changed = mixed(torch.where((BATCH == 3)[:, None], 2 * x, x), EDGES, BATCH)
    assert not torch.allclose(changed[BATCH != 3], mixed(x, EDGES, BATCH)[BATCH != 3])


def test_raises():
    with pytest.raises(TypeError, match="'conv' must be a layer"):
        GlobalAttention('simplex')
    for conv in (JaccardSubtractorConv(8, 8), AdjacencyMaskedAttention(8), GCNConv(8, 8)):
        with pytest.raises(ValueError, match="'conv' must take 'batch' and 'batch_size'"):
            GlobalAttention(conv)
    attention = GlobalAttention(KernelAttentionConv(8, 1, feature_map='elu'))
    with pytest.raises(ValueError, match=r"'conv' must keep the width of its input, 8 \(got 1\)"):
        attention(torch.randn(1, 3, 8))
    with pytest.raises(ValueError, match=r"'x' must have shape \[B, N_max, F\]"):
        attention(torch.randn(3, 8))
    for mask in (torch.ones(3, dtype=torch.bool), torch.ones(1, 3)):
        with pytest.raises(ValueError, match="'mask' must hold a bool for each"):
            attention(torch.randn(1, 3, 8), mask)
