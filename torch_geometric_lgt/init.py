r"""Starts the feature maps of a model at what its nodes look like."""

# N nodes, H heads, C channels of a key, M features.
import copy
import itertools
import math
import warnings
from typing import Any, cast

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import Module, Parameter

from torch_geometric_lgt._arguments import check_flags, check_number, check_whole
from torch_geometric_lgt._attention_calls import AttentionCall, recorded_calls
from torch_geometric_lgt.nn import FeatureMap

__all__ = ['kmeans_']
ROWS_PER_GROUP = 256
STEPS = 20


def kmeans_(
    model: Module,
    *args: Any,
    sharpness: float = 20.0,
    trainable: bool = True,
    seed: int = 0,
    **kwargs: Any,
) -> Module:
    r"""Sets the vectors of the learned feature maps of a model to the centres of groups of its
    nodes, which k-means finds.

    A new layer with ``feature_map='learned'`` has random groups, and its attention is close to the
    mean of the graph. After this function a node attends to the nodes whose keys have the direction
    of its own: with the centred keys :math:`\mathbf{k}_i` of head :math:`h` and the centres
    :math:`\mathbf{c}_{hm}` of the groups of :math:`\mathbf{k}_i / \|\mathbf{k}_i\|`,

    .. math::
        \mathbf{w}_{hm} = \frac{\mathbf{c}_{hm}}{\|\mathbf{c}_{hm}\|}, \qquad
        s_h = \frac{\gamma}{\frac{1}{N} \sum_i \|\mathbf{k}_i\|},
        \qquad
        \phi_m(\mathbf{x}) \propto \exp(s_h \mathbf{w}_{hm}^{\top} \mathbf{x}),

    and queries are computed as keys are: the weight of :obj:`lin_query` becomes that of
    :obj:`lin_key`, and their biases move the mean of the keys to 0. In layers with ``bias=False``
    the keys are not centred. The layers are treated in the order in which the model calls them,
    each after a forward pass in evaluation mode.

    Call the function before training. If each of several processes has a part of the nodes, they
    find different groups: then broadcast the parameters of one, as
    :class:`~torch.nn.parallel.DistributedDataParallel` does when it is made.

    With few labels keep the groups as they start (``trainable=False``), and let nodes attend by
    their input features: pass :obj:`x` to :class:`~torch_geometric_lgt.nn.GraphTransformer` a
    second time, as an encoding that is its :obj:`position`.

    Args:
        model (torch.nn.Module): A model whose layers have ``feature_map='learned'``. It is changed
            in place.
        *args: The positional arguments of the model's :meth:`forward`, for example :obj:`x` and
            :obj:`edge_index`.
        sharpness (float, optional): :math:`\gamma`, the logit of a key of mean norm in the
            direction of a centre. (default: :obj:`20.0`)
        trainable (bool, optional): If :obj:`False`, :obj:`lin_query`, :obj:`lin_key` and the
            feature map get no gradients. (default: :obj:`True`)
        seed (int, optional): Seeds the draw of at most :math:`256 M` keys for k-means, and of its
            first centres. (default: :obj:`0`)
        **kwargs: The keyword arguments of the model's :meth:`forward`.

    Returns:
        torch.nn.Module: The model.

    Raises:
        ValueError: If no layer that the model calls has a learned feature map. If such a layer has
            fewer different keys than features, or sources and targets of two sizes, or
            :obj:`lin_query` and :obj:`lin_key` of two kinds, so that :obj:`lin_query` cannot take
            the parameters of :obj:`lin_key`. If pruning or a parametrisation computes the bias of
            :obj:`lin_key` or a value of the feature map. If two layers share the feature map or a
            linear map. If :obj:`sharpness` is not positive and finite, or :obj:`trainable` no
            boolean. The model is then as before.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.init import kmeans_
        >>> from torch_geometric_lgt.nn import KernelAttentionConv
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> conv = KernelAttentionConv(2, 2, feature_map='learned', num_features=2)
        >>> pairs = torch.tensor([[1, 2], [0, 0]])
        >>> kmeans_(conv, x).attention_scores(x, pairs).round(decimals=2).flatten().tolist()
        [0.5, 0.0]
    """
    check_whole('seed', seed, 0)
    check_flags(trainable=trainable)
    check_number('sharpness', sharpness)
    if not 0 < sharpness < math.inf:
        raise ValueError(f"'sharpness' must be positive and finite (got {sharpness})")
    with recorded_calls(model, args, kwargs) as (calls, _):
        layers = {call.name: call.layer for call in calls if _is_learned(call.layer)}
    if not layers:
        raise ValueError(
            "'model' must call a layer with feature_map='learned' (got none, in "
            f'{type(model).__name__})'
        )
    owners: dict[Module, str] = {}
    for name, part in itertools.product(layers, ('lin_query', 'lin_key', 'feature_map')):
        module = getattr(layers[name], part)
        if owners.setdefault(module, name) != name:
            raise ValueError(
                "'model' must have layers with parts of their own, which each layer starts anew "
                f'(got one {part!r} for {owners[module]} and {name}); assign copies of it'
            )
    before = [copy.deepcopy(part.state_dict()) for part in owners]
    try:
        for name in layers:
            with torch.no_grad(), recorded_calls(model, args, kwargs) as (calls, _):
                _start(next(call for call in calls if call.name == name), sharpness, seed)
    except BaseException:  # also an interrupt
        for part, state in zip(owners, before, strict=True):
            part.load_state_dict(state)
        raise
    if not trainable:
        for part in owners:
            part.requires_grad_(False)
    return model


