from pathlib import Path

import distributed_worker as worker
import pytest
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from torch_geometric_lgt.distributed import all_reduce_max, all_reduce_moments, all_reduce_sum
from torch_geometric_lgt.nn import DIFFormer

EXAMPLES = Path(__file__).parents[1] / 'examples'


def same(folder, kind, world, module, out):
    results = [torch.load(folder / f'{kind}-{rank}.pt', weights_only=True) for rank in range(world)]
    worker.squared_error(out).backward()
    torch.testing.assert_close(
        torch.cat([part for part, *_ in results]), out.detach(), atol=1e-12, rtol=1e-10
    )
    for _, grads, buffers in results:
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(
                grads[name],
                parameter.grad,
                atol=1e-12,
                rtol=1e-10,
                msg=lambda text, name=name: f'{name}: {text}',
            )
        torch.testing.assert_close(buffers, dict(module.named_buffers()), atol=1e-12, rtol=1e-10)


def assert_equal_to_one_process(world, folder):
    for kind in worker.KINDS:
        layer, x, batch, degree = worker.make(kind)
        same(folder, kind, world, layer, layer(x, *degree, batch=batch))
    for name in worker.MODELS:
        model, x, edges = worker.make_model(name)
        same(folder, name, world, model, model(x, edges))


@pytest.mark.parametrize('mode', ['', pytest.param('nccl', marks=pytest.mark.nccl)])
def test_processes_of_torchrun_equal_one_process(mode, tmp_path, start, exit_code):
    folder = tmp_path / 'results'
    folder.mkdir()
    command = ['--nproc-per-node=2', worker.__file__, str(folder), mode]
    code = exit_code(start(worker.torchrun, tmp_path / 'errors', command))
    assert code == 0, (tmp_path / 'errors').read_text()
    assert_equal_to_one_process(2, folder)


@pytest.mark.fault(
    'uneven-processes',
    (
        'Takes part like the others: any split of the nodes gives the outputs and gradients of one '
        'process.'
    ),
)
def test_an_empty_process_among_others(tmp_path, ended):
    assert ended(4, worker.main, str(tmp_path), '') == [0] * 4
    assert_equal_to_one_process(4, tmp_path)


def test_a_lost_process_ends_in_an_error(tmp_path, ended):
    (tmp_path / 'results').mkdir()
    left, lost = ended(2, worker.main_with_errors_to, tmp_path, str(tmp_path / 'results'), 'lost')
    assert left != 0
    assert lost == 0
    assert 'RuntimeError' in (tmp_path / '0.txt').read_text()
    assert not list((tmp_path / 'results').iterdir())


@pytest.mark.parametrize(
    'example', ['distributed.py', 'distributed_edges.py', 'distributed_batches.py']
)
def test_example_prints_the_same_for_any_number_of_processes(example, tmp_path, ended):
    digits = tuple(part[:301] for part in load_digits(return_X_y=True))
    lines = []
    for world in (1, 2):
        assert ended(world, worker.print_to, tmp_path, EXAMPLES / example, digits) == [0] * world
        printed = (tmp_path / '0.txt').read_text().splitlines()
        lines.append([line for line in printed if 'test accuracy' in line])
    assert lines[0] == lines[1]
    assert len(lines[0]) == 5


def test_a_step_of_the_example_with_fewer_seeds_than_processes(tmp_path, ended):
    text = (EXAMPLES / 'distributed_batches.py').read_text()
    changed = text.replace('STEP = 4, 100, 2, 40', 'STEP = 4, 10, 2, 1')
    assert changed != text
    (tmp_path / 'example.py').write_text(changed)
    assert ended(2, worker.print_to, tmp_path, tmp_path / 'example.py', None) == [0, 0]


def test_a_model_sharded_as_a_whole():
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    try:
        for name in ('difformer', 'graph-transformer'):
            model, x, edges = worker.make_model(name)
            whole, *_ = worker.make_model(name)
            fully_shard(model, mesh=init_device_mesh('cpu', (1,)))
            out, expected = model(x, edges, process_group=dist.group.WORLD), whole(x, edges)
            torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-10)
            worker.squared_error(out).backward()
            worker.squared_error(expected).backward()
            grads = [parameter.grad.full_tensor() for parameter in model.parameters()]
            for grad, parameter in zip(grads, whole.parameters(), strict=True):
                torch.testing.assert_close(grad, parameter.grad, atol=1e-12, rtol=1e-10)
    finally:
        dist.destroy_process_group()


def test_moments_count_rows_in_half_precision():
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    try:
        count, mean, variance = all_reduce_moments(torch.ones(4095, 1, dtype=torch.bfloat16))
    finally:
        dist.destroy_process_group()
    assert int(count) == 4095
    assert (float(mean), float(variance)) == (1, 0)
    assert mean.dtype == variance.dtype == torch.bfloat16


def test_moments_of_whole_numbers():
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    try:
        _, mean, variance = all_reduce_moments(torch.tensor([[1], [2]]))
    finally:
        dist.destroy_process_group()
    assert (float(mean), float(variance)) == (1.5, 0.25)


def test_a_group_without_this_process_is_refused():
    """``new_group`` returns a number there, and PyTorch added up nothing."""
    outside = dist.GroupMember.NON_GROUP_MEMBER
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    try:
        for reduced in (all_reduce_sum, all_reduce_max, all_reduce_moments):
            with pytest.raises(TypeError, match=r"'group' must be a group, .* has this process"):
                reduced(torch.ones(2, 1), outside)
        model, x = DIFFormer(8, 8, 2, use_graph=False), torch.randn(3, 8)
        with pytest.raises(
            TypeError, match=r"'process_group' must be a group, .*; dist.new_group returns"
        ):
            model(x, None, process_group=outside)
    finally:
        dist.destroy_process_group()
