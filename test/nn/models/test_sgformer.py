import copy

import pytest
import torch
import torch_geometric
from gradients import assert_same_gradients, gradients, leaves_of
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import (
    GAT,
    GCN,
    MLP,
    BatchNorm,
    DiffGroupNorm,
    FiLMConv,
    GATConv,
    GCNConv,
    GraphNorm,
    GraphSAGE,
    LayerNorm,
    MessagePassing,
    PairNorm,
    SuperGATConv,
)
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import DIFFormer, SGFormer
from torch_geometric_lgt.nn.models._batch_norm import ProcessBatchNorm, Processes
from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.nn.models._local_branch import local_edges
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.testing._process_checks import run_threads

EDGES = torch.tensor([[0, 2, 3, 1, 4, 5], [2, 3, 7, 4, 5, 6]])
BATCH = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0])


@pytest.mark.parametrize('aggregate', ['add', 'cat'])
@pytest.mark.parametrize('gnn_input', ['hidden', 'input'])
def test_branches_by_hand(aggregate, gnn_input):
    options = {'alpha': 0.7, 'beta': 0.4, 'aggregate': aggregate, 'gnn_input': gnn_input}
    model, x = SGFormer(6, 4, 3, **options).double().eval(), torch.randn(8, 6, dtype=torch.float64)
    first = torch.relu(model.norms[0](model.lin_in(x)))
    z = model.norms[1](0.4 * model.convs[0](first) + 0.6 * first)
    local = model.gnn(
        first if gnn_input == 'hidden' else x, *gcn_norm(EDGES, None, 8, dtype=torch.float64)
    )
    z = torch.cat([z, local], 1) if aggregate == 'cat' else 0.3 * z + 0.7 * local
    torch.testing.assert_close(model(x, EDGES), model.lin_out(z))


def test_default_network_is_the_gcn_of_pyg_without_its_messages():
    """Outputs, gradients and names of parameters; nothing of the size of edges times channels is
    kept."""
    edges, saved = torch.randint(40, (2, 900)), []
    model = SGFormer(5, 8, 3, gnn_num_layers=3, gnn_dropout=0.0, dropout=0.5).double().eval()
    plain = GCN(8, 8, 3, 8, norm='batch_norm').double().eval()
    plain.load_state_dict(model.gnn.state_dict())
    x = torch.randn(40, 8, dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor.numel()) or tensor, lambda tensor: tensor
    ):
        out = model.gnn(x, *local_edges(model, edges, 40, None, x.dtype))
    expected, grad = plain(x, edges), torch.randn(40, 8, dtype=torch.float64)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    found = gradients(out, leaves_of(model.gnn, x=x), grad)
    wanted = gradients(expected, leaves_of(plain, x=x), grad)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
    assert max(saved) < 940 * 8
    assert model.gnn.dropout.p == 0
    assert SGFormer(5, 8, 3, dropout=0.5).gnn.dropout.p == 0.5


@pytest.mark.parametrize(('gnn_input', 'layer_norm'), [('hidden', True), ('input', False)])
def test_residual_local_branch_by_hand(gnn_input, layer_norm):
    options = {
        'gnn_input': gnn_input,
        'layer_norm': layer_norm,
        'alpha': 1.0,
        'gnn_num_layers': 2,
        'dropout': 0.5,
    }
    model = SGFormer(6, 4, 3, gnn_residual=True, **options).double()
    x = torch.randn(8, 6, dtype=torch.float64)
    weights = gcn_norm(EDGES, None, 8, dtype=torch.float64)
    model(x, EDGES)  # means and variances that are not 0 and 1
    model.eval()
    z = model.layers(x, GraphContext(None))[0] if gnn_input == 'hidden' else x
    assert layer_norm == isinstance(model.gnn.norms[-1], BatchNorm)
    for conv, norm in zip(model.gnn.convs, model.gnn.norms, strict=True):
        out = norm(conv(z, *weights)).relu()
        z = out + z if z.size(1) == 4 else out
    torch.testing.assert_close(model(x, EDGES), model.lin_out(z))


