from typing import Any

import torch.fx


def check_not_traced(model: torch.nn.Module, args: Any) -> None:
    r"""Checks that :meth:`forward` of a model is not traced by ``torch.fx``, which passes a proxy
    for its positional arguments :obj:`args`.

    Raises:
        ValueError: If it is.
    """
    if isinstance(args, torch.fx.Proxy):
        raise ValueError(
            f'{type(model).__name__} cannot be traced by torch.fx, nor be changed by to_hetero: '
            'build the model of its layers, which to_hetero and HeteroConv take, or pass the graph '
            'of HeteroData.to_homogeneous()'
        )
