# N nodes (N_s source, N_t target), E pairs, H heads.
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.scores import log_attention_scores
from torch_geometric_lgt.functional.attention.state import build_state
from torch_geometric_lgt.functional.inputs import no_values
from torch_geometric_lgt.functional.neighbors.edge_rows import EdgeOrders, SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.functional.segment import count_graphs, segments
from torch_geometric_lgt.nn._layers.input_checks import (
    check_edge_index,
    check_not_negative,
    check_unused,
    feature_pair,
    is_hop_list,
)
from torch_geometric_lgt.nn._layers.kernel_layer import KernelLayer
from torch_geometric_lgt.nn._layers.relational_bias import RelationalBias
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class KernelAttentionConv(KernelLayer):
    r"""Attends from each node to all nodes of its graph in :math:`O(N)`, with the kernelised
    attention (Eq. 6) of `"Masked Graph Transformer for Large-Scale Recommendation"
    <https://arxiv.org/abs/2405.04028>`_.

    **Edges are ignored** unless the layer has a relational bias (:obj:`relational_order`). To use
    the graph too, put the layer beside message passing, as :class:`~torch_geometric_lgt.nn.GPSConv`
    does.

    It is also the attention of `"NodeFormer" <https://arxiv.org/abs/2306.08385>`_ and
    `"Rethinking Attention with Performers" <https://arxiv.org/abs/2009.14794>`_:

    .. math::
        \mathbf{x}^{\prime}_i = \frac{\phi(\mathbf{q}_i)^{\top} \sum_{j \in \mathcal{B}(i)}
            \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}}
        {\phi(\mathbf{q}_i)^{\top} \sum_{j \in \mathcal{B}(i)} \phi(\mathbf{k}_j)}

    with :math:`\mathcal{B}(i)` the nodes of the graph that contains :math:`i`. The maps
    :obj:`"positive"`, :obj:`"orthogonal"`, :obj:`"simplex"` and :obj:`"fourier"` have random
    features, drawn when the layer is made and by :meth:`reset_parameters`. With them the layer
    estimates a softmax over the logits :math:`s \, \mathbf{q}_i^{\top} \mathbf{k}_j / \tau`. By
    default the factor :obj:`scale` is :math:`s = 1 / \sqrt{C}` for :math:`C` channels of a key in
    each head, as in Eq. 1 of MGFormer's paper and in NodeFormer's public code. NodeFormer's paper
    has :math:`s = 1` (Theorem 2). :class:`~torch_geometric_lgt.nn.FeatureMap` has the formulas of
    all maps.

    With ``num_gumbel_samples=K`` it is NodeFormer's kernelised Gumbel-softmax: in training the mean
    of :math:`K` such attentions, in which key :math:`j` has the weight :math:`\exp(g_{jk} / \tau)`
    with :math:`g_{jk} \sim \mathrm{Gumbel}(0, 1)`. By default evaluation has neither noise nor
    :math:`\tau`: it is the softmax of :math:`s \, \mathbf{q}_i^{\top} \mathbf{k}_j`, to which the
    mean over the noise tends for small :math:`\tau`. :obj:`gumbel_evaluation` changes this.

    With ``relational_order=P`` NodeFormer's relational bias is added: the first sum with
    ``relational_input='value'``, as in the authors' code, or the second with ``'output'``.

    .. math::
        \sum_{p=1}^{P} \sigma(b_p) \, \mathbf{D}_t^{-1/2} \mathbf{A}_p \mathbf{D}_s^{-1/2}
            \mathbf{V}
            \qquad \textrm{or} \qquad
        \sum_{p=1}^{P} \sigma(b_p) \, \mathbf{A}_p \mathbf{H}

    :math:`\mathbf{H}` are the outputs :math:`\mathbf{x}^{\prime}_i` of the attention, and
    :math:`b_p` learned numbers. Entry :math:`(i, j)` of :math:`\mathbf{A}_p` is 1 if a walk of
    :math:`p` edges leads from :math:`j` to :math:`i`, else 0. In the first sum shorter walks count
    as well, also the walk without edges, so the diagonal is 1. :math:`\mathbf{D}_t` and
    :math:`\mathbf{D}_s` hold the row and column sums of :math:`\mathbf{A}_p`. NodeFormer's slides
    have the second sum with :math:`P = 1`. Repeated edges count once. With :math:`P = 1` edges may
    have weights, which are then the entries of :math:`\mathbf{A}_1`; repeated edges have their mean
    weight. The diagonal in the first sum stays 1, so self loops must have the weight 1 there.

    As in the formulas of the papers, no constant is added to :math:`\phi`. Exponentials of keys are
    divided by a maximum per graph, head and feature, and those of queries are multiplied by it,
    which does not change the result. Differs from NodeFormer's code, which adds 1e-6 to the
    exponentials and takes the fourth power of the adjacency matrix as its third order. Differs from
    MGFormer's paper, where the values are the inputs (``value_projection=False`` here, Eq. 5) and
    queries and keys have no biases (``bias=False``).

    Args:
        in_channels (int or tuple): Size of each input sample, or a pair of the sizes of sources and
            targets; :obj:`-1` takes the size of the first input.
        out_channels (int): Size of each output sample, divided among the heads, unlike in
            :class:`torch_geometric.nn.GATConv`.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        concat (bool, optional): If :obj:`False`, every head has :obj:`out_channels` channels and
            the heads are averaged. (default: :obj:`True`)
        feature_map (str or torch.nn.Module, optional): :math:`\phi`: :obj:`"positive"`,
            :obj:`"orthogonal"` or :obj:`"simplex"` (random exponentials whose directions are
            independent, orthogonal, or the corners of a simplex), :obj:`"fourier"`, :obj:`"elu"`,
            :obj:`"relu"`, :obj:`"focused"`, :obj:`"learned"`, or a module. A module gets queries or
            keys ``[N, H, C]`` and returns :math:`\phi` itself ``[N, H, M]``, not its logarithm,
            without negative features. (default: :obj:`"simplex"`)
        num_features (int, optional): :math:`M`, the number of random or learned vectors
            :math:`\mathbf{w}_m` per head; each gives one feature, and two with :obj:`"fourier"`.
            :obj:`None` for other maps. (default: :obj:`None`, as many as channels of a key)
        temperature (float, optional): :math:`\tau` of the maps with random features; other maps
            ignore it. (default: :obj:`1.0`)
        value_projection (bool, optional): If :obj:`False`, the values are the inputs themselves,
            with ``concat=True`` only. (default: :obj:`True`)
        num_gumbel_samples (int, optional): :math:`K`, for the three random exponentials. (default:
            :obj:`0`, no noise)
        gumbel_evaluation (str, optional): The logits in evaluation of a layer with
            :obj:`num_gumbel_samples`: :math:`s \, \mathbf{q}_i^{\top} \mathbf{k}_j`
            (:obj:`"softmax"`), or these divided by :math:`\tau` as in training and in NodeFormer's
            code (:obj:`"tempered"`). A layer without noise always divides by :math:`\tau`.
            (default: :obj:`"softmax"`)
        relational_order (int, optional): :math:`P`, the largest number of hops of the relational
            bias. (default: :obj:`0`, no bias)
        relational_input (str, optional): What the relational bias sums, :obj:`"value"` or
            :obj:`"output"`. (default: :obj:`"value"`)
        relational_weight (str, optional): :obj:`"sigmoid"`, or :obj:`"identity"` for :math:`b_p` in
            place of :math:`\sigma(b_p)`; each head has its own :math:`b_p`. (default:
            :obj:`"sigmoid"`)
        bias (bool, optional): If :obj:`False`, the linear maps of queries, keys and values have no
            bias. (default: :obj:`True`)
        key_channels (int, optional): Channels of queries and keys over all heads, :math:`H C`.
            (default: :obj:`None`, as many as the values have)
        position_channels (int, optional): If positive, queries and keys are linear maps of
            positions of this size instead of the input: nodes attend by where they are, for
            example by a Laplacian encoding. (default: :obj:`0`)
        scale (float, optional): :math:`s`, the factor of inner products in the logits, as in
            :func:`torch.nn.functional.scaled_dot_product_attention`, for the maps with random
            features only. (default: :obj:`None`, :math:`1 / \sqrt{C}`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, or a pair :math:`((N_s, F_s), (N_t, F_t))`
          of sources and targets (not with ``relational_input='output'``); edges for the relational
          bias (for a pair, a list with edges ``[2, E_p]`` from sources to targets for each order);
          batch vector, or a pair of them *(optional)*; positions :math:`(N, F_p)`, or a pair of
          them, with :obj:`position_channels`
        - **output:** node features :math:`(N_t, F_{out})`

    Raises:
        ValueError: If :obj:`heads` does not divide :obj:`out_channels` or :obj:`key_channels`, or
            ``value_projection=False`` comes with ``concat=False``, with :obj:`position_channels`,
            or with :obj:`in_channels` that differ from :obj:`out_channels`. If the feature map does
            not fit :obj:`num_features` or :obj:`num_gumbel_samples`. If :obj:`temperature` or
            :obj:`scale` is not positive, or an option is unknown.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import KernelAttentionConv
        >>> conv = KernelAttentionConv(16, 32, heads=4)
        >>> x, batch = torch.randn(5, 16), torch.tensor([0, 0, 0, 1, 1])  # two graphs
        >>> conv(x, batch=batch).shape
        torch.Size([5, 32])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        feature_map: str | torch.nn.Module = 'simplex',
        num_features: int | None = None,
        temperature: float = 1.0,
        value_projection: bool = True,
        num_gumbel_samples: int = 0,
        gumbel_evaluation: str = 'softmax',
        relational_order: int = 0,
        relational_input: str = 'value',
        relational_weight: str = 'sigmoid',
        bias: bool = True,
        key_channels: int | None = None,
        position_channels: int = 0,
        scale: float | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            heads=heads,
            concat=concat,
            feature_map=feature_map,
            num_features=num_features,
            temperature=temperature,
            value_projection=value_projection,
            bias=bias,
            key_channels=key_channels,
            position_channels=position_channels,
            scale=scale,
        )
        check_not_negative(num_gumbel_samples=num_gumbel_samples, relational_order=relational_order)
        if num_gumbel_samples > 0 and not self._estimates_softmax:
            raise ValueError(
                "'num_gumbel_samples' must be 0 unless 'feature_map' is 'positive', 'orthogonal' "
                f"or 'simplex' (got {num_gumbel_samples} and {feature_map!r})"
            )
        check_choice('gumbel_evaluation', gumbel_evaluation, ('softmax', 'tempered'))
        self.num_gumbel_samples, self.gumbel_evaluation = num_gumbel_samples, gumbel_evaluation
        check_choice('relational_input', relational_input, ('value', 'output'))
        check_choice('relational_weight', relational_weight, ('sigmoid', 'identity'))
        bias_parts = relational_order, heads, relational_input, relational_weight
        self.relational_bias = RelationalBias(*bias_parts) if relational_order > 0 else None

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | Sequence[Adj | SortedEdges] | None = None,
        batch: Batch = None,
        batch_size: int | None = None,
        *,
        state: AttentionState | None = None,
        degree: Tensor | PairTensor | None = None,
        edge_weight: Tensor | None = None,
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the output ``[N_t, F_out]`` of the targets. Ignores :obj:`edge_index` unless
        the layer has a relational bias (:obj:`relational_order`).

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair of the features of
                sources and targets.
            edge_index (torch.Tensor or list, optional): The edges of the graph for the relational
                bias, or the edges of each order from :meth:`hops`. A sparse matrix has the targets
                as rows. A layer without the bias ignores them, and :obj:`degree`. (default:
                :obj:`None`)
            batch (torch.Tensor or tuple, optional): The graph id of each node, in any order, or a
                pair of such vectors for sources and targets. (default: :obj:`None`, one graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            state (AttentionState, optional): Sums over all keys of each graph, from
                :meth:`attention_state`. The targets then read these sums instead of the keys of
                :obj:`x`. (default: :obj:`None`)
            degree (torch.Tensor or tuple, optional): For a sampled subgraph and a relational bias
                of order 1, the degrees ``[N]`` in the full graph: numbers of distinct neighbours
                without the node itself, or sums of edge weights. A pair has the degrees of sources
                and targets. Not read with ``relational_input='output'``. (default: :obj:`None`,
                counted in the edges)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]`` for a relational
                bias of order 1. (default: :obj:`None`, the values of a sparse matrix, else 1)
            position (torch.Tensor or tuple, optional): The positions ``[N, position_channels]``,
                from which a layer with :obj:`position_channels` makes queries and keys, or a pair
                of those of sources and targets. (default: :obj:`None`)

        Raises:
            TypeError: If :obj:`x`, :obj:`edge_index`, :obj:`batch`, :obj:`state` or :obj:`position`
                has another type.
            ValueError: If a shape, dtype or device does not fit the layer. If :obj:`state` was
                built in training and the layer is in evaluation, or the other way round, and the
                layer has :obj:`num_gumbel_samples`. If the keys in :obj:`state` have another random
                projection than the layer. If :obj:`relational_order` is positive and
                edges are missing, or their list does not have :obj:`relational_order` entries. If
                edges have weights, or :obj:`degree` is given with ``relational_input='value'``, and
                :obj:`relational_order` is above 1. If :obj:`edge_weight` is given without a
                relational bias or beside a list of edges, or is not 1 for a self loop with
                ``relational_input='value'``. If :obj:`position` is missing in a layer with
                :obj:`position_channels`, or given to another one.
        """
        batch_size = count_graphs(batch, batch_size, state)
        check_edge_index(edge_index)
        if self.relational_bias is None:
            check_unused(edge_weight, "without a relational bias, 'relational_order' = 0")
            out = self._attend(x, batch, batch_size, state, position=position)
            return self._merge_heads(out)
        x_src = _relational_sources(x, edge_index, self.relational_bias)
        self._check_sources(x_src)
        value = self.project_values(x_src)
        out = self._attend(x, batch, batch_size, state, value=value, position=position)
        return self._merge_heads(
            out + self.relational_bias(value, out, edge_index, degree, edge_weight)
        )

    def hops(
        self, edge_index: Adj, num_nodes: int, edge_weight: Tensor | None = None
    ) -> list[SortedEdges]:
        r"""Finds the edges of each order :math:`p` of the relational bias, the entries of
        :math:`\mathbf{A}_p`.

        Compute the list once and pass it to many calls of :meth:`forward` as :obj:`edge_index`. The
        list is empty for a layer without a relational bias. Sources and targets are the same nodes;
        for a pair :obj:`x`, list the edges of each order yourself. Repeated edges in your list
        count once, too. Each call sorts it, unless an entry is
        :class:`~torch_geometric_lgt.functional.SortedEdges`, which is taken as it is.

        Args:
            edge_index (torch.Tensor or SparseTensor): The edges of the graph.
            num_nodes (int): :math:`N`.
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]`` for a relational
                bias of order 1. (default: :obj:`None`)

        Returns:
            A list with :class:`~torch_geometric_lgt.functional.SortedEdges` of each order, which
            include their weights.

        Raises:
            TypeError: If :obj:`edge_index` is in no format of edges.
            ValueError: If an edge names a node that does not exist, or edges have weights and
                :obj:`relational_order` is above 1. With ``relational_input='value'`` also if a self
                loop has another weight than 1.
        """
        if self.relational_bias is None:
            return []
        return self.relational_bias.hops(edge_index, num_nodes, num_nodes, edge_weight)

    def attention_state(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        noise: Tensor | None = None,
        position: Tensor | None = None,
    ) -> AttentionState:
        r"""Builds the state of each graph, the sums over the keys of all its nodes :obj:`x`.

        States of parts of the data can be merged, summed over processes and saved, and
        :meth:`forward` takes a state in place of keys.

        Args:
            x (torch.Tensor): The node features ``[N, F]``.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs in all parts of the data. (default:
                :obj:`None`, one more than the largest graph id)
            noise (torch.Tensor, optional): The noise :math:`g_{jk} / \tau` of the keys ``[N, H *
                K]``, divided by :math:`\tau` already, from :meth:`key_noise`. (default:
                :obj:`None`, drawn by this call in training if the layer has samples)
            position (torch.Tensor, optional): The positions ``[N, position_channels]``. (default:
                :obj:`None`)

        Returns:
            AttentionState: Sums ``[B, H, M, D + 1]`` for :math:`B` graphs and :math:`D` channels of
            a value. :math:`M` is the number of features of a key, with noise times :math:`K`.

        Raises:
            ValueError: If :obj:`x`, :obj:`batch` or :obj:`noise` has a wrong shape, dtype or
                device.
        """
        self._check_sources(x)
        noise = self.key_noise(x) if noise is None else noise
        shape = x.size(0), self.heads * self.num_gumbel_samples
        if noise is not None and noise.shape != shape:
            raise ValueError(f"'noise' must have shape {shape} (got {tuple(noise.shape)})")
        nodes = segments(batch, x.size(0), batch_size, x.device)
        return self._state(x, nodes, noise=noise, position=position)

    def attention_scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj,
        batch: Batch = None,
        *,
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the attention weight ``[P, H]`` of each pair of nodes: the share of source
        ``edge_index[0]`` in the output of target ``edge_index[1]``.

        The pairs :obj:`edge_index` ``[2, P]`` need not be edges. Weights are those of evaluation
        (:obj:`gumbel_evaluation`), without noise, also in training. The weight of a pair in
        different graphs is 0. The relational bias is not included. The other arguments are those of
        :meth:`forward`."""
        return self._scores(x, edge_index, batch, position=position)

    def log_edge_probability(
        self,
        x: Tensor,
        edge_index: Adj | SortedEdges,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        position: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the logarithm ``[P, H]`` of the attention weight of each pair of nodes in
        :obj:`edge_index` ``[2, P]``, with :math:`\tau = 1` and without noise.

        This is the kernel estimate of a softmax weight: that of source ``edge_index[0]`` for target
        ``edge_index[1]``, two nodes of the same graph. It is the logarithm of
        :meth:`attention_scores` if these have no :math:`\tau` either. It takes :math:`O(N + P)` and
        is the input of :meth:`~torch_geometric_lgt.functional.edge_regularization`. The other
        arguments are those of :meth:`forward`.

        Raises:
            ValueError: If the feature map estimates no softmax.
        """
        if not self._estimates_softmax:
            raise ValueError(
                "'feature_map' must be 'positive', 'orthogonal' or 'simplex' for logarithms of "
                'weights'
            )
        self._check_sources(x)
        self._check_targets(x)
        nodes = segments(batch, x.size(0), batch_size, x.device)
        key_input, phi = self._key_input(x, position), self._read_feature_map
        queries, keys = (
            replace(
                self._kernel_input(key_input, lin, phi, mask=None, sampling=False),
                data_normalizer=self.scale**0.5,
            )
            for lin in (self.lin_query, self.lin_key)
        )
        state = build_state(keys, no_values(keys), nodes)
        pairs = edge_list(edge_index, x.size(0), x.size(0))
        orders = edge_index.orders() if isinstance(edge_index, SortedEdges) else EdgeOrders()
        return log_attention_scores(queries, keys, state, pairs, nodes, nodes, orders)

    def __repr__(self) -> str:
        options = {'heads': self.heads, 'feature_map': getattr(self.feature_map, 'kind', None)}
        if options['feature_map'] is None:
            options['feature_map'] = self.feature_map
        if self.temperature != 1:
            options['temperature'] = self.temperature
        text = ', '.join(f'{name}={value!r}' for name, value in options.items())
        return f'{self.__class__.__name__}({self.in_channels}, {self.out_channels}, {text})'


def _relational_sources(
    x: Tensor | PairTensor, edge_index: Any, relational_bias: RelationalBias
) -> Tensor:
    r"""Returns the features ``[N_s, F]`` of the sources, which the :obj:`relational_bias` reads.

    Raises:
        ValueError: If the edges of a pair :obj:`x` are those of a graph, or the bias sums outputs,
            which sources of a pair do not have.
    """
    x_src, x_dst = feature_pair(x)
    is_graph = edge_index is not None and not is_hop_list(edge_index)
    if is_graph and x_src is not x_dst:
        raise ValueError(
            "'edge_index' must be a list with the edges of each order for a pair 'x' (got a graph)"
        )
    if x_src is not x and relational_bias.source == 'output':
        raise ValueError(
            "'x' must be one tensor with relational_input='output', which sums the outputs of the "
            'sources (got a pair)'
        )
    return x_src
