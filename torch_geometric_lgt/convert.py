r"""Parameters of models of other packages under the names of this package's models, where both
models then compute the same."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torch_geometric_lgt._arguments import check_flags, check_number

__all__ = ['from_difformer', 'from_pyg_sgformer', 'from_sgformer']

Rules = Sequence[tuple[str, str | None]]
PARTS = {'q': 'query', 'k': 'key', 'v': 'value'}


def from_pyg_sgformer(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    r"""Converts the parameters of :class:`torch_geometric.nn.models.SGFormer` with one head for
    :class:`~torch_geometric_lgt.nn.SGFormer`: renames them, and adds biases of 0 to linear maps
    that have no bias in PyG.

    Load them into a model that was made with the arguments of the example, and with the same
    :obj:`aggregate` as PyG's model. In evaluation on one graph, the model's outputs equal PyG's
    before ``log_softmax``, with one exception: PyG replaces entries of queries and keys that are
    exactly 0, as of a node whose hidden features are all 0, by 1e-6. This model does not.

    Args:
        state_dict (dict): What :meth:`state_dict` of PyG's model returns, also if ``DataParallel``
            has put ``module.`` before the names.

    Returns:
        A dictionary for :meth:`load_state_dict` of the model.

    Raises:
        TypeError: If :obj:`state_dict` is no dictionary.
        ValueError: If PyG's model has several heads, whose outputs it averages, or
            :obj:`state_dict` has a key that PyG's model does not have.

    Example:
        >>> import torch
        >>> import torch_geometric
        >>> from torch_geometric.nn.models.sgformer import GraphModule
        >>> from torch_geometric_lgt.convert import from_pyg_sgformer
        >>> from torch_geometric_lgt.nn import SGFormer
        >>> theirs = torch_geometric.nn.SGFormer(16, 32, 3, graph_weight=0.8).eval()
        >>> ours = SGFormer(
        ...     16,
        ...     32,
        ...     3,
        ...     num_layers=2,  # trans_num_layers
        ...     norm='row',
        ...     alpha=0.8,  # graph_weight
        ...     gnn=GraphModule(16, 32, num_layers=3),  # gnn_num_layers
        ...     gnn_input='input',
        ...     activate_layers=True,
        ... ).eval()
        >>> result = ours.load_state_dict(from_pyg_sgformer(theirs.state_dict()))
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> expected = theirs(x, edge_index, torch.zeros(4, dtype=torch.long))
        >>> torch.allclose(ours(x, edge_index).log_softmax(1), expected, atol=1e-5)
        True
    """
    rules = [
        *_backbone('trans_conv.', 'attns', ''),
        (r'graph_conv\.(.+)', r'gnn.\1'),
        (r'fc\.(weight|bias)', r'lin_out.\1'),
    ]
    renamed = _renamed(state_dict, rules)
    for name, value in list(renamed.items()):
        if re.fullmatch(r'convs\.\d+\.lin_(query|key|value)\.weight', name):
            bias = name.replace('weight', 'bias')
            renamed.setdefault(bias, value.new_zeros(value.size(0)))
    return renamed


def from_sgformer(state_dict: Mapping[str, Tensor], layer_norm: bool = True) -> dict[str, Tensor]:
    r"""Renames the parameters of SGFormer in its authors' code, with one head, for
    :class:`~torch_geometric_lgt.nn.SGFormer`.

    Build :class:`~torch_geometric_lgt.nn.SGFormer` with these arguments and load the result;
    :doc:`/migrate/sgformer` has all of them in a table. In evaluation on one undirected graph both
    models then return the same scores.

    * ``norm='frobenius'`` and ``gnn_input='input'``.
    * :obj:`alpha`: their :obj:`graph_weight`.
    * :obj:`beta`: their :obj:`alpha`, 0.5 in ``large``, and 1 without their residual.
    * :obj:`layer_norm` and :obj:`activate_layers`: whether their attention has norms
      (:obj:`use_bn`) and, in ``large``, activations (:obj:`trans_use_act`).
    * ``value_projection=False`` without their ``Wv``.
    * :obj:`gnn`: for their folder ``medium`` with the backbone GCN the default with
      :obj:`gnn_num_layers` as theirs; for ``large`` and ``100M``
      ``torch_geometric.nn.models.sgformer.GraphModule``, and add a self loop to each node first.

    Checkpoints of ``large`` with :obj:`use_init`, as in the authors' settings for Amazon2M, pokec
    and ogbn-papers100M, cannot be converted: their local branch has an input layer of its own.
    ``GraphModule`` has it, but no layers with :obj:`use_init`; ``SGFormer(gnn_use_init=True)`` has
    such layers, but one input layer for both branches. Train that model anew.

    Args:
        state_dict (dict): What :meth:`state_dict` of the authors' model returns, also if
            ``DataParallel`` has put ``module.`` before the names.
        layer_norm (bool, optional): If :obj:`False`, norms are left out of the result: those of all
            parts in ``medium``, those of the attention in ``large``. Set :obj:`False` here and in
            :class:`~torch_geometric_lgt.nn.SGFormer` if :obj:`use_bn` or :obj:`trans_use_bn` is
            off; such checkpoints contain norms that their model does not apply. (default:
            :obj:`True`)

    Returns:
        A dictionary for :meth:`load_state_dict` of the model.

    Raises:
        TypeError: If :obj:`state_dict` is no dictionary.
        ValueError: If the authors' model has several heads, whose outputs it averages, or
            :obj:`use_init` in ``large``. Also if :obj:`state_dict` has a key that none of these
            models has, or :obj:`layer_norm` is no boolean.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.convert import from_sgformer
        >>> from torch_geometric_lgt.nn import SGFormer
        >>> found = from_sgformer({
        ...     'trans_conv.convs.0.Wq.weight': torch.eye(2),
        ...     'gnn.convs.0.lin.weight': torch.eye(2),
        ...     'fc.bias': torch.zeros(2),
        ... })
        >>> list(found)
        ['convs.0.lin_query.weight', 'gnn.convs.0.lin.weight', 'lin_out.bias']
        >>> model = SGFormer(2, 2, 2, alpha=0.8, beta=1.0, gnn_input='input', layer_norm=False)
        >>> _ = model.load_state_dict(found, strict=False)  # a checkpoint has all parameters
        >>> model.convs[0].lin_query.weight.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    check_flags(layer_norm=layer_norm)
    norms: Rules = [] if layer_norm else [(r'(trans_conv|gnn)\.bns\..+', None)]
    rules = [
        *norms,
        *_backbone('trans_conv.', 'convs', 'W'),
        (r'gnn\.convs\.(\d+)\.(lin\.weight|bias)', r'gnn.convs.\1.\2'),
        (r'gnn\.bns\.(\d+)\.(.+)', r'gnn.norms.\1.module.\2'),
        (r'graph_conv\.convs\.(\d+)\.W\.weight', r'gnn.convs.\1.lin.weight'),
        (r'graph_conv\.convs\.(\d+)\.W\.bias', r'gnn.convs.\1.bias'),
        (r'graph_conv\.((?:fcs|bns)\..+)', r'gnn.\1'),
        (r'fc\.(weight|bias)', r'lin_out.\1'),
    ]
    _check_state_dict(state_dict)
    for name, value in state_dict.items():
        if re.fullmatch(r'(module\.)?graph_conv\.convs\.\d+\.W\.weight', name):
            _check_square(name, value, "be of a model without 'use_init'")
    return _renamed(state_dict, rules)


