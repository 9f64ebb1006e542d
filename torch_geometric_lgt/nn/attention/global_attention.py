# B graphs, N_max nodes of the largest graph, N nodes of all graphs, F channels.
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.attention import PerformerAttention
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.nn._layers.layer_checks import check_batch_arguments


class GlobalAttention(PerformerAttention):
    r"""Turns an all-pair layer into the global attention of :class:`torch_geometric.nn.GPSConv`.

    :class:`~torch_geometric.nn.GPSConv` calls instances of :class:`torch.nn.MultiheadAttention` and
    :class:`torch_geometric.nn.attention.PerformerAttention`, and silently skips any other module.
    This class is a subclass of the latter without its parameters. It removes the padding and passes
    the nodes ``[N, F]`` with a batch vector to the layer. The output of a graph is then independent
    of the other graphs in the batch.

    Differs from an earlier class of PyG with this name, a readout that is now called
    :class:`torch_geometric.nn.aggr.AttentionalAggregation`.

    Args:
        conv (torch.nn.Module): A layer whose :meth:`forward` takes :obj:`x`, :obj:`batch` and
            :obj:`batch_size` and returns as many channels as :obj:`x` has:
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`,
            :class:`~torch_geometric_lgt.nn.DegreeMaskedAttention`,
            :class:`~torch_geometric_lgt.nn.SGFormerConv`,
            :class:`~torch_geometric_lgt.nn.MeanAttention`, or
            :class:`~torch_geometric_lgt.nn.DIFFormerConv` with ``use_graph=False``. Pass other
            arguments of the layer by :meth:`arguments`.

    Shapes:
        - **input:** node features :math:`(B, N_{max}, F)`; mask :math:`(B, N_{max})` that is
          :obj:`True` for nodes and :obj:`False` for padding *(optional)*
        - **output:** node features :math:`(B, N_{max}, F)`, 0 outside the mask

    Raises:
        TypeError: If :obj:`conv` is not a module.
        ValueError: If :obj:`conv` takes no :obj:`batch` and :obj:`batch_size`, or changes the
            number of channels.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCNConv, GPSConv
        >>> from torch_geometric_lgt.nn import GlobalAttention, KernelAttentionConv
        >>> gps = GPSConv(64, GCNConv(64, 64))
        >>> gps.attn = GlobalAttention(KernelAttentionConv(64, 64, heads=4))
        >>> x, edge_index = torch.randn(3, 64), torch.tensor([[0, 1], [1, 0]])
        >>> gps(x, edge_index, batch=torch.tensor([0, 0, 1])).shape
        torch.Size([3, 64])
    """

    def __init__(self, conv: torch.nn.Module) -> None:
        torch.nn.Module.__init__(self)
        if not isinstance(conv, torch.nn.Module):
            raise TypeError(f"'conv' must be a layer (got {type(conv).__name__})")
        check_batch_arguments('conv', conv)
        self.conv = conv
        self._arguments: dict[int, dict[str, Any]] = {}  # by thread

    @contextmanager
    def arguments(self, **arguments: Any) -> Iterator[None]:
        r"""Context manager: passes the keywords to each call of the layer inside the ``with``
        block, because :class:`~torch_geometric.nn.GPSConv` passes features and mask only. Arguments
        with one row for each node have the :math:`N` rows of all graphs, without padding. The layer
        raises its own errors for arguments that do not fit. Calls in other threads do not get the
        keywords. A checkpoint (:meth:`torch.utils.checkpoint.checkpoint`) calls the layer again in
        the backward pass, which must be inside the block, too.

        Example:
            >>> import torch
            >>> from torch_geometric.nn import GPSConv
            >>> from torch_geometric_lgt.nn import DegreeMaskedAttention, GlobalAttention
            >>> gps = GPSConv(64, conv=None)
            >>> gps.attn = GlobalAttention(DegreeMaskedAttention(64))
            >>> x, edge_index = torch.randn(3, 64), torch.tensor([[0, 1], [1, 0]])
            >>> with gps.attn.arguments(degree=torch.tensor([1, 1, 0])):
            ...     out = gps(x, edge_index, batch=torch.tensor([0, 0, 1]))
            >>> out.shape
            torch.Size([3, 64])
        """
        thread = threading.get_ident()
        before = self._arguments.get(thread)
        self._arguments[thread] = arguments
        try:
            yield
        finally:
            del self._arguments[thread]
            if before is not None:
                self._arguments[thread] = before

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        r"""Runs the layer on the nodes in a padded batch :obj:`x` ``[B, N_max, F]`` and returns
        ``[B, N_max, F]``, 0 in the padding.

        The :obj:`mask` ``[B, N_max]`` is :obj:`True` for nodes (default: all rows are nodes).

        Raises:
            ValueError: If a shape or the dtype of the mask is wrong, or the layer changes the
                number of channels.
            RuntimeError: If several threads are in a block of :meth:`arguments` while a checkpoint
                calls the layer in the backward pass.
        """
        if x.dim() != 3:
            raise ValueError(f"'x' must have shape [B, N_max, F] (got {tuple(x.shape)})")
        mask = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        if mask.shape != x.shape[:2] or mask.dtype != torch.bool:
            raise ValueError(
                f"'mask' must hold a bool for each of {tuple(x.shape[:2])} rows (got {mask.dtype} "
                f'{tuple(mask.shape)})'
            )
        graph, node = mask.nonzero(as_tuple=True)
        arguments = self._arguments_of_call() if self._arguments else {}
        out = self.conv(x[graph, node], batch=graph, batch_size=x.size(0), **arguments)
        if out.shape != (graph.numel(), x.size(2)):
            raise ValueError(
                f"'conv' must keep the width of its input, {x.size(2)} (got {out.size(1)})"
            )
        return out.new_zeros(*mask.shape, out.size(1)).index_put((graph, node), out)

    @torch.compiler.disable(reason='which thread calls the layer is not traced')
    def _arguments_of_call(self) -> dict[str, Any]:
        r"""Returns the keywords of the block that the thread is in.

        On a GPU the backward pass, in which checkpoints call the layer, has threads of its own. It
        gets the keywords of the only block.

        Raises:
            RuntimeError: If several threads are in a block during such a backward pass.
        """
        arguments = self._arguments.get(threading.get_ident())
        if arguments is not None:
            return arguments
        blocks = [*self._arguments.values()] if torch._C._current_graph_task_id() != -1 else []
        if len(blocks) > 1:
            raise RuntimeError(
                "'arguments' must be entered by one thread at a time where a checkpoint calls the "
                f'layer in the backward pass (got {len(blocks)} threads); give each thread a copy '
                'of the layer'
            )
        return blocks[0] if blocks else {}

    @torch.no_grad()
    def redraw_projection_matrix(self) -> None:
        r"""Draws the random projection of the layer's feature map anew, or does nothing if the
        layer has none."""
        redraw = getattr(getattr(self.conv, 'feature_map', None), 'redraw_projection', None)
        if redraw is not None:
            redraw()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the layer and draws its random projection anew."""
        reset(self.conv)

    def _reset_parameters(self) -> None:
        self.reset_parameters()

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.conv})'
