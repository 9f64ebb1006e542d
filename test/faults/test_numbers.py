"""Odd and bad numbers and sizes."""

from functools import partial

import pytest
import torch
from fault_works import EDGES, MODELS

from torch_geometric_lgt.diagnostics import check_finite
from torch_geometric_lgt.functional import (
    alignment,
    alignment_uniformity,
    kernel_attention,
    uniformity,
)
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MGFormer,
    SGFormerConv,
)


@pytest.mark.fault(
    'not-finite',
    (
        'They stay in the graph that has them; check_finite names the part of a model and the row '
        'where they come up.'
    ),
)
def test_nan_is_found_where_it_comes_from():
    model, x = MODELS['difformer'](), torch.randn(5, 4)
    with check_finite(model):
        model(x, EDGES)
    x[3, 1] = float('nan')
    with (
        pytest.raises(
            ValueError, match=r'the input of the model \(DIFFormer\) is not finite, first in row 3'
        ),
        check_finite(model),
    ):
        model(x, EDGES)
    with torch.no_grad():
        model.convs[0].lin_value.weight[0, 0] = float('inf')
    with (
        pytest.raises(
            ValueError,
            match=r'the output of convs.0.lin_value \(Linear\) is not finite, first in row 0',
        ),
        check_finite(model),
    ):
        model(torch.randn(5, 4), EDGES)
    assert not model._forward_hooks
    assert not model.convs[0]._forward_pre_hooks


@pytest.mark.fault('not-finite', 'No other graph of the batch has them.')
@pytest.mark.parametrize('name', MODELS)
def test_nan_stays_in_its_graph(name):
    model, x, batch = MODELS[name]().eval(), torch.randn(5, 4), torch.tensor([0, 0, 0, 1, 1])
    clean = model(x, EDGES, batch)
    x[3, 1] = float('nan')
    out = model(x, EDGES, batch)
    assert out[3].isnan().all()
    torch.testing.assert_close(out[:3], clean[:3])


@pytest.mark.fault('zero-rows', 'Defined and finite, outputs and gradients.')
@pytest.mark.parametrize(
    'make',
    [
        KernelAttentionConv,
        SGFormerConv,
        DIFFormerConv,
        partial(JaccardSubtractorConv, heads=2, kernel='subtractor'),
    ],
)
def test_rows_of_zeros(make):
    layer = make(4, 4, bias=False)
    x = torch.zeros(5, 4, requires_grad=True)
    out = layer(x, EDGES)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert out.isfinite().all()
    assert grad.isfinite().all()


@pytest.mark.fault(
    'zero-normaliser', 'A row whose weights are all zero gives 0 and passes no gradient.'
)
def test_normaliser_of_zero():
    q = -torch.rand(3, 1, 4)
    v = torch.randn(3, 1, 4)
    for part in (q, v):
        part.requires_grad_()
    out = kernel_attention(q, q, v, 'relu')
    assert out.abs().max() == 0
    assert all(grad.abs().max() == 0 for grad in torch.autograd.grad(out.sum(), (q, v)))


@pytest.mark.fault(
    'zero-normaliser',
    'Logarithms of edge weights are sums of logarithms: finite where the weight itself is 0.',
)
def test_logarithm_of_a_weight_of_zero():
    conv, x = KernelAttentionConv(4, 4), 30 * torch.randn(50, 4)
    x.requires_grad_()
    edges = torch.randint(50, (2, 200))
    actual = conv.log_edge_probability(x, edges)
    assert actual.min() < -104  # below, the exponential is 0 in single precision
    (grad,) = torch.autograd.grad(actual.sum(), x)
    assert actual.isfinite().all()
    assert grad.isfinite().all()


@pytest.mark.fault(
    'overflow',
    (
        'Exponentials keep their maximum, sums are in float32: finite at any number of nodes, and '
        'at lengths up to 1e14.'
    ),
)
def test_large_numbers_and_many_nodes_in_half_precision():
    conv = KernelAttentionConv(4, 4)
    assert conv(1e4 * torch.randn(50, 4)).isfinite().all()
    x = torch.ones(70_000, 4, dtype=torch.float16)
    half = conv.half()
    state = half.attention_state(x)
    assert state.count.tolist() == [70_000]
    torch.testing.assert_close(half(x, state=state), half.lin_value(x))  # nodes alike: their mean
    model = LiteGT(4, 8, 3, num_layers=1, level='graph').half().eval()
    none = torch.empty(2, 0, dtype=torch.long)
    few, many = (model(x[:size], none, edge_jaccard=x[:0, 0]) for size in (7, 70_000))
    torch.testing.assert_close(many, few, rtol=1e-2, atol=1e-3)


