import copy
import re

import pytest
import torch
from gradients import gradients, leaves_of
from quantized import dequantize_, quantize_
from torch.nn.utils import prune
from torch_geometric.data import Data
from windows_files import replaces_mapped_files

from torch_geometric_lgt import _io
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.loader import (
    LinkNeighborLoader,
    NeighborLoader,
    NodePartitionLoader,
)
from torch_geometric_lgt.nn import (
    AttentionMemory,
    DIFFormer,
    FeatureMap,
    GraphTransformer,
    NodeFormer,
    SGFormer,
)
from torch_geometric_lgt.nn.models._streaming.memory_file import KIND
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.transforms import NodeDegree

N = 50
MODELS = {
    'difformer': lambda: DIFFormer(5, 8, 3, num_layers=3, heads=2),
    'difformer-frobenius': lambda: DIFFormer(5, 8, 3, norm='frobenius'),
    'sgformer': lambda: SGFormer(5, 8, 3),
    'sgformer-row': lambda: SGFormer(5, 8, 3, 2, norm='row'),
    'graph-transformer': lambda: GraphTransformer(5, 8, 3, 3, 2),
    'graph-transformer-local-first': lambda: GraphTransformer(5, 8, 3, 1, 2, num_local_layers=2),
    'graph-transformer-gated': lambda: GraphTransformer(
        5, 8, 3, 1, 2, num_local_layers=1, gate=True
    ),
    'nodeformer': lambda: NodeFormer(5, 8, 3, heads=2, num_features=8),
    'nodeformer-output': lambda: NodeFormer(5, 8, 3, num_features=8, relational_input='output'),
}


def graph():
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(N, (2, 120), generator=generator)
    data = Data(
        x=torch.randn(N, 5, generator=generator),
        edge_index=edges[:, edges[0] != edges[1]],
        num_nodes=N,
    )
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], 1).unique(dim=1)
    return NodeDegree()(data)


def memory_of(model, data):
    return model.attention_memory(NeighborLoader(data, [-1], batch_size=16))


def read(model, batch, memory):
    nodes = batch.n_id[: batch.batch_size]
    out = model(
        batch.x,
        batch.edge_index,
        degree=batch.degree,
        states=memory.without(nodes),
        num_keys=nodes.numel(),
    )
    return nodes, out[: nodes.numel()]


def test_states_of_a_model_of_another_width_are_named():
    x, edge_index = torch.randn(4, 5), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    model, other = DIFFormer(5, 8, 3, num_layers=1).eval(), DIFFormer(5, 6, 3, num_layers=1)
    states = [other.convs[0].attention_state(torch.randn(7, 6))]
    message = (
        "'states[0]' must have the graphs, heads, features, channels and samples of "
        'AttentionState(graphs=1, heads=1, features=9, channels=8, rank=1) (got '
        'AttentionState(graphs=1, heads=1, features=7, channels=6, rank=1)); give states that '
        'attention_memory of this model builds'
    )
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        model(x, edge_index, states=states)


