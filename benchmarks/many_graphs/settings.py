r"""Defines the settings of trainings on many graphs, as in "Benchmarking Graph Neural Networks"."""

from typing import Any

from benchmarks.common.attentions import GRAPH_TRANSFORMER

Config = dict[str, Any]
TRAINING: Config = {
    'epochs': 1000,
    'patience': 10,
    'lr': 1e-3,
    'least_lr': 1e-6,
    'batch_size': 32,
    'hidden_channels': 80,
}
# Heads of LiteGT with reduced layers, which must divide the channels of all layers.
REDUCED_HEADS = {'full': 8, 'medium': 8, 'small': 4}
PRESETS: dict[str, Config] = {
    'full': {'graphs': None, 'layers': None, 'training': {}},
    'medium': {'graphs': None, 'layers': 8, 'training': {'epochs': 20, 'patience': 3}},
    'small': {
        'graphs': {'train': 1000, 'val': 200, 'test': 200},
        'layers': 4,
        'training': {'epochs': 20, 'patience': 3, 'least_lr': 1e-5, 'hidden_channels': 40},
    },
}


# What the training of GraphTransformer overrides: AdamW, and a rate that rises over the first
# epochs, then falls along a cosine, as in "Recipe for a General, Powerful, Scalable Graph
# Transformer".
GRAPH_TRANSFORMER_TRAINING: dict[str, Config] = {
    'full': {
        'epochs': 100,
        'warmup': 5,
        'lr': 1e-3,
        'weight_decay': 1e-5,
        'hidden_channels': 48,
    },
    'medium': {'warmup': 3, 'lr': 2e-3, 'weight_decay': 1e-2, 'hidden_channels': 48},
    'small': {'warmup': 4, 'lr': 5e-3, 'weight_decay': 1e-2},
}


def training_config(preset: str, settings: Config, model_name: str = '') -> Config:
    r"""Merges the training settings of a preset, of a data set for this preset and of a network.
    The later ones win."""
    return {
        **TRAINING,
        **PRESETS[preset]['training'],
        'pe_channels': settings['pe_channels'],
        **settings.get(preset, {}),
        **(GRAPH_TRANSFORMER_TRAINING[preset] if model_name == GRAPH_TRANSFORMER else {}),
    }