@pytest.mark.fault(
    'large-degree',
    'Counts as the largest degree of the table, with one warning that says how many do.',
)
def test_degree_above_the_table():
    layer, x = DegreeMaskedAttention(4, max_degree=3), torch.randn(5, 4)
    with pytest.warns(
        UserWarning, match="2 nodes have a degree above 'max_degree' = 3 and count as that"
    ):
        out = layer(x, torch.tensor([1, 9, 3, 4, 0]))
    torch.testing.assert_close(out, layer(x, torch.tensor([1, 3, 3, 3, 0])))


@pytest.mark.fault(
    'wrong-sizes',
    'A ValueError when the layer is made; the weights of another size are refused by name.',
)
def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"'heads' must divide 'out_channels' \(got 3 and 8\)"):
        KernelAttentionConv(4, 8, heads=3)
    with pytest.raises(RuntimeError, match=r'size mismatch for lin_out\.weight'):
        DIFFormer(4, 8, 3).load_state_dict(DIFFormer(4, 8, 5).state_dict())
    model = LiteGT(4, 16, 3, pe_channels=2)
    with pytest.raises(
        ValueError,
        match=r"'laplacian_pe' must have shape \(5, 2\).*add it to the data with LaplacianPE\(2\)",
    ):
        model(torch.randn(5, 4), EDGES, laplacian_pe=torch.randn(5, 3), edge_jaccard=torch.ones(6))


@pytest.mark.fault(
    'identical-rows',
    'Uniformity of one row is 0; identical rows are defined, with a gradient of 0.',
)
def test_one_row_and_identical_rows():
    one, other = torch.randn(1, 4), torch.randn(1, 4)
    assert uniformity(one) == 0
    torch.testing.assert_close(alignment_uniformity(one, other, 1.0), alignment(one, other))
    same = torch.ones(5, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(alignment_uniformity(same, same.detach(), 1.0), same)
    torch.testing.assert_close(grad, torch.zeros(5, 4))


@pytest.mark.fault(
    'mixed-dtypes',
    (
        'An error that names the argument, both devices or dtypes, and the conversion; autocast is '
        'taken.'
    ),
)
def test_mixed_devices_and_dtypes():
    for make in MODELS.values():
        model = make()
        with pytest.raises(
            ValueError,
            match=r"'x' must have the dtype of the parameters, torch.float32 \(got torch.float64\)",
        ):
            model(torch.randn(5, 4, dtype=torch.float64), EDGES)
        with pytest.raises(ValueError, match="'x' must be on the device of the parameters, cpu"):
            model(torch.randn(5, 4, device='meta'), EDGES)
        with pytest.raises(
            ValueError,
            match=r"'edge_index' must be on the device of the parameters, cpu \(got meta\)",
        ):
            model(torch.randn(5, 4), EDGES.to('meta'))
        with torch.autocast('cpu', torch.bfloat16):
            assert model(torch.randn(5, 4), EDGES).isfinite().all()
    with pytest.raises(ValueError, match="'degree' must be on the device"):
        DegreeMaskedAttention(4)(torch.randn(5, 4), torch.ones(5, dtype=torch.long, device='meta'))
    for name in ('edge_jaccard', 'sampled_mask'):
        options = {'edge_jaccard': torch.ones(6), name: torch.ones(6, device='meta')}
        with pytest.raises(ValueError, match=f"'{name}' must be on the device"):
            JaccardSubtractorConv(4, 4, 2)(torch.randn(5, 4), EDGES, **options)
    with pytest.raises(ValueError, match="'laplacian_pe' must be on the device"):
        LiteGT(4, 8, 3, kernel='softmax', pe_channels=2)(
            torch.randn(5, 4), EDGES, laplacian_pe=torch.ones(5, 2, device='meta')
        )
    with pytest.raises(ValueError, match="'edge_label_index' must be on the device"):
        MGFormer(2, 3, 4)(EDGES, EDGES.to('meta'))
    q = torch.randn(5, 1, 4)
    for name, mixed in (('k', (q, q.double(), q)), ('v', (q, q, q.to('meta')))):
        with pytest.raises(ValueError, match=f"'{name}' must be as 'q' of torch.float32 on cpu"):
            kernel_attention(*mixed, 'relu')