@pytest.mark.parametrize('name', MODELS)
def test_a_batch_equals_the_whole_graph_while_parameters_rest(name):
    data, model = graph(), MODELS[name]().eval()
    memory, whole = memory_of(model, data), model(data.x, data.edge_index)
    for batch in NeighborLoader(data, [-1] * 3, batch_size=20, shuffle=True):
        nodes, out = read(model, batch, memory)
        torch.testing.assert_close(out, whole[nodes], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', ['difformer', 'graph-transformer'])
def test_the_seed_nodes_of_links_are_the_first_sampled_nodes(name):
    data, model = graph(), MODELS[name]().eval()
    memory, whole = memory_of(model, data), model(data.x, data.edge_index)
    pairs = data.edge_index[:, :30]
    for batch in LinkNeighborLoader(data, [-1] * 3, pairs, neg_sampling='binary', batch_size=8):
        nodes = batch.n_id[: batch.num_sampled_nodes[0]]
        assert torch.equal(batch.edge_label_index.unique(), torch.arange(nodes.numel()))
        states = memory.without(nodes)
        arguments = {'degree': batch.degree, 'states': states, 'num_keys': nodes.numel()}
        out = model(batch.x, batch.edge_index, **arguments)[: nodes.numel()]
        torch.testing.assert_close(out, whole[nodes], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('num_layers', [1, 2])
def test_scores_of_the_edges_into_seed_nodes_need_one_hop_more(num_layers):
    """As many hops as layers leave the sources of these edges without some of their neighbours."""
    data = graph()
    model = GraphTransformer(5, 8, 3, num_layers, 2, level='edge').eval()
    memory, whole = memory_of(model, data), model(data.x, data.edge_index)
    scored, is_exact = [], []
    for hops in (num_layers, num_layers + 1):
        for batch in NeighborLoader(data, [-1] * hops, batch_size=8):
            nodes = batch.n_id[: batch.batch_size]
            arguments = {'degree': batch.degree, 'num_keys': nodes.numel()}
            out = model(batch.x, batch.edge_index, states=memory.without(nodes), **arguments)
            into = batch.edge_index[1] < nodes.numel()
            is_exact.append(torch.allclose(out[into], whole[batch.e_id[into]], atol=1e-5))
            scored.append(batch.e_id[into])
        assert torch.cat(scored).sort().values.equal(torch.arange(data.num_edges))
        assert all(is_exact) == (hops > num_layers)
        scored, is_exact = [], []


@pytest.mark.parametrize(('num_hops', 'is_whole'), [(5, True), (4, False)])
def test_a_batch_counts_the_degrees_of_longer_walks(num_hops, is_whole):
    """A relational bias of the order 2 takes no degrees. The hops of the docs count those of all
    sources."""
    ring, generator = torch.arange(30), torch.Generator().manual_seed(3)
    edges = torch.stack([ring, (ring + 1) % 30])
    data = Data(
        x=torch.randn(30, 5, generator=generator), edge_index=torch.cat([edges, edges.flip(0)], 1)
    )
    model = NodeFormer(5, 8, 3, 1, num_features=8, relational_order=2).eval()
    memory, whole = memory_of(model, data), model(data.x, data.edge_index)
    batch = next(iter(NeighborLoader(data, [-1] * num_hops, batch_size=2)))
    nodes = batch.n_id[: batch.batch_size]
    out = model(batch.x, batch.edge_index, states=memory.without(nodes), num_keys=nodes.numel())
    equal = torch.allclose(out[: nodes.numel()], whole[nodes], rtol=1e-5, atol=1e-6)
    assert equal == is_whole


@pytest.mark.parametrize('num_keys', [None, 3, 5])
def test_sampled_neighbours_are_no_keys(num_keys):
    """Without ``num_keys`` the neighbours, which the memory has already, counted twice."""
    data, model = graph(), DIFFormer(5, 8, 3).eval()
    states = memory_of(model, data).without(torch.arange(4))
    batch = next(iter(NeighborLoader(data, [-1], batch_size=4)))
    with pytest.raises(
        ValueError, match=r"^'num_keys' must be 4, the number of nodes that 'states'"
    ):
        model(batch.x, batch.edge_index, states=states, num_keys=num_keys)
    for moved in ([state.to(torch.double) for state in states], [s.detach() for s in states]):
        with pytest.raises(ValueError, match=r"^'num_keys' must be 4, the number of nodes"):
            model(batch.x, batch.edge_index, states=moved, num_keys=num_keys)
    model(batch.x, batch.edge_index, degree=batch.degree, states=states, num_keys=4)


def test_the_keys_of_a_batch_are_fresh_and_the_others_constant():
    """The layer's gradients against those of a dense attention whose other keys and values are cut
    off."""
    torch.manual_seed(0)
    data = graph()
    model = SGFormer(5, 8, 3, norm='row', layer_norm=False).double().eval()
    memory = memory_of(model, data.update({'x': data.x.double()}))
    with torch.no_grad():
        for parameter in model.convs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    nodes, others = torch.arange(9), torch.arange(9, N)
    z, conv = model.input_layer(data.x).detach(), model.convs[0]
    state = memory.without(nodes)[0].merge(conv.attention_state(z[nodes]))
    out = conv(z[nodes], state=state)
    with torch.no_grad():
        old_k, old_v = (
            getattr(memory.convs[0], name)(z[others]) for name in ('lin_key', 'lin_value')
        )
    q, k, v = (getattr(conv, name)(z[nodes]) for name in ('lin_query', 'lin_key', 'lin_value'))
    k, everything = torch.cat([k, old_k])[:, None], torch.cat([v, old_v])[:, None]
    expected = dense.sgformer_attention(q[:, None], k, everything, v[:, None], 'row').flatten(1)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    grads = [gradients(results.square().sum(), leaves_of(conv)) for results in (out, expected)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-12)


def test_samples_in_training():
    """Each node has the noise it was given when the memory was made, so that what leaves is what
    came."""
    data = graph()
    model = NodeFormer(5, 8, 3, num_features=8, num_gumbel_samples=4, relational_order=0)
    memory = memory_of(model, data)
    assert model.training
    assert [state.samples for state in memory.states] == [4, 4]
    for empty in memory.without(torch.arange(N)):
        assert empty.count.tolist() == [0]
        assert float(empty.sums.abs().max()) < 1e-12
    batch = next(iter(NodePartitionLoader(data, 20)))
    out = model(batch.x, None, states=memory.without(batch.n_id))
    out.sum().backward()
    assert model.convs[0].lin_key.weight.grad.abs().sum() > 0
    assert memory_of(model.eval(), data).states[0].samples == 1


def test_a_memory_in_files_equals_one_in_memory(tmp_path):
    data, model = graph(), DIFFormer(5, 8, 3).eval()
    loader = NeighborLoader(data, [-1], batch_size=16)
    first = model.attention_memory(loader, tmp_path)
    torch.testing.assert_close(first.inputs[1], memory_of(model, data).inputs[1], rtol=0, atol=0)
    with torch.no_grad():
        model.lin_in.weight.mul_(2)
    second = model.attention_memory(loader, tmp_path)
    torch.testing.assert_close(
        second.states[1].sums, memory_of(model, data).states[1].sums, rtol=0, atol=0
    )


def values_of(memory):
    """All that a memory returns, and the inputs that it may map from files."""
    rest = memory.without(torch.arange(7))
    return [state.sums for state in rest] + [x.clone() for x in memory.inputs]


def test_a_memory_outlives_the_next_runs_in_its_folder(tmp_path, file_rules):
    """A second memory wrote over the mapped inputs of the first one, whose sums without a batch
    then changed without an error."""
    data, model = graph(), DIFFormer(5, 8, 3).eval()
    loader = NeighborLoader(data, [-1], batch_size=16)
    memories, expected = [], []
    for factor in (1.0, 2.0, 3.0):
        with torch.no_grad():
            model.lin_in.weight.mul_(factor)
        memories.append(model.attention_memory(loader, tmp_path))
        expected.append(values_of(memory_of(model, data)))
    scores = model.inference(loader, tmp_path)
    torch.testing.assert_close(scores, model.inference(loader), rtol=0, atol=0)
    for memory, values in zip(memories, expected, strict=True):
        torch.testing.assert_close(values_of(memory), values, rtol=0, atol=0)


def test_files_that_cannot_be_removed_are_removed_later(tmp_path, windows_files):
    """Windows removes no mapped file. The next file of the array has a number in its name."""
    data, model = graph(), DIFFormer(5, 8, 3).eval()
    loader = NeighborLoader(data, [-1], batch_size=16)

    def layers():
        return sorted(path.name for path in tmp_path.glob('layer-*'))

    memory = model.attention_memory(loader, tmp_path)
    assert layers() == ['layer-0.bin', 'layer-1.bin']
    other = model.attention_memory(loader, tmp_path)
    assert layers() == ['layer-0.1.bin', 'layer-0.bin', 'layer-1.1.bin', 'layer-1.bin']
    del memory
    memory = model.attention_memory(loader, tmp_path)
    assert layers() == ['layer-0.1.bin', 'layer-0.2.bin', 'layer-1.1.bin', 'layer-1.2.bin']
    scores = model.inference(loader, tmp_path)
    torch.testing.assert_close(scores, model.inference(loader), rtol=0, atol=0)
    assert layers() == ['layer-0.1.bin', 'layer-0.2.bin', 'layer-1.1.bin', 'layer-1.2.bin']
    del memory, other
    torch.testing.assert_close(model.inference(loader, tmp_path), scores, rtol=0, atol=0)
    assert {path.name for path in tmp_path.iterdir()} == {'.lock', 'progress.json', 'scores.bin'}


def test_a_run_resumes_with_the_newest_files(tmp_path, windows_files, monkeypatch):
    data, model = graph(), DIFFormer(5, 8, 3).eval()
    loader = NeighborLoader(data, [-1], batch_size=16)
    with torch.no_grad():
        model.lin_in.weight.mul_(2)
    earlier = model.attention_memory(loader, tmp_path)
    with torch.no_grad():
        model.lin_in.weight.div_(2)
    memory = model.attention_memory(loader, tmp_path)
    expected = [values_of(memory), model.inference(loader)]
    monkeypatch.setattr(DIFFormer, 'input_layer', lambda *_: pytest.fail('not from the files'))
    scores = model.inference(loader, tmp_path)
    torch.testing.assert_close([values_of(memory), scores], expected, rtol=0, atol=0)
    assert not torch.equal(earlier.inputs[0], memory.inputs[0])


def test_noise_in_files_outlives_the_next_memory(tmp_path):
    data = graph()
    model = NodeFormer(5, 8, 3, num_features=8, num_gumbel_samples=4, relational_order=0)
    loader = NeighborLoader(data, [-1], batch_size=16)
    memory = model.attention_memory(loader, tmp_path)
    values = values_of(memory)
    model.attention_memory(loader, tmp_path)
    torch.testing.assert_close(values_of(memory), values, rtol=0, atol=0)


SAVED = {
    **MODELS,
    'difformer-several-layers': lambda: DIFFormer(5, 8, 3, num_layers=2, norm='frobenius'),
    'nodeformer-samples': lambda: NodeFormer(
        5, 8, 3, num_features=8, num_gumbel_samples=4, relational_order=0
    ),
    'graph-transformer-mean': lambda: GraphTransformer(5, 8, 3, 2, 2, attn_type='mean'),
}


@replaces_mapped_files
@pytest.mark.parametrize('name', SAVED)
def test_a_loaded_memory_equals_the_saved_one(name, tmp_path):
    """Also in a model of other parameters, whose own layers keep them."""
    data, model = graph(), SAVED[name]()
    memory = memory_of(model, data)
    memory.save(tmp_path / 'memory')
    other = SAVED[name]().eval()
    before = {key: value.clone() for key, value in other.state_dict().items()}
    loaded = AttentionMemory.load(tmp_path / 'memory', other)
    assert repr(loaded) == repr(memory)
    torch.testing.assert_close(values_of(loaded), values_of(memory), rtol=0, atol=0)
    torch.testing.assert_close(loaded.inputs, memory.inputs, rtol=0, atol=0)
    torch.testing.assert_close(other.state_dict(), before, rtol=0, atol=0)
    loaded.save(tmp_path / 'memory')  # in place of the file that it maps
    again = AttentionMemory.load(tmp_path / 'memory', other)
    (tmp_path / 'memory').unlink()
    torch.testing.assert_close(values_of(again), values_of(memory), rtol=0, atol=0)


def test_a_memory_in_files_is_saved(tmp_path):
    data, model = graph(), DIFFormer(5, 8, 3)
    loader = NeighborLoader(data, [-1], batch_size=16)
    memory = model.attention_memory(loader, tmp_path / 'folder')
    memory.save(tmp_path / 'memory')
    with torch.no_grad():
        model.lin_in.weight.mul_(2)
    model.attention_memory(loader, tmp_path / 'folder')
    loaded = AttentionMemory.load(tmp_path / 'memory', model)
    torch.testing.assert_close(values_of(loaded), values_of(memory), rtol=0, atol=0)


def test_a_memory_of_pruned_layers_is_saved(tmp_path):
    data, models = graph(), []
    for _ in range(2):
        models.append(DIFFormer(5, 8, 3))
        prune.random_unstructured(models[-1].convs[0].lin_key, 'weight', 0.3)
    memory = memory_of(models[0], data)
    memory.save(tmp_path / 'memory')
    loaded = AttentionMemory.load(tmp_path / 'memory', models[1])
    torch.testing.assert_close(values_of(loaded), values_of(memory), rtol=0, atol=0)


def test_a_file_that_is_no_memory_of_the_model_is_refused(tmp_path):
    path, model = tmp_path / 'memory', DIFFormer(5, 8, 3)
    with pytest.raises(
        FileNotFoundError,
        match=r"'path' must be a file that 'save' wrote; build the memory again and save it",
    ):
        AttentionMemory.load(path, model)
    memory_of(model, graph()).save(path)
    for wrong, difference in {
        DIFFormer(5, 8, 3, heads=2): '0.heads: 1 .got 2.',
        DIFFormer(5, 8, 3, norm='frobenius'): "0.norm: 'row' .got 'frobenius'.",
        DIFFormer(5, 16, 3): '0.head_channels: 8 .got 16.',
        SGFormer(5, 8, 3, num_layers=2): '0: DIFFormerConv .got SGFormerConv.',
    }.items():
        with pytest.raises(
            ValueError,
            match=f"'model' must have the layers and settings of those in '.*', .*{difference}.*; "
            'pass the model of the memory, or build the memory again',
        ):
            AttentionMemory.load(path, wrong)
    with pytest.raises(ValueError, match=r"'model' must be .* 'attention_memory' .got Linear"):
        AttentionMemory.load(path, torch.nn.Linear(2, 2))
    content = path.read_bytes()
    for length in (0, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="'path' must be an intact safetensors file"):
            AttentionMemory.load(path, model)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="'path' is damaged"):
        AttentionMemory.load(path, model)
    memory_of(model, graph()).states[0].save(path)
    with pytest.raises(ValueError, match="'path' must hold 'attention_memory'"):
        AttentionMemory.load(path, model)


def test_a_quantized_model_takes_the_memory_of_the_model_before(tmp_path):
    """The error named 'x', whose dtype was that of the parameters."""
    path, model, data = tmp_path / 'memory', DIFFormer(5, 8, 3).eval(), graph()
    memory = memory_of(model, data)
    memory.save(path)
    batch = NeighborLoader(data, [-1, -1], batch_size=7).collate_fn(torch.arange(7))
    model.requires_grad_(False)
    quantize_(model)
    message = (
        r"^the layers of an AttentionMemory must .* \(got '0\.lin_query\.weight' of a quantized"
    )
    with pytest.raises(ValueError, match=message):
        memory_of(model, data)
    with pytest.raises(ValueError, match=message):
        AttentionMemory.load(path, model)
    _, out = read(model, batch, memory)
    dequantize_(model)
    torch.testing.assert_close(read(model, batch, memory)[1], out)


def test_a_file_of_other_sizes_is_refused(tmp_path):
    """With a right checksum, as no memory is saved."""
    path, model = tmp_path / 'memory', DIFFormer(5, 8, 3)
    memory_of(model, graph()).save(path)
    tensors = dict(_io.read_tensors(path, KIND))
    model_error = "'model' must have layers with the sizes of those in '.*' .got layer"
    for name, tensor, message in (
        ('0.input', tensors['0.input'][:, 1:], f'{model_error} 0'),
        ('0.input', tensors['0.input'][0], f'{model_error} 0'),
        ('0.input', tensors['0.input'][1:], r"'path' must be of one number .*got \[49, 50\]"),
        ('1.noise', torch.ones(N, 1), f'{model_error} 1'),
        ('1.state.sums', tensors['1.state.sums'].float(), f'{model_error} 1: sums of'),
        ('1.state.squares', torch.ones(2, 2).double(), f'{model_error} 1: squares of'),
        ('1.state.samples', torch.tensor(3), f'{model_error} 1: samples'),
        ('1.state.count', torch.tensor([51]), r"'path' must be of one number .*got \[50, 51\]"),
        ('0.conv.lin_key.weight', torch.ones(3, 3), f'{model_error} 0'),
        ('settings', torch.ones(3), "'path' must hold settings in JSON"),
        ('settings', torch.tensor(list(b'[1]')).byte(), "'path' must hold settings in JSON"),
    ):
        _io.write_tensors(path, {**tensors, name: tensor}, KIND)
        with pytest.raises(ValueError, match=message):
            AttentionMemory.load(path, model)


def test_a_folder_with_scores_is_refused(tmp_path):
    data, model = graph(), DIFFormer(5, 8, 3).eval()
    loader = NeighborLoader(data, [-1], batch_size=16)
    scores = model.inference(loader, tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"not hold the scores of 'inference' .*; delete the"):
        model.attention_memory(loader, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    torch.testing.assert_close(model.inference(loader, tmp_path), scores, rtol=0, atol=0)


class EluAttention(torch.nn.Module):
    """A layer of a user: no more than a state and its read."""

    def attention_state(self, x, batch=None, batch_size=None):
        k = x[:, None]
        return AttentionState.from_keys(k, k, 'elu', batch=batch, batch_size=batch_size)

    def forward(self, x, edge_index=None, batch=None, batch_size=None, *, state=None):
        state = self.attention_state(x, batch, batch_size) if state is None else state
        return state.read(x[:, None], 'elu', batch=batch).flatten(1)


def test_memory_of_a_layer_of_the_user():
    data = graph()
    model = GraphTransformer(5, 8, 3, 2, attn_type=lambda channels, heads: EluAttention()).eval()
    whole = model(data.x, data.edge_index)
    torch.testing.assert_close(model.inference(NeighborLoader(data, [-1])), whole.detach())
    memory = memory_of(model, data)
    batch = next(iter(NeighborLoader(data, [-1] * 2, batch_size=20)))
    nodes, out = read(model, batch, memory)
    torch.testing.assert_close(out, whole[nodes], rtol=1e-5, atol=1e-6)


def test_a_graph_without_nodes(tmp_path):
    data = Data(x=torch.empty(0, 5), edge_index=torch.empty(2, 0, dtype=torch.long))
    model = DIFFormer(5, 8, 3)
    memory = memory_of(model, data)
    memory.save(tmp_path / 'memory')
    for one in (memory, AttentionMemory.load(tmp_path / 'memory', model)):
        states = one.without(torch.empty(0, dtype=torch.long))
        assert [state.count.tolist() for state in states] == [[0], [0]]


def test_raises():
    data, model = graph(), DIFFormer(5, 8, 3).eval()
    memory = memory_of(model, data)
    assert repr(memory) == 'AttentionMemory(nodes=50, layers=2)'
    with pytest.raises(ValueError, match=r"'nodes' must be distinct.* without replacement"):
        memory.without(torch.tensor([1, 1]))
    for wrong in (torch.arange(50) < 3, torch.tensor([[1]]), torch.tensor([1.0]), [1]):
        with pytest.raises(ValueError, match=r"'nodes' must be a tensor \[n\] of ids in int64"):
            memory.without(wrong)
    for wrong in ([-1], [0, -50], [50]):
        with pytest.raises(ValueError, match="'nodes' must hold ids from 0 to 49"):
            memory.without(torch.tensor(wrong))
    with pytest.raises(ValueError, match="'states' must be one for each of 2 layers"):
        model(data.x, data.edge_index, states=memory.states[:1])
    with pytest.raises(
        ValueError, match="'num_keys' must be None without 'states' or 'process_group'"
    ):
        model(data.x, data.edge_index, num_keys=3)
    with pytest.raises(
        ValueError, match="'batch_size' must be given with 'batch' and 'process_group'"
    ):
        model(data.x, data.edge_index, torch.zeros(N, dtype=torch.long), process_group=object())
    with pytest.raises(ValueError, match="'degree' must hold one number per node"):
        model(data.x, data.edge_index, degree=data.degree[1:])
    with pytest.raises(ValueError, match="'degree' must be positive for nodes with edges"):
        model(data.x, data.edge_index, degree=torch.zeros(N))
    with pytest.raises(ValueError, match="'degree' must be None with a relational bias of order 2"):
        NodeFormer(5, 8, 3, num_features=8, relational_order=2)(
            data.x, data.edge_index, degree=data.degree
        )
    with pytest.raises(ValueError, match="'other' must hold some of the nodes of this state"):
        memory.without(torch.arange(3))[0].without(memory.states[0])


@pytest.mark.parametrize('name', MODELS)
def test_a_batch_has_the_weights_of_the_whole_graph(name):
    """Weights and their sums are sliced with the batch."""
    data, model = graph(), MODELS[name]().double().eval()
    # the same both ways
    one_way = torch.sin(data.edge_index.sum(0) * 7.0 + data.edge_index.prod(0)).double() + 1.5
    data = NodeDegree(weighted=True)(
        Data(x=data.x.double(), edge_index=data.edge_index, edge_weight=one_way)
    )
    memory = memory_of(model, data)
    whole = model(data.x, data.edge_index, edge_weight=data.edge_weight)
    for batch in NeighborLoader(data, [-1] * 3, batch_size=20, shuffle=True):
        nodes = batch.n_id[: batch.batch_size]
        states = {'states': memory.without(nodes), 'num_keys': nodes.numel()}
        out = model(
            batch.x, batch.edge_index, degree=batch.degree, edge_weight=batch.edge_weight, **states
        )
        torch.testing.assert_close(out[: nodes.numel()], whole[nodes], rtol=1e-9, atol=1e-9)


def test_memory_of_pruned_layers():
    """In the middle of training, when the weights that pruning makes are in the graph of the last
    step."""
    model, x = DIFFormer(6, 4, 3), torch.randn(12, 6)
    edges = torch.randint(12, (2, 40))
    for conv in model.convs:
        prune.l1_unstructured(conv.lin_key, 'weight', 0.3)
    model(x, edges).sum().backward()
    memory = model.attention_memory(NeighborLoader(Data(x=x, edge_index=edges), [-1], batch_size=5))
    z = model.input_layer(x).detach()
    torch.testing.assert_close(
        memory.states[0].sums.float(), model.convs[0].attention_state(z).sums.detach()
    )


def test_noise_of_keys_by_position_is_drawn_once():
    data = graph()
    data.pe = torch.randn(N, 3, dtype=torch.double)
    model = GraphTransformer(
        5,
        8,
        3,
        num_layers=1,
        heads=2,
        encodings={'pe': 3},
        position='pe',
        attn_kwargs={'feature_map': 'simplex', 'num_gumbel_samples': 4, 'temperature': 0.25},
    )
    memory = memory_of(model, data)
    nodes = torch.arange(5)
    first, second = (memory.without(nodes)[0] for _ in range(2))
    assert torch.equal(first.sums, second.sums)
    assert float(first.denominator.min()) > 0
    assert [state.count.tolist() for state in memory.without(torch.arange(N))] == [[0]]
    assert float(memory.without(torch.arange(N))[0].sums.abs().max()) < 1e-12


@pytest.mark.parametrize('samples', [1, 3])
@pytest.mark.parametrize('is_training', [False, True])
def test_a_memory_of_the_other_mode_is_refused(is_training, samples, tmp_path):
    """With one sample the states had equal sizes, and keys of two temperatures were added up."""
    data = Data(x=torch.randn(6, 4), edge_index=torch.randint(6, (2, 12)))
    model = NodeFormer(4, 8, 2, num_gumbel_samples=samples).train(is_training)
    memory = model.attention_memory(NeighborLoader(data, [-1], batch_size=4))
    memory.save(tmp_path / 'memory')
    memories = memory, AttentionMemory.load(tmp_path / 'memory', model)
    model.train(not is_training)
    read, built = ('evaluation', 'training') if is_training else ('training', 'evaluation')
    message = rf"^'states' must be of a memory that was built in {read}, .* \(got one of {built}\)"
    for memory in memories:
        for states, num_keys in ((memory.states, 0), (memory.without(torch.arange(6)), 6)):
            with pytest.raises(ValueError, match=message):
                model(data.x, data.edge_index, states=states, num_keys=num_keys)
            model.train(is_training)(data.x, data.edge_index, states=states, num_keys=num_keys)
            model.train(not is_training)


POSITIONED = {'encodings': {'pe': 5}, 'position': 'pe', 'attn_kwargs': {'feature_map': 'simplex'}}


@pytest.mark.parametrize(
    ('make', 'encodings'),
    [
        (lambda: NodeFormer(5, 8, 3, num_layers=1), {}),
        (lambda: GraphTransformer(5, 8, 3, num_layers=1, **POSITIONED), {'pe': torch.ones(N, 5)}),
    ],
    ids=['nodeformer', 'positions'],
)
def test_a_memory_of_other_random_features_is_refused(make, encodings, tmp_path):
    """The features of queries and keys had nothing to do with each other."""
    data, model = graph().update(encodings), make().eval()
    memory = memory_of(model, data)
    states = memory.without(torch.arange(N))
    expected = model(data.x, data.edge_index, states=states, **encodings)
    rounded = copy.deepcopy(model).bfloat16().float()
    rounded(data.x, data.edge_index, states=states, **encodings)
    memory.save(tmp_path / 'memory')
    other = make().eval()
    loaded = AttentionMemory.load(tmp_path / 'memory', other).without(torch.arange(N))
    message = r"'states' must be of keys with the random features of the layer .*'feature_map\.pro"
    with pytest.raises(ValueError, match=message):
        other(data.x, data.edge_index, states=loaded, **encodings)
    other.load_state_dict(model.state_dict())
    out = other(data.x, data.edge_index, states=loaded, **encodings)
    torch.testing.assert_close(out, expected)
    for module in model.modules():
        if isinstance(module, FeatureMap):
            module.redraw_projection()
    with pytest.raises(ValueError, match=message):
        model(data.x, data.edge_index, states=states, **encodings)


def test_a_memory_in_place_of_its_states_is_refused():
    data, model = graph(), SGFormer(5, 8, 3)
    memory = memory_of(model, data)
    message = r"'states' must be a list of states \(got AttentionMemory\); pass memory\.without"
    with pytest.raises(TypeError, match=message):
        model(data.x, data.edge_index, states=memory)


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        (5, r"'states' must be a list of states \(got int\); pass memory\.without"),
        ([None], r"'states\[0\]' must be an AttentionState, .* \(got NoneType\)"),
        ([{}], r"'states\[0\]' must be an AttentionState, .* \(got dict\); .*from_state_dict"),
    ],
)
def test_what_is_no_list_of_states_is_refused(wrong, message):
    data, model = graph(), SGFormer(5, 8, 3)
    with pytest.raises(TypeError, match=message):
        model(data.x, data.edge_index, states=wrong)


def test_a_file_of_another_number_of_layers_is_refused(tmp_path):
    memory_of(DIFFormer(5, 8, 3, num_layers=2), graph()).save(tmp_path / 'memory')
    with pytest.raises(
        ValueError, match=r"'model' must have 2 layers with attention, .* \(got 3\)"
    ):
        AttentionMemory.load(tmp_path / 'memory', DIFFormer(5, 8, 3, num_layers=3))
