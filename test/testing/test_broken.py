"""Classes with one fault each, which the checks must find."""

import contextlib
import copy
import itertools
import pickle
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.typing import SparseTensor

from torch_geometric_lgt.distributed import all_reduce_moments, all_reduce_sum
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.loader import NodePartitionLoader
from torch_geometric_lgt.nn import SGFormerConv, check_features
from torch_geometric_lgt.testing import _layer_checks
from torch_geometric_lgt.testing._layer_checks import plain_call
from torch_geometric_lgt.testing._process_checks import check_processes
from torch_geometric_lgt.testing._samples import sample
from torch_geometric_lgt.testing.checks import (
    check_layer,
    check_loader,
    check_model,
    check_transform,
)
from torch_geometric_lgt.transforms import NodeDegree


class Broken(torch.nn.Module):
    """A linear layer over each graph's mean and the sums over neighbours that keeps every promise
    but one."""

    def __init__(self, fault):
        super().__init__()
        self.fault, self.lin = fault, torch.nn.Linear(6, 3)
        self.weight = torch.nn.Parameter(torch.ones(1)) if fault == 'reset' else None
        self.scale = torch.rand(3) if fault == 'state' else torch.ones(())
        self.register_buffer('calls', torch.zeros(()))

    def reset_parameters(self):
        if self.fault != 'reset':
            self.lin.reset_parameters()
        if self.fault == 'seed':
            self.lin.weight.data += next(COUNTER)

    def forward(self, x, edge_index, batch=None, batch_size=None, edge_weight=None):
        num_nodes, has_weight = x.size(0), edge_weight is not None
        if self.fault != 'unchecked':
            check_features(x, self.lin, 6)
        if (self.fault == 'training seed' and self.training) or self.fault == 'global seed':
            torch.manual_seed(0)
        if self.fault == 'calls':
            self.calls = self.calls + 1
        if self.fault == 'unread':
            return self.lin(x)
        if self.fault == 'empty':
            x.max()
        if self.fault == 'matrix' and batch is None and edge_index.layout == torch.sparse_csr:
            raise NotImplementedError('no CSR')
        if self.fault != 'unchecked':
            segments(batch, num_nodes, batch_size)
        batch = torch.zeros(num_nodes, dtype=torch.long) if batch is None else batch
        size = 16 if batch_size is None else batch_size
        one = torch.ones(num_nodes, 1, dtype=x.dtype)
        total, count = (
            torch.zeros(size, t.size(1), dtype=x.dtype).index_add(0, batch, t) for t in (x, one)
        )
        mean = total / count.clamp(min=1)
        if self.fault == 'dropped' and has_weight:
            raise ValueError("'edge_weight' must be None")
        edges, edge_weight = weighted_edges(edge_index, num_nodes, num_nodes, edge_weight)
        message = x[edges[0]]
        if edge_weight is not None and not (
            self.fault in ('weights', 'dropped') or (self.fault == 'values' and not has_weight)
        ):
            message = message * edge_weight.to(x.dtype)[:, None]
        hidden = x + mean[batch] + 0.1 * torch.zeros_like(x).index_add(0, edges[1], message)
        out = self.lin(hidden) * self.scale.to(x.dtype)
        if self.fault == 'hook':
            return torch.nn.functional.linear(hidden, self.lin.weight, self.lin.bias)
        if self.fault == 'parametrisation' and 'parametrizations' in self.lin._modules:
            return torch.nn.functional.linear(
                hidden, self.lin.parametrizations.weight.original, self.lin.bias
            )
        if self.fault == 'frozen' and not isinstance(self.lin, torch.nn.Linear):
            return self.lin.module(hidden) * self.lin.factor.detach()
        if self.fault == 'order':
            return out * torch.arange(num_nodes, dtype=x.dtype)[:, None]
        if self.fault == 'batch':
            return out + x.mean()
        if self.fault == 'format' and edge_index.dtype == torch.int32:
            return out + 1
        if self.fault == 'large':
            return out + x.sum(1, keepdim=True).exp()
        if self.fault == 'neighbour':
            return out + 1e-3 * x[edge_index[0]].sum()
        if self.fault == 'poison' and self.training and not float(x.detach().max()) <= 1e9:
            return out.sin()
        if self.fault == 'tiny':
            # the direction of what is left of one node less its mean, summed in the batch's order
            rest = x - (total * num_nodes / 3 / (count * num_nodes / 3).clamp(min=1e-9))[batch]
            return out + rest[:, :3] / rest.norm(dim=1, keepdim=True).clamp(min=1e-30)
        if self.fault == 'gradient':
            return out.detach() * 2 + out
        if self.fault == 'noise':
            return out + 1e-12 * torch.rand(1)
        if self.fault == 'writes':
            x.data[:1] += 1e-12
        if self.fault == 'compile':
            torch._dynamo.graph_break()
        if self.fault == 'size' and x.size(0) % 7 == 5:
            return out + 0
        if self.fault == 'number of graphs' and batch_size is not None and batch_size % 7 == 4:
            return out + 0
        if self.fault == 'precision' and x.dtype == torch.bfloat16:
            return out * 1.1
        if self.fault == 'cost':
            return out + (one @ one.t()).mean(1, keepdim=True)
        return out