@pytest.mark.parametrize('layer_norm', [True, False])
@pytest.mark.parametrize(
    ('residual', 'use_init'), [('initial', False), (False, True), (True, True), ('initial', True)]
)
def test_input_of_the_local_branch_in_each_layer_matches_dense(residual, use_init, layer_norm):
    """As in the authors' code: the first input is added to each layer, or beside its sums."""
    model = SGFormer(
        6,
        4,
        3,
        alpha=1.0,
        gnn_num_layers=3,
        layer_norm=layer_norm,
        gnn_residual=residual,
        gnn_use_init=use_init,
    ).double()
    model(torch.randn(8, 6, dtype=torch.float64), EDGES)  # means and variances not 0 and 1
    x = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    one = torch.ones(EDGES.size(1), dtype=torch.float64)
    matrix = dense.adjacency_matrix(EDGES, one, 8, 8) + torch.eye(8, dtype=torch.float64)
    total = matrix.sum(1)
    matrix = total[:, None] ** -0.5 * matrix * total**-0.5
    model.eval()
    z_0 = z = model.input_layer(x)
    gnn = model.gnn
    for layer, (conv, norm) in enumerate(zip(gnn.convs, gnn.norms, strict=True)):
        inputs, weight = matrix @ z, conv.lin.weight
        if use_init:
            inputs = torch.cat([inputs, z_0], 1)
            weight = torch.cat([weight, gnn.lin_inits[layer].weight], 1)
        out = inputs @ weight.t() + conv.bias
        if layer_norm:
            norm = norm.module
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            out = (out - norm.running_mean) * scale + norm.bias
        out = out.relu()
        z = out + {'initial': z_0, True: z, False: 0}[residual]
    expected, actual = model.lin_out(z), model(x, EDGES)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    assert_same_gradients(actual, expected, leaves_of(model.gnn, x=x), rtol=1e-9, atol=1e-10)
    (out,) = run_threads(1, lambda rank, group: model(x, EDGES, process_group=group))
    torch.testing.assert_close(out, actual)


def test_local_branch_with_its_input_is_reset():
    model = SGFormer(6, 4, 3, gnn_use_init=True)
    before = [lin.weight.clone() for lin in model.gnn.lin_inits]
    model.reset_parameters()
    assert not any(
        torch.equal(lin.weight, old) for lin, old in zip(model.gnn.lin_inits, before, strict=True)
    )


def test_local_branch_ignores_given_self_loops_and_can_be_explained():
    """Each node has one self loop, however many are given, and PyG's mask of an explanation has a
    place for each edge."""
    edges = torch.tensor([[0, 0, 1, 2, 2, 3], [0, 1, 2, 2, 2, 0]])
    GCNConv(4, 8)  # PyG compiles a propagate for this class that masks no edges
    model, x = SGFormer(4, 8, 3, alpha=1.0).eval(), torch.randn(4, 4)
    assert type(model.gnn.convs[0])._orig_propagate is MessagePassing.propagate
    expected = model(x, edges)
    torch.testing.assert_close(expected, model(x, edges[:, edges[0] != edges[1]]))
    mask = torch.nn.Parameter(torch.full((6,), 40.0))
    set_masks(model, mask, edges)
    torch.testing.assert_close(model(x, edges), expected)
    set_masks(model, torch.nn.Parameter(torch.full((6,), -40.0)), edges)
    assert not torch.allclose(model(x, edges), expected)
    clear_masks(model)
    torch.testing.assert_close(model(x, edges), expected)


@pytest.mark.parametrize('normalize', [True, False])
def test_a_gcn_of_the_user_is_the_default_one(normalize):
    """Without weights of its own it gets those of the edges, from given degrees, too."""
    gnn = GCN(8, 8, 2, 8, normalize=normalize)
    model = SGFormer(4, 8, 3, gnn=gnn, alpha=1.0).eval()
    x = torch.randn(6, 4)
    edges = torch.randint(6, (2, 9))
    expected = GCN(8, 8, 2, 8)
    expected.load_state_dict(gnn.state_dict())
    torch.testing.assert_close(
        model(x, edges), model.lin_out(expected(model.input_layer(x), edges))
    )
    torch.testing.assert_close(model(x, sorted_edges(edges, 6, 6)), model(x, edges))
    if not normalize:
        assert not torch.allclose(model(x, edges, degree=torch.full((6,), 9)), model(x, edges))


def test_nothing_is_normalised():
    model = SGFormer(6, 4, 3, gnn_num_layers=3, layer_norm=False)
    assert not any('norm' in type(module).__name__.lower() for module in model.modules())
    assert set(SGFormer(6, 4, 3, value_projection=False).state_dict()) < set(
        SGFormer(6, 4, 3).state_dict()
    )
    assert SGFormer(6, 4, 3, value_projection=False).convs[0].lin_value is None


