r"""Reads ``--set NAME=VALUE`` and applies it to a configuration."""

import inspect
import json
from typing import Any

import torch

from benchmarks.common.names import hint
from benchmarks.node_classification.attentions import REPLACEMENTS
from benchmarks.node_classification.models import BRANCHES, NETWORKS, OURS, make
from benchmarks.node_classification.settings import (
    OPTIONS,
    check_options,
    check_settings,
    merged,
)

# Models whose signatures name all options; the others pass unknown options on to their layers.
EXPLICIT = ('appnp', 'gprgnn', 'mixhop', 'sign', 'mlp')
SIGNATURES = {**OURS, **{name: NETWORKS[name] for name in EXPLICIT}}


def parse_overrides(texts: list[str]) -> dict[str, Any]:
    r"""Reads ``lr=0.1`` and ``options.norm=row`` as the nested overrides of a configuration.

    Raises:
        ValueError: If a text has neither form.
    """
    overrides: dict[str, Any] = {}
    for text in texts:
        name, equals, word = text.partition('=')
        value = _value(word)
        group, _, option = name.rpartition('.')
        if not equals or not option or group not in ('', 'options') or name == 'options':
            raise ValueError(f'--set takes NAME=VALUE and options.NAME=VALUE (got {text!r})')
        (overrides.setdefault(group, {}) if group else overrides)[option] = value
    return overrides


def _value(word: str) -> Any:
    for read in (json.loads, float):  # JSON has no .01
        try:
            return read(word)
        except ValueError:
            pass
    return word


def apply_overrides(default: dict[str, Any], model: str, texts: list[str]) -> dict[str, Any]:
    r"""Applies the texts of ``--set`` to the configuration of a model. Overrides of options are
    tried on a small graph.

    Raises:
        ValueError: If a setting does not exist, or a value does not fit it.
    """
    overrides = parse_overrides(texts)
    config = merged(default, overrides)
    check_settings(config, model)
    if 'options' in overrides:
        _check_option_names(overrides['options'], config['options'], model)
        _try_model(config, model, texts)
    return config


def _check_option_names(overrides: dict[str, Any], options: dict[str, Any], model: str) -> None:
    parameters = inspect.signature(SIGNATURES[model]).parameters if model in SIGNATURES else {}
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    defaults |= OPTIONS[model]
    if model in REPLACEMENTS:
        defaults['attention'] = 'simple'
    unknown = sorted(set(overrides) - set(defaults))
    if unknown and model in SIGNATURES:
        raise ValueError(f'{model} does not take options.{unknown[0]}{hint(unknown[0], defaults)}')
    check_options(options, defaults)
    if 'gnn' in overrides and (model != 'sgformer' or overrides['gnn'] not in ('gcn', *BRANCHES)):
        raise ValueError(
            f"'options.gnn' is gcn, {' or '.join(BRANCHES)}, for sgformer (got "
            f'{overrides["gnn"]!r} for {model})'
        )
    attentions = 'simple', *REPLACEMENTS.get(model, ())
    if model in REPLACEMENTS and options.get('attention', 'simple') not in attentions:
        raise ValueError(
            f"'options.attention' is {', '.join(attentions)} for {model} (got "
            f'{options["attention"]!r})'
        )


def _try_model(config: dict[str, Any], model: str, texts: list[str]) -> None:
    names = ', '.join(text for text in texts if text.startswith('options.'))
    try:
        classifier = make(model, 5, 3, torch.tensor([[0, 1], [1, 0]]), 8, config['options'])
        classifier(torch.rand(8, 5), config['edge_loss_weight'] > 0)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f'{model} does not take {names} ({reason})') from error