def _is_learned(layer: Any) -> bool:
    phi = getattr(layer, 'feature_map', None)
    return isinstance(phi, FeatureMap) and phi.is_learned


def _start(call: AttentionCall, sharpness: float, seed: int) -> None:
    layer, phi = call.layer, call.layer.feature_map
    if layer.lin_query.weight.shape != layer.lin_key.weight.shape:
        raise ValueError(
            f"'model' must have inputs of one size for queries and keys in {call.name} (got "
            f'{layer.lin_query.in_features} and {layer.lin_key.in_features})'
        )
    if layer.lin_query.state_dict().keys() != layer.lin_key.state_dict().keys():
        raise ValueError(
            f"'model' must have 'lin_query' and 'lin_key' of one kind in {call.name}, which share "
            f'their parameters (got {list(layer.lin_query.state_dict())} and '
            f'{list(layer.lin_key.state_dict())}); prune, normalise or adapt one of them after '
            'this call'
        )
    for name in ('lin_key.bias', 'feature_map.weight', 'feature_map.scale'):
        part, _, value = name.partition('.')
        if not isinstance(getattr(getattr(layer, part), value), (Parameter, type(None))):
            raise ValueError(
                f"'model' must have parameters that this call can set in {call.name} (got "
                f'{name!r}, which is computed from others); prune or normalise {part!r} after this '
                'call'
            )
    if layer.lin_key.bias is not None:
        layer.lin_key.bias.sub_(_keys(call).mean(0))
    layer.lin_query.load_state_dict(layer.lin_key.state_dict())
    keys = _keys(call).unflatten(1, (layer.heads, -1))
    norm = vector_norm(keys, dim=-1)
    for head in range(layer.heads):
        directions = (keys[:, head] / norm[:, head, None])[norm[:, head] > 0].cpu()
        num_different = directions.unique(dim=0).size(0)
        if num_different < phi.num_features:
            raise ValueError(
                f"'model' must be called with nodes of at least {phi.num_features} different keys, "
                f'as many as {call.name} has features (got {num_different})'
            )
        centre = _centres(directions, phi.num_features, seed)
        phi.weight[head] = centre.to(phi.weight)
        phi.scale[head] = sharpness / norm[:, head].mean()


def _keys(call: AttentionCall) -> Tensor:
    r"""Computes the keys ``[N, H * C]`` of a layer with a feature map, in the widest dtype of its
    device."""
    _, keys = cast(tuple[Tensor, Tensor], call.queries_and_keys())
    return keys.flatten(1)


def _centres(directions: Tensor, num_groups: int, seed: int) -> Tensor:
    r"""Computes the directions ``[M, C]`` of groups of the unit vectors ``[N, C]``."""
    generator = np.random.default_rng(seed)
    rows = generator.permutation(directions.size(0))[: ROWS_PER_GROUP * num_groups]
    if directions[rows].unique(dim=0).size(0) < num_groups:  # rare ones were not drawn
        directions = torch.cat([directions[rows], directions.unique(dim=0)])
        rows = slice(None)
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'One of the clusters is empty')  # it stays where it was
        centres, _ = kmeans2(directions.numpy()[rows], num_groups, STEPS, minit='++', rng=generator)
    return torch.nn.functional.normalize(torch.from_numpy(centres), dim=1)