def from_difformer(
    state_dict: Mapping[str, Tensor], layer_norm: bool = True, graph_weight: float = -1.0
) -> dict[str, Tensor]:
    r"""Converts the parameters of DIFFormer in its authors' code for node classification, with one
    head, for :class:`~torch_geometric_lgt.nn.DIFFormer`: renames them, and scales the values where
    :obj:`graph_weight` is positive.

    Build :class:`~torch_geometric_lgt.nn.DIFFormer` with ``norm='frobenius'`` for their simple
    kernel, with their :obj:`alpha` as :obj:`tau`, or ``tau=1`` without their residual, and load the
    result. In evaluation on one undirected graph without weights, both models then return the same
    scores. If their :obj:`graph_weight` :math:`w` is positive, their model adds :math:`(1 - w)`
    times the attention and :math:`w` times the sums over edges. Then this function multiplies the
    values by :math:`1 - w`, and :class:`~torch_geometric_lgt.nn.DIFFormer` needs ``graph_weight=w /
    (1 - w)``.

    Args:
        state_dict (dict): What :meth:`state_dict` of the authors' model returns, also if
            ``DataParallel`` has put ``module.`` before the names.
        layer_norm (bool, optional): If :obj:`False`, norms are left out of the result. Set
            :obj:`False` here and in :class:`~torch_geometric_lgt.nn.DIFFormer` if their
            :obj:`use_bn` is off; their model contains norms also then, but does not apply them.
            (default: :obj:`True`)
        graph_weight (float, optional): :math:`w`, the authors' argument; at most 0 for the plain
            sum of both terms. (default: :obj:`-1.0`, their default)

    Returns:
        A dictionary for :meth:`load_state_dict` of the model.

    Raises:
        TypeError: If :obj:`state_dict` is no dictionary.
        ValueError: If the authors' model has several heads, whose outputs it averages, or
            :obj:`state_dict` has a key that their model does not have. If :obj:`layer_norm` is no
            boolean. If :obj:`graph_weight` is 1 or more, or positive without their ``Wv``, the
            linear map of the values.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.convert import from_difformer
        >>> found = from_difformer({'convs.0.Wv.bias': torch.ones(2)}, graph_weight=0.75)
        >>> found
        {'convs.0.lin_value.bias': tensor([0.2500, 0.2500])}
    """
    check_flags(layer_norm=layer_norm)
    check_number('graph_weight', graph_weight)
    norms: Rules = [] if layer_norm else [(r'bns\..+', None)]
    renamed = _renamed(
        state_dict,
        [*norms, *_backbone('', 'convs', 'W'), (r'fcs\.1\.(weight|bias)', r'lin_out.\1')],
    )
    if graph_weight <= 0:
        return renamed
    values = [name for name in renamed if 'lin_value' in name]
    if not graph_weight < 1 or not values:
        raise ValueError(
            "'graph_weight' must be below 1, and at most 0 for a model without 'use_weight' (got "
            f'{graph_weight} and {len(values)} parameters of values)'
        )
    return renamed | {name: (1 - graph_weight) * renamed[name] for name in values}