def test_any_network_over_the_edges():
    gnn = torch_geometric.nn.GAT(4, 4, num_layers=1)
    model = SGFormer(6, 4, 3, gnn=gnn)
    assert model.gnn is gnn
    before = gnn.convs[0].lin.weight.clone()
    model.reset_parameters()
    assert not torch.equal(gnn.convs[0].lin.weight, before)


@pytest.mark.skipif(not hasattr(torch_geometric.nn, 'SGFormer'), reason='PyG has it from 2.7 on')
def test_independent_of_the_batch_where_the_model_of_pyg_is_not():
    """The smaller graph of a batch of two, whose larger one changes its size."""
    x = torch.randn(8, 6)
    small, edges = BATCH == 1, EDGES[:, BATCH[EDGES[0]] == BATCH[EDGES[1]]]
    ours = SGFormer(6, 4, 3).eval()
    theirs = torch_geometric.nn.SGFormer(6, 4, 3).eval()
    results = []
    for model in (ours, theirs):
        small_edges = torch.tensor([[0, 1], [1, 2]])  # 4 to 5 to 6
        together = model(x, edges, BATCH)[small]
        alone = model(x[small], small_edges, torch.zeros(3, dtype=torch.long))
        results.append(float((together - alone).norm().detach() / alone.norm().detach()))
    assert results[0] < 1e-6
    assert results[1] > 1e-4


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'alpha': 1.1}, "'alpha' must be from 0 to 1"),
        ({'beta': -0.1}, "'beta' must be from 0 to 1"),
        ({'aggregate': 'max'}, "'aggregate' must be"),
        ({'gnn_input': 'x'}, "'gnn_input' must be"),
        ({'gnn_residual': 'first'}, "'gnn_residual' must be one of False, True, 'initial'"),
        ({'gnn_input': 'input', 'gnn_use_init': True}, "'gnn_input' must be 'hidden' with"),
        ({'gnn_input': 'input', 'gnn_residual': 'initial'}, "'gnn_input' must be 'hidden' with"),
        ({'norm': 'max'}, "'norm' must be one of"),
        ({'gnn_num_layers': 0}, "'gnn_num_layers' must be at least 1"),
        ({'gnn_dropout': 1.5}, r"^'gnn_dropout' must be at least 0 and below 1 \(got 1\.5\)$"),
        ({'gnn': 'GCN'}, r"'gnn' must be a network, such as GCN\(4, .* or None .* \(got 'GCN'\)$"),
        ({'gnn': MLP([4, 4])}, r"'gnn' must take edges as its second argument \(got MLP, which ta"),
        ({'gnn': GCN, 'gnn_input': 'input'}, r"'gnn' must be a network, such as GCN\(6, .*GCN"),
    ],
)
def test_raises(options, message):
    with pytest.raises(ValueError, match=message):
        SGFormer(6, 4, 3, **options)


def norm_over_threads(norm, parts):
    """The outputs and gradients of the parts, each with three rows more that are no node of its
    process, and the norms afterwards."""

    def work(rank, group):
        part, layer = parts[rank].clone().requires_grad_(), copy.deepcopy(norm)
        out = layer(
            torch.cat([part, part.new_full((3, part.size(1)), 7.0)]), Processes(group, part.size(0))
        )[: part.size(0)]
        (out * torch.arange(part.size(1)) * out.sin()).sum().backward()
        return out.detach(), part.grad, layer

    return run_threads(len(parts), work)


