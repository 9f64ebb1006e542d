r"""Defines the settings of the recommenders.

The settings of MGFormer and DirectAU were chosen on the validation part of Amazon-Beauty. LightGCN
and SGL have the larger learning rate and batches of ``GRAPH``, with which their validation metrics
rise several times faster.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.common.arguments import above_zero, natural, not_negative, positive, share

TRAINED = {
    'epochs': 300,
    'patience': 4,
    'every': 3,
    'batch_size': 2048,
    'lr': 1e-3,
    'weight_decay': 1e-6,
    'dim': 256,
    'scoring': 'popularity',
    'precision': 'float32',
}
DIRECTAU = {**TRAINED, 'batch_size': 1024, 'lr': 3e-3, 'gamma': 1.0, 'loss': 'directau'}
BPR = {**TRAINED, 'epochs': 500, 'patience': 10, 'every': 5, 'dim': 64, 'regularization': 1e-4}
GRAPH = {**BPR, 'lr': 5e-3, 'batch_size': 4096}
ATTENTION = {
    'layers': 1,
    'heads': 1,
    'mask': 'degree',
    'feature_map': 'simplex',
    'num_features': 64,
    'key_channels': 0,
    'start': 'random',
    'residual': True,
    'refresh': 8,
}
ENCODING = {'encoding': 256, 'normalize': True, 'encoding_scale': 0.6}
DEFAULTS: dict[str, dict[str, Any]] = {
    'mgformer': {**DIRECTAU, **ATTENTION, **ENCODING},
    'directau-lightgcn': {**DIRECTAU, 'layers': 2},
    'directau-mf': {**DIRECTAU, 'layers': 0},
    'simgcl': {**BPR, 'temperature': 0.2, 'layers': 2, 'weight': 0.5, 'length': 0.1},
    'sgl': {**GRAPH, 'epochs': 160, 'temperature': 0.2, 'layers': 3, 'weight': 0.1, 'share': 0.1},
    'lightgcn': {**GRAPH, 'layers': 3},
    'bprmf': {**BPR, 'layers': 0},
    'ease': {'regularization': 200.0},
    'itemknn': {'power': -0.3},
}

# What a value of a setting asks of another setting, by (setting, value).
IMPLIED: dict[tuple[str, str], dict[str, Any]] = {
    ('mask', 'adjacency'): {'refresh': 1},
    ('start', 'kmeans'): {'feature_map': 'learned'},
    **{('feature_map', name): {'num_features': 0} for name in ('elu', 'relu', 'focused')},
}
# Which options of MGFormer have no effect beside a value of another one, by (setting, value).
UNUSED: dict[tuple[str, int], tuple[str, ...]] = {
    ('encoding', 0): ('normalize', 'encoding_scale'),
    ('layers', 0): (
        *('heads', 'mask', 'feature_map', 'num_features', 'key_channels', 'start', 'residual'),
        'refresh',
    ),
}
# What each option takes that is neither a name nor true or false.
KINDS: dict[str, Callable[[str], float]] = {
    **dict.fromkeys(('epochs', 'patience', 'every', 'batch_size', 'dim'), positive),
    **dict.fromkeys(('heads', 'refresh'), positive),
    **dict.fromkeys(('layers', 'num_features', 'key_channels', 'encoding'), natural),
    **dict.fromkeys(('lr', 'encoding_scale', 'temperature'), above_zero),
    **dict.fromkeys(('weight_decay', 'gamma', 'regularization', 'weight', 'length'), not_negative),
    'share': share,
    'power': float,
}

# Data sets on which all models have 64 channels, so that they can be compared in a day of one core.
NARROW = {
    name: {'dim': 64, 'encoding': 64}
    for name in ('amazon-cds', 'amazon-sports', 'amazon-toys', 'gowalla', 'yelp-s3rec')
}

# A small MGFormer with as many encoding channels as learned channels, which all studies share, and
# what each variant overrides.
STUDY: dict[str, Any] = {'dim': 64, 'encoding': 64, 'epochs': 18}
STUDIES: dict[str, dict[str, dict[str, Any]]] = {
    'ablation': {
        'no-attention': {'layers': 0},
        'no-encoding': {'encoding': 0},
        'no-mask': {'mask': 'none'},
        'adjacency-mask': {'mask': 'adjacency'},
        'no-residual': {'residual': False},
        'elu': {'feature_map': 'elu'},
        'focused': {'feature_map': 'focused'},
    },
    'maps': {
        'learned': {'feature_map': 'learned'},
        'groups': {'start': 'kmeans'},
    },
    'heads': {f'heads-{heads}': {'heads': heads} for heads in (2, 4)},
    'layers': {f'layers-{layers}': {'layers': layers} for layers in (2, 3)},
    'gamma': {f'gamma-{gamma}': {'gamma': gamma} for gamma in (0.1, 0.5, 2.0, 5.0)},
    'dim': {f'dim-{dim}': {'dim': dim} for dim in (32, 128, 256)},
    'encoding': {f'encoding-{size}': {'encoding': size} for size in (32, 128, 256)},
    'scale': {f'scale-{scale}': {'encoding_scale': scale} for scale in (0.2, 1.0)},
    'refresh': {f'refresh-{steps}': {'refresh': steps} for steps in (1, 32)},
    'precision': {'bfloat16': {'precision': 'bfloat16'}},
    'batch': {f'batch-{size}': {'batch_size': size} for size in (512, 2048)},
}

ARCHITECTURE = (  # the options of a model; the others are those of its training
    *('dim', 'layers', 'heads', 'mask', 'feature_map', 'num_features', 'key_channels', 'start'),
    *('residual', 'encoding', 'normalize', 'encoding_scale', 'scoring', 'power'),
)
HELP: dict[str, tuple[str, tuple[str, ...]]] = {  # meaning and choices of an option
    'epochs': ('epochs at most', ()),
    'patience': ('validations without a better NDCG that end a training', ()),
    'every': ('epochs between two validations', ()),
    'batch_size': ('pairs of a batch', ()),
    'lr': ('learning rate', ()),
    'weight_decay': ('weight decay of Adam', ()),
    'dim': ('learned channels of a user or an item', ()),
    'scoring': (
        'score of an item: inner product, cosine, or the best of both and of powers of popularity',
        ('inner', 'cosine', 'popularity'),
    ),
    'precision': ('of the products in training', ('float32', 'bfloat16')),
    'gamma': ('weight of the uniformity loss', ()),
    'loss': (
        'alignment and uniformity as DirectAU has them, or as the paper of MGFormer',
        ('directau', 'paper'),
    ),
    'layers': ('attention layers or propagation steps', ()),
    'heads': ('heads of the attention', ()),
    'mask': ('what weighs the attention to a node', ('none', 'degree', 'adjacency')),
    'feature_map': (
        'feature map of the attention',
        ('simplex', 'positive', 'orthogonal', 'fourier', 'elu', 'relu', 'focused', 'learned'),
    ),
    'num_features': (
        'random features of the feature map; 0: as many as its channels, which elu, relu and '
        'focused have',
        (),
    ),
    'key_channels': ('channels of queries and keys; 0: those of the values', ()),
    'start': (
        'groups of nodes that the feature map learned starts at: random, or by k-means',
        ('random', 'kmeans'),
    ),
    'residual': ('whether the output of a layer is added to its input', ()),
    'refresh': ('training steps for which the keys are used; 1 with the mask adjacency', ()),
    'encoding': ('channels of the encoding by singular vectors; 0: none', ()),
    'normalize': ('whether the interaction matrix of the encoding is normalised by degrees', ()),
    'encoding_scale': ('length of the rows of the encoding', ()),
    'regularization': (
        'weight of the squared embeddings, of EASE that of the ridge regression',
        (),
    ),
    'temperature': ('temperature of the contrastive loss', ()),
    'weight': ('weight of the contrastive loss', ()),
    'length': ('length of the noise of SimGCL', ()),
    'share': ('share of the edges that SGL drops', ()),
    'power': ('power of the degree that weighs the items of Item-kNN', ()),
}


def defaults(model: str, dataset: str) -> dict[str, Any]:
    r"""Returns the configuration of a model on a data set."""
    return DEFAULTS[model] | {
        name: value for name, value in NARROW.get(dataset, {}).items() if name in DEFAULTS[model]
    }


def implied(changes: dict[str, Any]) -> dict[str, Any]:
    r"""Returns the settings that others in :obj:`changes` ask for."""
    return {
        name: value for change in changes.items() for name, value in IMPLIED.get(change, {}).items()
    }


# Table 2 of "Masked Graph Transformer for Large-Scale Recommendation": Recall@20 and NDCG@20
PUBLISHED = {
    'amazon-beauty': {
        'bprmf': (0.1153, 0.0534),
        'lightgcn': (0.1201, 0.0581),
        'sgl': (0.1228, 0.0644),
        'gotnet': (0.1309, 0.0650),
        'gformer': (0.1362, 0.0671),
        'simgcl': (0.1367, 0.0682),
        'directau-lightgcn': (0.1465, 0.0710),
        'mgformer': (0.1531, 0.0748),
    },
    'yelp2018': {
        'bprmf': (0.0693, 0.0428),
        'lightgcn': (0.0833, 0.0514),
        'sgl': (0.0896, 0.0554),
        'gotnet': (0.0924, 0.0567),
        'gformer': (0.0955, 0.0597),
        'simgcl': (0.0937, 0.0571),
        'directau-lightgcn': (0.0981, 0.0615),
        'mgformer': (0.1051, 0.0668),
    },
    'alibaba': {
        'bprmf': (0.0439, 0.0190),
        'lightgcn': (0.0585, 0.0275),
        'sgl': (0.0602, 0.0295),
        'gotnet': (0.0643, 0.0301),
        'gformer': (0.0653, 0.0305),
        'simgcl': (0.0667, 0.0311),
        'directau-lightgcn': (0.0664, 0.0308),
        'mgformer': (0.0702, 0.0328),
    },
}
