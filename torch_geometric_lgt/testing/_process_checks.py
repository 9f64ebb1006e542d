# N nodes, E edges.
import copy
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.testing import assert_close

from torch_geometric_lgt.testing._promises import Call
from torch_geometric_lgt.testing._samples import subgraph


class Meeting:
    r"""Adds up tensors, or takes their maximum, over threads that stand for processes.

    Each of :obj:`world_size` threads calls :meth:`reduce` with a tensor of one shape, waits for the
    others, and gets the result."""

    def __init__(self, world_size: int) -> None:
        self.barrier = threading.Barrier(world_size)
        self.slots = [(torch.empty(0), '')] * world_size
        self.lock = threading.Lock()
        self.num_waiting = self.num_ended = 0
        self.is_stuck = False

    def reduce(self, rank: int, value: Tensor, operation: str) -> Tensor:
        self.slots[rank] = value.clone(), operation
        self._count(waiting=1)
        self.barrier.wait()
        self._count(waiting=-1)
        if len({(tuple(one.shape), name) for one, name in self.slots}) > 1:
            raise AssertionError(
                'processes meet in different collectives: '
                f'{[(tuple(one.shape), name) for one, name in self.slots]}'
            )
        values = torch.stack([one for one, _ in self.slots])
        self.barrier.wait()
        return values.sum(0) if operation == 'SUM' else values.amax(0)

    def end(self) -> None:
        r"""Notes that a thread has done its work and calls :meth:`reduce` no more."""
        self._count(ended=1)

    def _count(self, waiting: int = 0, ended: int = 0) -> None:
        r"""Updates the numbers of threads that wait in :meth:`reduce` and that have ended. If the
        others wait for one that has ended, the wait is broken off."""
        with self.lock:
            self.num_waiting += waiting
            self.num_ended += ended
            if 0 < self.num_ended == self.barrier.parties - self.num_waiting < self.barrier.parties:
                self.is_stuck = True
                self.barrier.abort()


class ThreadGroup(dist.ProcessGroup):
    r"""Stands for a process group in which thread :obj:`rank` is a process. It supports
    :meth:`allreduce` with sums and maxima only."""

    def __init__(self, rank: int, world_size: int, meeting: Meeting) -> None:
        cast(Any, super()).__init__(rank, world_size)
        self.number, self.meeting = rank, meeting

    def allreduce(self, tensors: list[Tensor], options: Any) -> Any:
        operation = 'SUM' if options.reduceOp == dist.ReduceOp.SUM else 'MAX'
        tensors[0].copy_(self.meeting.reduce(self.number, tensors[0], operation))
        return self

    def wait(self) -> None:
        r"""Returns at once, as :meth:`allreduce`, which returns the group in place of a handle, is
        complete when it returns."""


def run_threads(world_size: int, work: Callable[[int, ThreadGroup], Any]) -> list[Any]:
    r"""Runs ``work(rank, group)`` on :obj:`world_size` threads, and returns the list of their
    results by rank. The first error of a thread ends all threads and is raised here."""
    meeting = Meeting(world_size)
    results = [None] * world_size
    errors = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank, ThreadGroup(rank, world_size, meeting))
            meeting.end()
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if meeting.is_stuck:
        raise AssertionError(
            'processes meet in different collectives: some wait for one that ended'
        )
    return results


def check_processes(make: Callable[[], Module], call: Call, x: Tensor, edge_index: Tensor) -> None:
    r"""Asserts that a model over four processes (threads) computes the same as in one: outputs,
    gradients summed over the processes, and buffers such as running statistics.

    The nodes of :obj:`x` ``[N, F]`` are split over the processes; one has no nodes and one has a
    single node. A model that draws random numbers in training is compared in evaluation.

    Args:
        make (callable): Makes the model.
        call (callable): Applies the model to features and edges, with the keywords
            :obj:`process_group` and :obj:`num_keys`.
        x (torch.Tensor): The features, in double precision.
        edge_index (torch.Tensor): The edges ``[2, E]``.
    """
    model = make().double()
    random = torch.get_rng_state()
    call(copy.deepcopy(model), x, edge_index)
    if not torch.equal(torch.get_rng_state(), random):
        model.eval()
    whole = copy.deepcopy(model)
    expected = call(whole, x, edge_index)
    grad = torch.randn(expected.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(2))
    expected.backward(grad)
    order = torch.randperm(x.size(0), generator=torch.Generator().manual_seed(3))
    # nodes without edges that are no process's: what counts all rows is off
    strangers = 10 * x.flip(0)
    parts = order.split([0, 1, 14, x.size(0) - 15])

    def work(rank: int, group: ThreadGroup) -> tuple[Tensor, Module]:
        part = copy.deepcopy(model)
        # the others follow as neighbours
        nodes = torch.cat([parts[rank], *parts[:rank], *parts[rank + 1 :]])
        size = parts[rank].numel()
        features, edges = torch.cat([x[nodes], strangers]), subgraph(edge_index, nodes, x.size(0))
        out = call(part, features, edges, process_group=group, num_keys=size)[:size]
        out.backward(grad[parts[rank]])
        return out.detach(), part

    results = run_threads(len(parts), work)
    close = partial(assert_close, rtol=1e-10, atol=1e-10)
    together = torch.cat([out for out, _ in results])
    close(
        together,
        expected.detach()[order],
        msg=lambda text: f'several processes differ from one: {text}',
    )
    for name, parameter in whole.named_parameters():
        grads = [dict(part.named_parameters())[name].grad for _, part in results]
        total = sum(torch.zeros_like(parameter) if one is None else one for one in grads)
        close(
            total,
            parameter.grad,
            msg=lambda text, name=name: f'the gradient of {name} over several processes: {text}',
        )
    for _, part in results:
        for (name, one), other in zip(part.named_buffers(), whole.buffers(), strict=True):
            close(
                one,
                other,
                msg=lambda text, name=name: f'the buffer {name} after several processes: {text}',
            )