@pytest.mark.parametrize(
    'options', [{}, {'affine': False}, {'momentum': None}, {'track_running_stats': False}]
)
@pytest.mark.parametrize(('dtype', 'bound'), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_batch_norm_over_processes_is_that_of_all_rows(options, dtype, bound):
    """Also after several steps, far from 0, and where a process has no row or one."""
    norm = ProcessBatchNorm(5, **options).to(dtype)
    x = 30 + torch.randn(20, 5, dtype=dtype)
    plain, reference = copy.deepcopy(norm), torch.nn.BatchNorm1d(5, **options).double()
    for _ in range(2):
        leaf = x.double().clone().requires_grad_()
        expected = reference(leaf)
        (expected * torch.arange(5) * expected.sin()).sum().backward()
        results = norm_over_threads(norm, x.split([0, 1, 12, 7]))
        norm = results[0][2]
        for actual, other in (
            (torch.cat([out for out, *_ in results]), expected),
            (torch.cat([grad for _, grad, _ in results]), leaf.grad),
        ):
            torch.testing.assert_close(actual.double(), other, rtol=bound, atol=30 * bound)
        for name, buffer in reference.named_buffers():
            for *_, layer in results:
                torch.testing.assert_close(
                    getattr(layer.module, name).to(buffer.dtype), buffer, rtol=bound, atol=bound
                )
    torch.testing.assert_close(
        plain(x), torch.nn.BatchNorm1d(5, **options).to(dtype)(x), rtol=0, atol=0
    )


def test_batch_norm_over_processes_without_rows_or_with_one():
    results = norm_over_threads(ProcessBatchNorm(5), torch.empty(0, 5).split([0, 0]))
    for *_, layer in results:
        assert torch.equal(layer.module.running_mean, torch.zeros(5))
        assert torch.equal(layer.module.running_var, torch.ones(5))
    with pytest.raises(ValueError, match="'process_group' must have more than 1 node in training"):
        norm_over_threads(ProcessBatchNorm(5), torch.ones(1, 5).split([0, 1]))
    frozen = ProcessBatchNorm(5).eval()
    ((out, *_),) = norm_over_threads(frozen, torch.ones(1, 5).split([1]))
    assert torch.equal(out, frozen(torch.ones(1, 5)))
    untracked, x = ProcessBatchNorm(5, track_running_stats=False).eval(), torch.randn(9, 5)
    outs = [out for out, *_ in norm_over_threads(untracked, x.split([4, 5]))]
    torch.testing.assert_close(torch.cat(outs), untracked(x))


@pytest.mark.parametrize(
    ('norm', 'trained', 'evaluated'),
    [
        ('batch_norm', False, True),
        (torch.nn.BatchNorm1d(8, track_running_stats=False), False, False),
        (torch.nn.SyncBatchNorm(8), False, True),
        ('instance_norm', False, False),
        (GraphNorm(8), False, False),
        (PairNorm(), False, False),
        (DiffGroupNorm(8, 2), False, True),
        (LayerNorm(8, mode='graph'), False, False),
        (LayerNorm(8, mode='node'), True, True),
        (None, True, True),
    ],
)
def test_norms_of_the_user_over_processes(norm, trained, evaluated):
    """One that would see the nodes of one process ends in an error before any process waits for
    another."""
    model = SGFormer(6, 8, 3, gnn=GCN(8, 8, 2, 8, norm=norm)).double()
    x = torch.randn(8, 6, dtype=torch.float64)
    for training, passes in ((True, trained), (False, evaluated)):
        model.train(training)
        if passes:
            (out,) = run_threads(1, lambda rank, group: model(x, EDGES, process_group=group))
            torch.testing.assert_close(out, model(x, EDGES))
        else:
            with pytest.raises(
                ValueError,
                match=(
                    r"'gnn' must not normalise over nodes with 'process_group' \(got .* as "
                    r"'norms.0"
                ),
            ):
                model(x, EDGES, process_group=object())


@pytest.mark.parametrize('gnn', [None, GraphSAGE(8, 8, 2)], ids=['default', 'other'])
def test_wrong_edges_end_in_an_error_before_any_process_waits_for_another(gnn):
    model, x = SGFormer(6, 8, 3, gnn=gnn), torch.randn(8, 6)
    with pytest.raises(ValueError, match=r"'edge_index' must hold .* ids from 0 to 7"):
        model(x, EDGES + 3, process_group=object())
    with pytest.raises(ValueError, match="'edge_weight' must"):
        model(x, EDGES, edge_weight=torch.ones(3), process_group=object())


def test_hooks_of_the_default_norm_run_over_processes():
    model, x, seen = SGFormer(6, 8, 3), torch.randn(8, 6), []
    model.gnn.norms[0].register_forward_hook(
        lambda module, inputs, out: seen.append(out) or 2 * out
    )
    (out,) = run_threads(1, lambda rank, group: model(x, EDGES, process_group=group))
    torch.testing.assert_close(out, model(x, EDGES))
    torch.testing.assert_close(*seen)


def test_residual_over_sparse_features():
    """The summand of the first layer is the input itself."""
    x, edges = torch.randn(9, 5).relu(), torch.randint(9, (2, 30))
    model = SGFormer(5, 5, 3, gnn_input='input', gnn_residual=True).eval()
    torch.testing.assert_close(model(x.to_sparse_csr(), edges), model(x, edges))


def test_residual_of_a_first_layer_of_another_width():
    """The layer cannot add its input; the later ones do."""
    x, edges = torch.randn(9, 5), torch.randint(9, (2, 30))
    gnn = SGFormer(5, 8, 3, gnn_input='input', gnn_residual=True).eval().gnn
    z = gnn.norms[0](gnn.convs[0](x, edges)).relu()
    torch.testing.assert_close(gnn(x, edges), z + gnn.norms[1](gnn.convs[1](z, edges)).relu())


@pytest.mark.filterwarnings('ignore:Converting sparse tensor to CSR:UserWarning')
@pytest.mark.parametrize('gnn', [GCN, GAT, GraphSAGE])
def test_a_network_sees_one_graph_in_every_format(gnn):
    """With self loops, of which PyG's normalisation makes another thing in a sparse matrix."""
    edges = torch.cat([torch.randint(9, (2, 30)), torch.arange(4).expand(2, -1)], 1).unique(dim=1)
    matrix = torch.sparse_coo_tensor(
        edges.flip(0), torch.ones(edges.size(1)), (9, 9), check_invariants=False
    )
    model, x = SGFormer(5, 8, 3, gnn=gnn(8, 8, 2)).eval(), torch.randn(9, 5)
    for form in (matrix, matrix.to_sparse_csr(), matrix.to_sparse_csc()):
        torch.testing.assert_close(model(x, form), model(x, edges))


@pytest.mark.parametrize('norm', ['GraphNorm', 'PairNorm', 'InstanceNorm', 'LayerNorm'])
def test_norms_of_another_network_stay_within_a_graph(norm):
    model = SGFormer(6, 8, 3, gnn=GraphSAGE(8, 8, 2, norm=norm)).double().eval()
    x, batch = torch.randn(20, 6, dtype=torch.double), torch.arange(20) // 10
    edges = torch.randint(10, (2, 30))
    together = model(x, torch.cat([edges, edges + 10], 1), batch)
    alone = model(x[10:], edges, torch.zeros(10, dtype=torch.long))
    torch.testing.assert_close(together[10:], alone, rtol=1e-10, atol=1e-12)


class Centred(torch.nn.Module):
    """Subtracts the mean of each graph."""

    def forward(self, x, edge_index, batch=None):
        batch = x.new_zeros(x.size(0), dtype=torch.long) if batch is None else batch
        return x - torch_geometric.nn.global_mean_pool(x, batch)[batch]


@pytest.mark.parametrize('wrap', [torch.nn.Module.eval, torch.compile], ids=['eager', 'compiled'])
@pytest.mark.parametrize('gnn', [Centred(), DIFFormer(8, 8, 8, num_layers=1).double()])
def test_networks_that_take_a_batch_vector_get_it(gnn, wrap):
    """The graphs of a batch attended to each other there, without an error."""
    model = SGFormer(6, 8, 3, gnn=wrap(gnn)).double().eval()
    x, batch = torch.randn(4, 6, dtype=torch.double), torch.tensor([0, 0, 1, 1])
    with torch.compiler.set_stance('force_eager'):
        together = model(x, torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), batch)
        alone = model(x[:2], torch.tensor([[0, 1], [1, 0]]))
    torch.testing.assert_close(together[:2], alone, rtol=1e-10, atol=1e-12)