def _backbone(prefix: str, layers: str, letter: str) -> Rules:
    r"""Returns the rules of an input layer, norms and attention layers: the list :obj:`layers`,
    whose linear maps are named :obj:`letter` and q, k or v."""
    start = re.escape(prefix)
    return [
        (rf'{start}fcs\.0\.(weight|bias)', r'lin_in.\1'),
        (rf'{start}bns\.(\d+)\.(weight|bias)', r'norms.\1.\2'),
        *(
            (rf'{start}{layers}\.(\d+)\.{letter}{part}\.(weight|bias)', rf'convs.\1.lin_{name}.\2')
            for part, name in PARTS.items()
        ),
    ]


def _renamed(state_dict: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    r"""Returns the tensors under new names. A rule is a pattern of names and the new name, or
    :obj:`None` for tensors to leave out.

    Raises:
        ValueError: If no rule fits a name, or a query has several heads.
    """
    _check_state_dict(state_dict)
    renamed, unknown = {}, []
    for name, value in state_dict.items():
        plain = name.removeprefix('module.')  # of DataParallel
        matches = ((re.fullmatch(pattern, plain), new) for pattern, new in rules)
        match, new = next(((match, new) for match, new in matches if match), (None, None))
        if match is None:
            unknown.append(name)
        elif new is not None:
            renamed[match.expand(new)] = value
            if re.fullmatch(r'convs\.\d+\.lin_query\.weight', match.expand(new)):
                _check_square(name, value, 'be of a model with one head')
    if unknown:
        is_ours = 'lin_in.weight' in unknown
        hint = "; a model of this package takes these by 'load_state_dict'" if is_ours else ''
        raise ValueError(
            "'state_dict' must have no other parameters than the model that the function converts "
            f'(got {", ".join(unknown)}){hint}'
        )
    return renamed


def _check_state_dict(state_dict: Any) -> None:
    r"""Raises a TypeError unless :obj:`state_dict` is a dictionary."""
    if not isinstance(state_dict, Mapping):
        is_model = hasattr(state_dict, 'state_dict')
        fix = 'model.state_dict()' if is_model else 'torch.load(path, weights_only=True)'
        raise TypeError(
            "'state_dict' must be a dictionary of tensors, such as "
            f'{fix} (got {type(state_dict).__name__})'
        )


def _check_square(name: str, value: Tensor, rule: str) -> None:
    if value.size(0) != value.size(1):
        raise ValueError(f"'state_dict' must {rule} (got {name} of shape {tuple(value.shape)})")
