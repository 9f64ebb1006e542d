# N nodes, E edges, F channels.
from typing import Any, cast

from torch import Tensor
from torch.nn import Module
from torch.nn.functional import dropout
from torch_geometric.nn import GPSConv as PyGGPSConv
from torch_geometric.nn import MessagePassing

from torch_geometric_lgt._arguments import check_keywords, check_number
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.segment import check_batch, count_graphs
from torch_geometric_lgt.nn._layers.activation import make_activation
from torch_geometric_lgt.nn._layers.input_checks import (
    check_edge_index,
    check_features,
    check_heads,
    check_sizes,
    require_edges,
)
from torch_geometric_lgt.nn._layers.layer_checks import (
    check_output,
    check_takes_edges,
    forward_arguments,
)
from torch_geometric_lgt.nn._layers.linear_parts import remove_parts
from torch_geometric_lgt.nn.conv._gps_attention import (
    attend,
    check_none,
    make_attention,
    reset_layer,
)


class GPSConv(PyGGPSConv):
    r"""Applies the layer of `"Recipe for a General, Powerful, Scalable Graph Transformer"
    <https://arxiv.org/abs/2205.12454>`_: message passing and all-pair attention in parallel, then a
    feed-forward network (Eq. 1-4),

    .. math::
        \hat{\mathbf{X}} = \mathrm{Norm} \left( \mathbf{X} + \mathrm{MPNN}(\mathbf{X}, \mathbf{A})
            \right) + \mathrm{Norm} \left( \mathbf{X} + \mathrm{Attention}(\mathbf{X}) \right),
            \qquad
        \mathbf{X}^{\prime} = \mathrm{Norm} \left( \hat{\mathbf{X}} + \mathrm{MLP}(\hat{\mathbf{X}})
            \right).

    The constructor and :meth:`forward` take the arguments of :class:`torch_geometric.nn.GPSConv`,
    except ``attn_type='performer'``. With ``attn_type='multihead'`` the layer loads the state dict
    of PyG's layer and gives the same output. The other named types are linear in the number of
    nodes, get no padding, and keep the graphs of a batch exactly apart.

    Differs from :class:`torch_geometric.nn.GPSConv`: other types of attention and another default,
    a layer without attention, and the arguments :obj:`batch_size`, :obj:`state` and
    :obj:`attn_arguments`. A message passing layer that takes a :obj:`batch` gets it.

    Args:
        channels (int): Size of each input and output sample.
        conv (torch.nn.Module, optional): The message passing layer, or :obj:`None` for attention
            alone. As in PyG, :attr:`norm1` is then not used, and
            :class:`~torch.nn.parallel.DistributedDataParallel` needs ``static_graph=True``.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        dropout (float, optional): Dropout probability of the output of each branch and within the
            feed-forward network. (default: :obj:`0.0`)
        act (str or torch.nn.Module, optional): The activation of the feed-forward network.
            (default: :obj:`"relu"`)
        act_kwargs (dict, optional): Arguments of the activation that :obj:`act` names. (default:
            :obj:`None`)
        norm (str, optional): The normalisation, a name of those of :mod:`torch_geometric.nn`, or
            :obj:`None`. (default: :obj:`"batch_norm"`)
        norm_kwargs (dict, optional): Arguments of :obj:`norm`. (default: :obj:`None`)
        attn_type (str or torch.nn.Module, optional): The attention: :obj:`"kernel"`
            (:class:`~torch_geometric_lgt.nn.KernelAttentionConv`, with its default random
            features), :obj:`"degree_masked"`
            (:class:`~torch_geometric_lgt.nn.DegreeMaskedAttention`), :obj:`"difformer"`
            (:class:`~torch_geometric_lgt.nn.DIFFormerConv` without edges), :obj:`"sgformer"`
            (:class:`~torch_geometric_lgt.nn.SGFormerConv`), :obj:`"mean"`
            (:class:`~torch_geometric_lgt.nn.MeanAttention`), :obj:`"multihead"`
            (:class:`torch.nn.MultiheadAttention`, quadratic), :obj:`None` for message passing
            alone, or a layer that takes :obj:`x`, :obj:`batch` and :obj:`batch_size`. With
            :obj:`"sgformer"` the nodes of a large graph hardly attend to each other, unless
            :obj:`attn_kwargs` has ``'norm': 'row'``. (default: :obj:`"kernel"`)
        attn_kwargs (dict, optional): Further arguments of the attention that :obj:`attn_type`
            names, such as ``{'feature_map': 'learned'}``. (default: :obj:`None`, none)

    Shapes:
        - **input:** node features :math:`(N, F)`; edges; batch vector *(optional)*
        - **output:** node features :math:`(N, F)`

    Raises:
        ValueError: If :obj:`attn_type` is unknown, :obj:`conv` no layer, or there is neither
            message passing nor attention. If :obj:`attn_type` is a layer that takes no batch
            vector, or a layer with :obj:`attn_kwargs`. If :obj:`attn_kwargs` has a name that the
            attention does not take. If :obj:`act` is neither a name nor a module.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GINConv, MLP
        >>> from torch_geometric_lgt.nn import GPSConv
        >>> conv = GPSConv(64, GINConv(MLP([64, 64, 64])), heads=4)
        >>> x, edge_index = torch.randn(3, 64), torch.tensor([[0, 1], [1, 0]])
        >>> conv(x, edge_index, batch=torch.tensor([0, 0, 1])).shape
        torch.Size([3, 64])
    """

    attn: Any

    def __init__(
        self,
        channels: int,
        conv: MessagePassing | None,
        heads: int = 1,
        dropout: float = 0.0,
        act: str | Module = 'relu',
        act_kwargs: dict[str, Any] | None = None,
        norm: str | None = 'batch_norm',
        norm_kwargs: dict[str, Any] | None = None,
        attn_type: str | Module | None = 'kernel',
        attn_kwargs: dict[str, Any] | None = None,
    ) -> None:
        check_sizes(channels=channels, heads=heads)
        check_number('dropout', dropout)
        check_keywords(act_kwargs=act_kwargs, norm_kwargs=norm_kwargs, attn_kwargs=attn_kwargs)
        if not (conv is None or isinstance(conv, Module)):
            raise ValueError(
                "'conv' must be a layer, such as GCNConv(channels, channels), or None (got "
                f'{conv!r})'
            )
        if conv is not None:
            check_takes_edges('conv', conv)
        if conv is None and attn_type is None:
            raise ValueError("'conv' and 'attn_type' must not both be None (got None twice)")
        if isinstance(attn_type, str) and attn_type != 'mean':
            check_heads(heads, channels, 'channels')
        activation = make_activation(act, **(act_kwargs or {}))
        if not isinstance(activation, Module):
            raise ValueError(
                f"'act' must be a name or a module, such as 'gelu' or GELU() (got {act!r})"
            )
        attention = make_attention(channels, heads, attn_type, attn_kwargs)
        super().__init__(channels, conv, 1, dropout, cast(Any, activation), None, norm, norm_kwargs)
        self.heads = heads
        self.attn_type = type(attn_type).__name__ if isinstance(attn_type, Module) else attn_type
        if attention is None:
            remove_parts(self, 'attn', 'norm2')
        else:
            self.attn = attention

    def __setattr__(self, name: str, value: Any) -> None:
        r"""Sets an attribute, and for :attr:`conv` notes which arguments it takes."""
        super().__setattr__(name, value)
        if name == 'conv':
            self._read_arguments(value)

    def _read_arguments(self, conv: Module | None) -> None:
        r"""Notes the arguments of :obj:`conv` that tell the graphs of a batch apart, and whether it
        needs edges."""
        known = {} if conv is None else forward_arguments(conv)
        self.graph_arguments = [name for name in ('batch', 'batch_size') if name in known]
        edges = known.get('edge_index')
        is_required = edges is not None and edges.default is edges.empty
        self.needs_edges = is_required and isinstance(conv, MessagePassing)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters and, if the attention has random features, draws their
        projection anew."""
        for module in self.children():
            reset_layer(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Any = None,
        batch: Tensor | None = None,
        *,
        batch_size: int | None = None,
        state: AttentionState | None = None,
        attn_arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Tensor:
        r"""Computes the output ``[N, F]`` of all nodes.

        Args:
            x (torch.Tensor): The node features ``[N, F]``.
            edge_index (torch.Tensor or SparseTensor, optional): The edges, passed to :obj:`conv` as
                they are. (default: :obj:`None`, for attention alone)
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            state (AttentionState, optional): Sums over all keys of each graph, from the method
                :meth:`attention_state` of :attr:`attn`. The attention reads these sums instead of
                the keys of :obj:`x`. Not for :obj:`"multihead"`, which has no such sums. (default:
                :obj:`None`)
            attn_arguments (dict, optional): Further arguments for the call of :attr:`attn`, such
                as the :obj:`degree` of :class:`~torch_geometric_lgt.nn.DegreeMaskedAttention`.
                (default: :obj:`None`)
            **kwargs: Further arguments for the call of :obj:`conv`, such as :obj:`edge_attr`.

        Raises:
            TypeError: If :obj:`x` is no tensor, such as a pair of features, or
                :obj:`attn_arguments` no dictionary.
            ValueError: If :obj:`x` has another width, dtype or device than the layer, or
                :obj:`conv` needs edges and gets none. If a layer without message passing gets
                further arguments. If ``attn_type='multihead'`` or a layer without attention gets a
                :obj:`state` or :obj:`attn_arguments`, or these do not fit the attention. If
                :obj:`conv` or the attention returns another number of channels.
        """
        batch_size = count_graphs(batch, batch_size, state)
        check_features(x, self.mlp, self.channels)
        if batch is not None:
            check_batch(batch, x.size(0), x.device)
        graphs = {'batch': batch, 'batch_size': batch_size}
        kwargs |= {name: graphs[name] for name in self.graph_arguments if name not in kwargs}
        local = None
        if self.conv is None:
            check_edge_index(edge_index)
            unused = {name: value for name, value in kwargs.items() if value is not None}
            check_none(None, unused, 'in a layer with conv=None, which has no message passing')
        else:
            if self.needs_edges:
                require_edges(edge_index, 'for attention alone make the layer with conv=None')
            local = self.conv(x, edge_index, **kwargs)
            check_output('conv', self.conv, local, self.channels, 'channels')
        if attn_arguments is not None and not isinstance(attn_arguments, dict):
            raise TypeError(
                "'attn_arguments' must be a dictionary, such as {'degree': degree} (got "
                f'{type(attn_arguments).__name__})'
            )
        attended = self.attend(x, batch, batch_size, state, **(attn_arguments or {}))
        if attended is not None:
            check_output('attn_type', self.attn, attended, self.channels, 'channels')
        return self.combine(x, local, attended, {'batch': batch} if self.norm_with_batch else {})

    def attend(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        state: AttentionState | None = None,
        **arguments: Any,
    ) -> Tensor | None:
        r"""Computes the output ``[N, F]`` of :attr:`attn` alone, before dropout, residual and norm,
        or :obj:`None` for a layer without attention. The arguments have the meaning they have in
        :meth:`forward`, whose dictionary :obj:`attn_arguments` is unpacked here:
        ``attend(x, degree=degree)``."""
        if self.attn is None:
            check_none(state, arguments, 'in a layer without attention')
            return None
        return attend(self.attn, x, batch, batch_size, state, **arguments)

    def combine(
        self,
        x: Tensor,
        local: Tensor | None,
        attended: Tensor | None,
        norm_arguments: dict[str, Any],
    ) -> Tensor:
        r"""Computes the output ``[N, F]`` of the layer from the outputs of both branches: dropout,
        residual and norm of each, their sum, and the feed-forward network.

        Args:
            x (torch.Tensor): The node features ``[N, F]``.
            local (torch.Tensor, optional): The output ``[N, F]`` of :obj:`conv`; :obj:`None`
                without it.
            attended (torch.Tensor, optional): The output ``[N, F]`` of the attention; :obj:`None`
                without it.
            norm_arguments (dict): Further arguments for the calls of the norms: the :obj:`batch`
                vector if they take one, as PyG's graph norms do (its attribute
                :obj:`norm_with_batch` tells), else ``{}``.
        """
        branches = [
            _normalize(norm, x + dropout(out, self.dropout, self.training), norm_arguments)
            for norm, out in ((self.norm1, local), (self.norm2, attended))
            if out is not None
        ]
        z = branches[0] if len(branches) == 1 else branches[0] + branches[1]
        return _normalize(self.norm3, z + self.mlp(z), norm_arguments)


def _normalize(norm: Module | None, z: Tensor, arguments: dict[str, Any]) -> Tensor:
    return z if norm is None else norm(z, **arguments)