COUNTER = itertools.count()
FAULTS = {
    'order': 'a permutation of the nodes',
    'batch': 'a graph depends on the batch',
    'neighbour': 'a graph depends on',
    'poison': 'the output of a graph depends on its neighbour in the batch in training',
    'tiny': 'the output of a tiny graph depends on the batch',
    'format': 'edges as int32',
    'weights': "'edge_weight' is dropped",
    'values': 'weights as COO',
    'dropped': 'the values of a COO matrix are dropped',
    'large': 'features times 1000 make outputs or gradients that are not finite',
    'unchecked': 'another width in',
    'empty': 'a graph without nodes or edges ends in RuntimeError',
    'matrix': 'a call with edges as CSR ends in NotImplementedError',
    'unread': "negative ids in 'batch' end in no error",
    'gradient': 'Jacobian mismatch',
    'hook': "a hook at 'lin'",
    'parametrisation': "no gradient reaches a parametrisation at 'lin'",
    'frozen': "no gradient reaches another module in its place at 'lin'",
    'noise': 'evaluation draws',
    'training seed': 'a call in training seeds the global random state',
    'global seed': 'a call in training seeds the global random state',
    'calls': 'evaluation changes the state dict',
    'state': 'a state dict of the layer is another layer',
    'writes': 'an input was written to',
    'reset': "'reset_parameters' resets nothing",
    'seed': 'one seed makes two layers',
    'precision': 'with the relative error',
    'cost': 'at 4N nodes',
}


def test_a_layer_that_keeps_every_promise_passes():
    check_layer(lambda: Broken(None), 6)


def test_a_layer_of_open_size_passes():
    check_layer(lambda: SGFormerConv(-1, 8), 6)


@pytest.mark.parametrize('fault', FAULTS)
def test_each_broken_promise_is_found(fault):
    with pytest.raises(AssertionError, match=FAULTS[fault]):
        check_layer(lambda: Broken(fault), 6)


class Plain(torch.nn.Module):
    """A layer as a user writes it first."""

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(6, 3)

    def forward(self, x, edge_index, batch=None):
        return self.lin(x.to(self.lin.weight.dtype))


def test_messages_say_what_a_layer_of_a_user_lacks():
    layer, (x, edge_index, batch) = Plain().double().eval(), sample(9, 6)
    message = (
        "another width in 'x' end in RuntimeError('mat1 and mat2 shapes cannot be multiplied (9x5 "
        "and 6x3)'), no ValueError that names it; call torch_geometric_lgt.nn.check_features first "
        'in forward'
    )
    pattern = re.escape(message).replace('mat1', '(addmm: )?mat1', 1)  # since PyTorch 2.14
    with pytest.raises(AssertionError, match=f'^{pattern}$'):
        _layer_checks._check_errors(layer, plain_call, x, edge_index, batch)
    message = (
        "another module in its place at 'lin' ends in AttributeError(\"'Scaled' object has no "
        "attribute 'weight'\"); call the part as a module and read no attribute of it, for a user "
        'may put an adapter in its place; torch_geometric_lgt.nn.check_features compares the input '
        'with the parameters of any module'
    )
    with pytest.raises(AssertionError, match=f'^{re.escape(message)}$'):
        _layer_checks.check_wrapped(layer, plain_call, x, edge_index, batch)
    message = (
        "the layer has no method 'reset_parameters'; define one that draws all parameters anew, as "
        "PyG's layers do: call torch_geometric.nn.inits.reset(module) for each of self.children()"
    )
    with pytest.raises(AssertionError, match=f'^{re.escape(message)}$'):
        _layer_checks._check_reset(layer, plain_call, x, edge_index, batch)


