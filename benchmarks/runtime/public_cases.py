r"""Defines the cases of ``benchmarks.runtime.layers`` whose peers are the authors' published
programs.

No such program comes with this package; all are read from clones in one folder.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.runtime.cases import Case, Forward
from torch_geometric_lgt.nn import DIFFormerConv, KernelAttentionConv, SGFormerConv

FILES = {
    'nodeformer': 'NodeFormer/nodeformer.py',
    'difformer': 'DIFFormer/node classification/difformer.py',
    'sgformer': 'SGFormer/large/ours.py',
}
TEMPERATURE = 0.25
# Factor of the input: NodeFormer's authors add 1e-6 to all features, which at larger norms is more
# than the features.
SMALL = 1 / 8


def program(name: str, config: dict[str, Any]) -> ModuleType:
    path = Path(config['public'], FILES[name])
    if not path.is_file():
        raise FileNotFoundError(
            f'{path} is missing; git clone '
            f'https://github.com/qitianwu/{path.relative_to(config["public"]).parts[0]}'
        )
    spec = importlib.util.spec_from_file_location(f'public_{name}', path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_weights(conv: torch.nn.Module, peer: torch.nn.Module) -> None:
    r"""Copies the weights of our layer to the peer."""
    for name, peer_name in (('query', 'Wq'), ('key', 'Wk'), ('value', 'Wv')):
        getattr(peer, peer_name).load_state_dict(getattr(conv, f'lin_{name}').state_dict())


def gumbel(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Calls the central function of the authors' layer with our linear parts and features, as
    the layer fails without an edge loss."""
    module, channels, heads = program('nodeformer', config), x.size(1), config['heads']
    samples = {'num_features': 30, 'num_gumbel_samples': 10, 'temperature': TEMPERATURE}
    conv = KernelAttentionConv(
        channels, heads * channels, heads, feature_map='orthogonal', **samples
    )
    features = module.softmax_kernel_transformation, conv.feature_map.projection

    def peer() -> Tensor:
        parts = (
            lin(x).view(1, -1, heads, channels)
            for lin in (conv.lin_query, conv.lin_key, conv.lin_value)
        )
        return module.kernelized_gumbel_softmax(
            *parts, *features, K=10, tau=TEMPERATURE, return_weight=False
        )[0].flatten(1)

    return lambda: conv(x), peer


def gumbel_claim(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    return gumbel(SMALL * x, config)


def difformer(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = DIFFormerConv(x.size(1), x.size(1), norm='frobenius', use_graph=False)
    peer = program('difformer', config).DIFFormerConv(x.size(1), x.size(1), 1, use_graph=False)
    copy_weights(conv, peer)
    return lambda: conv(x), lambda: peer(x, x)


def sgformer(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = SGFormerConv(x.size(1), x.size(1))
    peer = program('sgformer', config).TransConvLayer(x.size(1), x.size(1), 1)
    copy_weights(conv, peer)
    return lambda: conv(x), lambda: peer(x, x)


PUBLIC_CASES = {
    'public-nodeformer': Case(gumbel, claim=gumbel_claim),
    'public-difformer': Case(difformer),
    'public-sgformer': Case(sgformer),
}
