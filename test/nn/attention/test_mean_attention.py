import pytest
import torch
from gradients import gradients, leaves_of
from torch.testing import assert_close

from torch_geometric_lgt.nn import GraphTransformer, KernelAttentionConv, MeanAttention

SIZES = (4, 1, 0, 7)
BATCH = torch.arange(4).repeat_interleave(torch.tensor(SIZES))


def layer_and_input():
    generator = torch.Generator().manual_seed(0)
    return MeanAttention(6, 8).double(), torch.randn(12, 6, dtype=torch.double, generator=generator)


def test_each_node_gets_the_mean_of_its_graph():
    layer, x = layer_and_input()
    value = x @ layer.lin_value.weight.T + layer.lin_value.bias
    expected = torch.stack([value[graph == BATCH].mean(0) for graph in BATCH])
    assert_close(layer(x, batch=BATCH), expected, rtol=1e-12, atol=1e-12)
    assert_close(layer(x), value.mean(0).expand(12, -1), rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_the_mean():
    layer, x = layer_and_input()
    x.requires_grad_()
    target = torch.randn(12, 8, dtype=torch.double)
    leaves = leaves_of(layer, x=x)
    actual = gradients((layer(x, batch=BATCH) * target).sum(), leaves)
    value = layer.lin_value(x)
    means = torch.stack([value[graph == BATCH].mean(0) for graph in BATCH])
    expected = gradients((means * target).sum(), leaves)
    assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_targets_read_the_sources_or_a_state():
    layer, x = layer_and_input()
    x_dst, batch_dst = torch.randn(3, 6, dtype=torch.double), torch.tensor([3, 2, 0])
    out = layer((x, x_dst), batch=(BATCH, batch_dst))
    mean = layer(x, batch=BATCH)
    expected = torch.stack([mean[-1], torch.zeros(8, dtype=torch.double), mean[0]])
    assert_close(out, expected, rtol=1e-12, atol=1e-12)
    halves = [layer.attention_state(x[part], BATCH[part], 4) for part in (slice(5), slice(5, 12))]
    state = halves[0].merge(halves[1])
    assert_close(layer(x_dst, batch=batch_dst, state=state), expected, rtol=1e-12, atol=1e-12)


def test_scores_are_equal_within_a_graph():
    layer, x = layer_and_input()
    pairs = torch.tensor([[0, 3, 4, 5, 0], [1, 0, 4, 11, 5]])
    expected = torch.tensor([[1 / 4], [1 / 4], [1.0], [1 / 7], [0.0]], dtype=torch.double)
    assert_close(layer.attention_scores(x, pairs, BATCH), expected, rtol=1e-12, atol=1e-12)


def test_only_the_values_have_parameters():
    assert {name for name, _ in MeanAttention(6, 8).named_parameters()} == {
        'lin_value.weight',
        'lin_value.bias',
    }
    assert [name for name, _ in MeanAttention(6, 8, bias=False).named_parameters()] == [
        'lin_value.weight'
    ]


@pytest.mark.parametrize(
    ('message', 'call'),
    [
        ("'out_channels'", lambda: MeanAttention(6, 0)),
        (r"'x' must have shape \[N, 6\]", lambda: MeanAttention(6, 8)(torch.randn(3, 5))),
        (
            r"'x' must have shape \[N, 6\]",
            lambda: MeanAttention(6, 8)((torch.randn(3, 6), torch.randn(3, 5))),
        ),
    ],
)
def test_wrong_arguments_are_named(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_parameters_of_an_attention_are_not_swallowed():
    """The mean is the control of an experiment, so their checkpoints lie side by side."""
    attention = KernelAttentionConv(6, 8).state_dict()
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: .*lin_query'):
        MeanAttention(6, 8).load_state_dict(attention)
    model = GraphTransformer(6, 8, 3, 1, 2)
    with pytest.raises(RuntimeError, match='Unexpected key'):
        GraphTransformer(6, 8, 3, 1, 2, attn_type='mean').load_state_dict(model.state_dict())