@pytest.mark.parametrize('check', [check_layer, check_model])
def test_a_layer_in_the_place_of_a_function_that_makes_it(check):
    message = r"'make' must be a function, such as lambda: Plain\(..\) \(got a Plain\)"
    with pytest.raises(TypeError, match=message):
        check(Plain(), in_channels=6)


@pytest.mark.parametrize(
    ('fault', 'message'),
    [
        ("'batch'", 'kernel_attention checks it'),
        ("'edge_index'", 'sorted_edges checks it'),
    ],
)
def test_messages_name_the_function_that_checks_an_argument(fault, message):
    class Unchecked(Plain):
        def forward(self, x, edge_index, batch=None):
            check_features(x, self.lin, 6)
            if fault == "'edge_index'":
                segments(batch, x.size(0))
            return self.lin(x) + edge_index.size(1)

    layer, (x, edge_index, batch) = Unchecked().double().eval(), sample(9, 6)
    expected = f'in {fault} end in no error; torch_geometric_lgt.functional.{message}'
    with pytest.raises(AssertionError, match=f'{re.escape(expected)}$'):
        _layer_checks._check_errors(layer, plain_call, x, edge_index, batch)


def test_graph_breaks_are_found():
    with pytest.raises(AssertionError, match=r'torch.compile ends in Unsupported'):
        check_layer(lambda: Broken('compile'), 6)


@pytest.mark.parametrize('fault', ['size', 'number of graphs'])
def test_a_compilation_for_each_size_is_found(fault):
    with pytest.raises(AssertionError, match=r'torch.compile ends in RecompileError'):
        check_layer(lambda: Broken(fault), 6)


def test_sparse_matrices_are_coalesced():
    """Layers of PyG read the indices of a matrix, which an uncoalesced one refuses."""

    def call(layer, x, edge_index, *args, **kwargs):
        if getattr(edge_index, 'layout', None) == torch.sparse_coo:
            assert edge_index.is_coalesced()
        return plain_call(layer, x, edge_index, *args, **kwargs)

    check_layer(lambda: Broken(None), 6, call)


class BrokenModel(Broken):
    """A model with these scores and one fault."""

    def __init__(self, fault):
        super().__init__(None)
        self.model_fault = fault
        self.idle = torch.nn.Parameter(torch.ones(1)) if fault == 'idle' else None

    def forward(self, x, edge_index, batch=None, batch_size=None, edge_weight=None):
        out = super().forward(x, edge_index, batch, batch_size, edge_weight)
        if self.model_fault == 'normalised':
            return out.log_softmax(1)
        if self.model_fault == 'stuck':
            return 1e-6 * out
        if self.model_fault == 'training' and self.training:
            return out + 1e-8 * next(COUNTER) * x[:, :3]
        return out

    def inference(self, data):
        weight = None if self.model_fault == 'parts' else data.edge_weight
        out = self.eval()(data.x, data.edge_index, edge_weight=weight).detach()
        return out + 1e-6 if self.model_fault == 'inference' else out

    def load_state_dict(self, state_dict, *args):
        if self.model_fault != 'weights' or state_dict['lin.weight'].shape == self.lin.weight.shape:
            super().load_state_dict(state_dict, *args)


MODEL_FAULTS = {
    'normalised': 'the scores are normalised',
    'idle': 'no gradient reaches idle',
    'stuck': 'the loss does not fall',
    'training': 'one seed makes two trainings',
    'inference': "'inference' differs",
    'parts': "'inference' drops weights of edges",
    'weights': 'the weights of a model of other sizes are taken',
}


def test_a_model_that_keeps_every_promise_passes():
    check_model(lambda: BrokenModel(None), 6, batches=lambda data: data)