def test_networks_without_weights_of_edges_do_not_get_them_as_batch_vector():
    model, x = SGFormer(6, 8, 3, gnn=Centred()), torch.randn(8, 6)
    with pytest.raises(ValueError, match=r"'gnn' must take weights of edges .* \(got Centred\(\)"):
        model(x, EDGES, edge_weight=torch.zeros(6))


class WithoutWeights(torch.nn.Identity):
    def forward(self, x, edge_index):
        return x


@pytest.mark.parametrize('layer', [GATConv, SuperGATConv, FiLMConv, WithoutWeights])
def test_networks_with_another_third_argument_do_not_get_weights_of_edges(layer):
    """GATConv got them as features of edges, which it dropped."""
    model, x = SGFormer(6, 8, 3, gnn=layer(8, 8)).eval(), torch.randn(8, 6)
    with pytest.raises(ValueError, match=r"weights of edges .* 'edge_weight' \(got .*takes none"):
        model(x, EDGES, edge_weight=torch.ones(6))


class Open(torch.nn.Module):
    def forward(self, x, edge_index, *args):
        (weight,) = args
        return x * weight.sum()


def test_networks_with_any_arguments_get_weights_of_edges():
    model, x = SGFormer(6, 8, 3, gnn=Open()).eval(), torch.randn(8, 6)
    first, second = (model(x, EDGES, edge_weight=torch.full((6,), w)) for w in (1.0, 2.0))
    assert not torch.equal(first, second)


