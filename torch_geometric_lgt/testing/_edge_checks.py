# N nodes, E edges.
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch.testing import assert_close
from torch_geometric import EdgeIndex
from torch_geometric.typing import WITH_TORCH_SPARSE

from torch_geometric_lgt.testing._promises import Call, promise
from torch_geometric_lgt.testing._samples import DOUBLE
from torch_geometric_lgt.typing import SparseTensor


def check_edges(layer: Module, call: Call, x: Tensor, edge_index: Tensor) -> None:
    expected, size = call(layer, x, edge_index), (x.size(0), x.size(0))
    transposed = torch.sparse_coo_tensor(
        edge_index.flip(0),
        torch.ones(edge_index.size(1), dtype=DOUBLE),
        size,
        check_invariants=True,
    )
    formats = {
        'int32': edge_index.int(),
        'EdgeIndex': cast(Any, EdgeIndex)(edge_index.contiguous(), sparse_size=size),
        'CSR': transposed.to_sparse_csr(),
    }
    for name, edges in formats.items():
        with promise(f'a call with edges as {name}'):
            assert_close(
                call(layer, x, edges),
                expected,
                rtol=1e-10,
                atol=1e-10,
                msg=lambda text, name=name: f'edges as {name}: {text}',
            )


def edge_weights(edge_index: Tensor) -> Tensor:
    r"""Draws one weight from 0.5 to 1.5 for each edge, ``[E]`` in double precision; the same
    numbers in each call."""
    return 0.5 + torch.rand(
        edge_index.size(1), dtype=DOUBLE, generator=torch.Generator().manual_seed(2)
    )


def takes_edge_weights(layer: Module, call: Call, x: Tensor, edge_index: Tensor) -> bool:
    r"""Tells whether the layer accepts the keyword :obj:`edge_weight` in :obj:`call`. Returns
    :obj:`False` if its output does not depend on the edges, whatever it accepts.

    Raises:
        AssertionError: If the layer refuses weights by an error that does not name them.
    """
    if torch.equal(call(layer, x, edge_index), call(layer, x, edge_index[:, :2])):
        return False
    return not _refuses(
        lambda: call(layer, x, edge_index, edge_weight=edge_weights(edge_index).to(x.dtype))
    )


def _refuses(run: Callable[[], Tensor]) -> bool:
    try:
        run()
    except (TypeError, ValueError) as error:
        if 'weight' not in str(error):
            raise AssertionError(
                f'weights of edges end in {error!r}, no ValueError that names them'
            ) from error
        return True
    return False


def check_edge_weights(layer: Module, call: Call, x: Tensor, edge_index: Tensor) -> None:
    plain = call(layer, x, edge_index)
    if torch.equal(plain, call(layer, x, edge_index[:, :2])):
        return
    weight, size = edge_weights(edge_index), (x.size(0), x.size(0))
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), weight, size, check_invariants=True)
    matrix = matrix.coalesce()
    formats: dict[str, Any] = {
        'COO': matrix,
        'CSR': matrix.to_sparse_csr(),
        'CSC': matrix.to_sparse_csc(),
    }
    if WITH_TORCH_SPARSE:
        formats['SparseTensor'] = SparseTensor.from_edge_index(edge_index.flip(0), weight, size)
    taken = takes_edge_weights(layer, call, x, edge_index)
    for name, edges in formats.items():
        with promise(f'a call with weights as {name}'):
            if not taken:
                if not _refuses(lambda edges=edges: call(layer, x, edges)):
                    raise AssertionError(
                        f'the values of a {name} matrix are dropped: they are neither used nor '
                        'refused'
                    )
                continue
            assert_close(
                call(layer, x, edges),
                call(layer, x, edge_index, edge_weight=weight),
                rtol=1e-10,
                atol=1e-10,
                msg=lambda text, name=name: f'weights as {name}: {text}',
            )
    if not taken:
        return
    if torch.allclose(call(layer, x, edge_index, edge_weight=weight), plain):
        raise AssertionError("'edge_weight' is dropped: the output is that without")
    ones = call(layer, x, edge_index, edge_weight=torch.ones_like(weight))
    assert_close(
        ones,
        plain,
        rtol=1e-10,
        atol=1e-10,
        msg=lambda text: f'weights of 1 change the output: {text}',
    )
    leaf, few = weight[:12].clone().requires_grad_(), edge_index[:, :12]
    with promise("the comparison of gradients of 'edge_weight' with finite differences"):
        torch.autograd.gradcheck(
            lambda w: call(layer, x, few, edge_weight=w),
            leaf,
            eps=1e-6,
            atol=1e-6,
            rtol=1e-4,
            fast_mode=True,
        )