@pytest.mark.parametrize('fault', MODEL_FAULTS)
def test_each_broken_promise_of_a_model_is_found(fault):
    with pytest.raises(AssertionError, match=MODEL_FAULTS[fault]):
        check_model(lambda: BrokenModel(fault), 6, batches=lambda data: data)


class BrokenProcesses(torch.nn.Module):
    """A linear layer and a batch normalisation over several processes, with one fault."""

    def __init__(self, fault):
        super().__init__()
        self.process_fault = fault
        self.lin = torch.nn.Linear(6, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.reset_parameters()

    def reset_parameters(self):
        self.lin.reset_parameters()
        self.norm.reset_parameters()

    def forward(
        self, x, edge_index, batch=None, batch_size=None, *, process_group=None, num_keys=None
    ):
        check_features(x, self.lin, 6)
        segments(batch, x.size(0), batch_size)
        out, fault = self.lin(x), self.process_fault
        if process_group is None or not self.training or fault == 'local':
            return self.norm(out)
        if fault == 'single' and num_keys == 1:
            raise ValueError('no variance of one')
        if fault == 'order' and num_keys == 0:
            all_reduce_sum(out.sum(), process_group)
        if fault == 'absent' and num_keys == 0:
            return self.norm(out)
        _, mean, variance = all_reduce_moments(
            out if fault == 'neighbours' else out[:num_keys], process_group
        )
        if fault == 'gradient':
            mean = mean.detach()
        if fault != 'running':
            with torch.no_grad():
                self.norm.num_batches_tracked += 1
                self.norm.running_mean.lerp_(mean, 0.1)
                self.norm.running_var.lerp_(variance * 40 / 39, 0.1)
        return (out - mean) / (variance + self.norm.eps).sqrt() * self.norm.weight + self.norm.bias


PROCESS_FAULTS = {
    'local': 'several processes differ from one',
    'neighbours': 'several processes differ from one',
    'single': 'no variance of one',
    'order': 'processes meet in different collectives',
    'absent': 'processes meet in different collectives: some wait for one that ended',
    'gradient': 'the gradient of lin.weight over several processes',
    'running': 'the buffer norm.running_mean after several processes',
}


def test_a_model_that_equals_one_process_passes():
    check_processes(lambda: BrokenProcesses(None), plain_call, *sample(40, 6)[:2])


@pytest.mark.parametrize('fault', PROCESS_FAULTS)
def test_each_broken_promise_over_processes_is_found(fault):
    with pytest.raises((AssertionError, ValueError), match=PROCESS_FAULTS[fault]):
        check_processes(lambda: BrokenProcesses(fault), plain_call, *sample(40, 6)[:2])


def test_the_check_of_models_runs_several_processes():
    with pytest.raises(AssertionError, match='several processes differ from one'):
        check_model(lambda: BrokenProcesses('local'), 6)


class BrokenTransform(NodeDegree):
    """The degrees of the nodes, with one fault."""

    def __init__(self, fault, cache_dir=None):
        super().__init__()
        self.fault, self.cache_dir = fault, cache_dir

    def __call__(self, data):
        return self.forward(data if self.fault == 'writes' else copy.copy(data))

    def forward(self, data):
        if self.fault == 'edges':
            data.degree = torch.zeros(data.num_nodes)
            return data
        if self.fault == 'error':
            raise KeyError('degree')
        if self.fault in ('name', 'nothing'):
            return data if self.fault == 'name' else None
        edges = data.edge_index
        data = super().forward(data)
        data.degree = data.degree.double()
        if self.fault == 'shape':
            data.degree = data.degree[:-1]
        if self.fault == 'order' and data.num_nodes > 0:
            data.degree[0] += 1
        if self.fault == 'noise':
            torch.rand(1)
        if self.fault == 'second':
            data.degree += next(COUNTER)
        if self.fault == 'batch':
            data.degree /= max(1, data.num_nodes)
        if self.fault == 'short' and edges.dtype == torch.int32:
            data.degree += 1
        return data if self.cache_dir is None else self.cached(data)

    def cached(self, data):
        path = Path(self.cache_dir) / 'degree.safetensors'
        path.parent.mkdir(exist_ok=True)
        if self.fault == 'cache' and path.exists() and path.stat().st_size > 0:
            content = path.read_bytes()
            data.degree = torch.frombuffer(
                bytearray(content[: len(content) // 8 * 8]), dtype=torch.float64
            )[: data.num_nodes]
        if self.fault == 'pickle' and path.exists() and path.stat().st_size > 0:
            with contextlib.suppress(pickle.UnpicklingError, ValueError, EOFError):
                pickle.loads(path.read_bytes())
        path.write_bytes(data.degree.numpy().tobytes())
        return data


TRANSFORM_FAULTS = {
    'error': r"the transform of Data\(.*\) ends in KeyError\('degree'\)",
    'name': "'degree' is not added as a tensor",
    'nothing': r"'degree' is not added as a tensor .* \(got None\)",
    'writes': 'the graph that was given is changed',
    'edges': "'edge_index' end in no error",
    'shape': 'has the shape',
    'order': 'a permutation of the nodes',
    'noise': 'draws from the global random state',
    'second': 'a second run differs',
    'batch': 'a graph depends on the batch',
    'short': 'edges as int32',
    'cache': 'a cache that was cut off is read|has the shape',
    'pickle': 'a pickle in the cache was run',
}


def test_a_transform_that_keeps_every_promise_passes():
    check_transform(lambda **options: BrokenTransform(None, **options), 'degree', cached=True)


@pytest.mark.parametrize('fault', TRANSFORM_FAULTS)
def test_each_broken_promise_of_a_transform_is_found(fault):
    with pytest.raises(AssertionError, match=TRANSFORM_FAULTS[fault]):
        check_transform(lambda **options: BrokenTransform(fault, **options), 'degree', cached=True)


def broken_loader(fault, data, shuffle, num_workers, multiprocessing_context):
    if fault == 'writes':
        data.x += 1
    if fault == 'empty' and data.num_edges == 0:
        return
    if fault == 'fixed':
        torch.manual_seed(0)
    count = next(COUNTER)
    if fault == 'adjacency' and isinstance(data.get('adj_t'), SparseTensor):
        # sorts edges again, and leaves their attributes as they were
        yield from PyGNeighborLoader(data, [4], batch_size=16)
        return
    if fault == 'format' and 'adj_t' in data:
        raise AttributeError("'Tensor' object has no attribute 'csr'")
    for number, batch in enumerate(
        NodePartitionLoader(data, 16, shuffle and not (fault == 'seed' and count % 2))
    ):
        if fault == 'lost' and number == 0:
            continue
        if fault == 'twice':
            batch.n_id = batch.n_id.clone()
            batch.n_id[1] = batch.n_id[0]
        if fault == 'attribute' or (
            fault == 'processes' and multiprocessing_context == 'forkserver'
        ):
            batch.degree = batch.degree + 1
        if fault == 'edge':
            batch.edge_index = batch.edge_index.flip(0)
        if fault == 'ids':
            del batch.e_id
        if fault == 'error':
            raise KeyError('x')
        if fault == 'first':
            batch.input_id = batch.n_id.flip(0)
        yield batch


LOADER_FAULTS = {
    'lost': 'not each node comes up once',
    'twice': 'a node is in a batch twice',
    'attribute': "'degree' is not the full graph's",
    'edge': 'an edge of a batch is not that of the graph',
    'ids': "a batch lacks 'n_id' or 'e_id'",
    'error': 'an epoch with 0 workers ends in KeyError',
    'first': 'the seeds are not the first nodes',
    'seed': 'one seed makes two epochs',
    'fixed': 'two seeds make one epoch',
    'writes': "'x' of the graph was written to",
    'empty': 'a graph without edges are not served',
    'adjacency': "'edge_attr' of a batch is another edge's where 'adj_t' is a SparseTensor",
    'processes': "with a worker by 'forkserver': 'degree' is not the full graph's",
    'format': "as 'adj_t' ends in AttributeError",
}


SPARSE = {'adjacency': pytest.mark.sparse}


@pytest.mark.parametrize(
    'fault', [pytest.param(fault, marks=SPARSE.get(fault, ())) for fault in LOADER_FAULTS]
)
def test_each_broken_promise_of_a_loader_is_found(fault):
    with pytest.raises(AssertionError, match=LOADER_FAULTS[fault]):
        check_loader(partial(broken_loader, fault))