def test_the_default_network_reads_the_in_degrees_of_a_pair():
    model, x, degree = SGFormer(6, 8, 3).eval(), torch.randn(12, 6), torch.arange(12) + 9
    edges = torch.randint(12, (2, 40))
    expected = model(x, edges, degree=degree)
    assert torch.equal(model(x, edges, degree=(degree + 1, degree)), expected)


def test_a_network_that_counts_degrees_refuses_those_of_the_full_graph():
    """It ignored them, and normalised by the degrees in the batch."""
    model, x = SGFormer(6, 8, 3, gnn=GCN(8, 8, 2)), torch.randn(8, 6)
    with pytest.raises(ValueError, match="'degree' must be None unless 'gnn' is the default one"):
        model(x, EDGES, degree=torch.full((8,), 3))
    sage = SGFormer(6, 8, 3, gnn=GraphSAGE(8, 8, 2)).eval()  # which reads no degrees
    assert torch.equal(sage(x, EDGES, degree=torch.full((8,), 3)), sage(x, EDGES))


@pytest.mark.parametrize(
    'gnn', [GCN(8, 8, 2), GCN(8, 8, 2, normalize=False), GraphSAGE(8, 8, 2)], ids=repr
)
def test_another_network_may_be_set(gnn):
    """It got the edges in the format of the network that the model was made with."""
    x, edges = torch.randn(12, 6), torch.randint(12, (2, 40))
    default, made = SGFormer(6, 8, 3).eval(), SGFormer(6, 8, 3, gnn=copy.deepcopy(gnn)).eval()
    branch, replaced = default.gnn, SGFormer(6, 8, 3).eval()
    replaced.gnn = copy.deepcopy(gnn).eval()
    replaced.load_state_dict(made.state_dict())
    assert torch.equal(replaced(x, edges), made(x, edges))
    expected = default(x, edges, edge_weight=torch.arange(40) / 40)
    made.gnn = branch
    made.load_state_dict(default.state_dict())
    assert torch.equal(made(x, edges, edge_weight=torch.arange(40) / 40), expected)


@pytest.mark.parametrize('gnn', [None, GCN(8, 8, 2, normalize=False)], ids=['default', 'GCN'])
def test_a_compiled_network_gets_the_weights_of_gcn(gnn):
    """A GCN got none, and the default network knew neither the first input nor the processes."""
    options = {'gnn_residual': 'initial' if gnn is None else False}
    model = SGFormer(6, 8, 3, gnn=gnn, **options).double().eval()
    compiled = SGFormer(6, 8, 3, gnn=torch.compile(copy.deepcopy(model.gnn))).double().eval()
    for name in ('lin_in', 'lin_out', 'convs', 'norms'):
        setattr(compiled, name, getattr(model, name))
    x, edges, degree = torch.randn(12, 6).double(), torch.randint(12, (2, 40)), torch.arange(12) + 9
    with torch.compiler.set_stance('force_eager'):
        found = compiled(x, edges, degree=degree)
        streamed = compiled.inference(NeighborLoader(Data(x=x, edge_index=edges), [-1]))
    torch.testing.assert_close(found, model(x, edges, degree=degree), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(streamed, model(x, edges), rtol=1e-10, atol=1e-12)
    context = GraphContext(None, process_group=object(), num_keys=4)
    assert compiled._gnn_arguments(context) == model._gnn_arguments(context)


@pytest.mark.parametrize('width', [1, 4])
def test_a_network_of_another_width_is_refused(width):
    """One column was added to all columns of the attention, without an error."""
    model, x = SGFormer(6, 8, 3, gnn=GCN(8, 4, 2, width, normalize=False)), torch.randn(8, 6)
    message = rf"^'gnn' must return 'hidden_channels' = 8 channels \(got {width} from GCN\(.*\)\)$"
    with pytest.raises(ValueError, match=message):
        model(x, EDGES)
    with pytest.raises(ValueError, match=message):
        model.inference(NeighborLoader(Data(x=x, edge_index=EDGES), [-1], batch_size=3))
