r"""Searches settings of a node classifier by the validation score.

python -m benchmarks.node_classification.search --root DATA --dataset cora --model sgformer \
    --trials 60
python -m benchmarks.node_classification.search --dataset computers --model sgformer \
    --set options.gnn=sage options.gnn_input=hidden

The score is the mean of the metric on validation nodes over seeds; the search never reads the test
nodes. Settings of ``--set`` are not searched. The script prints the command that runs the best
configuration. The same command continues a search that was killed.
"""

import argparse
import contextlib
import functools
import inspect
import json
import shlex
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.common import training
from benchmarks.common.arguments import add_device, add_seeds, positive, script_parser
from benchmarks.common.attentions import GRAPH_TRANSFORMER
from benchmarks.common.files import DataError, say
from benchmarks.common.scripts import data_from, run_script
from benchmarks.node_classification.datasets import LAYOUT, add_dataset, add_protocol, load, split
from benchmarks.node_classification.metrics import METRICS, check_classes
from benchmarks.node_classification.models import BRANCHES, OURS
from benchmarks.node_classification.overrides import apply_overrides, parse_overrides
from benchmarks.node_classification.run import dense_tensors, model_input, prepare
from benchmarks.node_classification.settings import MODELS, OPTIONS, merged, settings
from torch_geometric_lgt import __version__

if TYPE_CHECKING:
    import optuna

WIDTHS, SHARES = (32, 64, 128, 256), (0.0, 0.9)
RATES = {'lr': (1e-4, 5e-2), 'weight_decay': (1e-5, 1.0)}
SGC_RATES = {'lr': (1e-2, 1.0), 'weight_decay': (1e-7, 1e-2)}
LAYERED = ('nodeformer', 'difformer', 'sgformer', 'gcn', 'gat', 'sage', 'mlp')
LAYERED += ('jknet', 'appnp', 'gprgnn', 'mixhop')
SPACE = 5  # version of the search space: a study of another version cannot continue
DEPTH = {'difformer': 8, 'sgformer': 2}
COMPARED = ('learned', 'mean', 'no-attention')  # attentions of GraphTransformer


def space(trial: 'optuna.trial.BaseTrial', model: str) -> dict[str, Any]:
    r"""Suggests the overrides of the configuration that a trial tries."""
    options: dict[str, Any] = {}
    if model != 'sgc':
        widths = sorted({*WIDTHS, OPTIONS[model]['hidden_channels']})
        options['hidden_channels'] = trial.suggest_categorical('hidden_channels', widths)
    rates = SGC_RATES if model == 'sgc' else RATES
    overrides: dict[str, Any] = {
        name: trial.suggest_float(name, *limits, log=True) for name, limits in rates.items()
    }
    overrides['normalize_features'] = trial.suggest_categorical('normalize_features', (False, True))
    if model in (*LAYERED, 'sign', GRAPH_TRANSFORMER):
        options['dropout'] = trial.suggest_float('dropout', *SHARES)
    if model in LAYERED:
        options['num_layers'] = trial.suggest_int('num_layers', 1, DEPTH.get(model, 4))
    if model in ('sgc', 'sign'):
        options['K'] = trial.suggest_int('K', 1, 4)
    if model in ('appnp', 'gprgnn'):
        options['alpha'] = trial.suggest_float('alpha', 0.05, 0.9)
    if model == 'sgformer':
        options |= {name: trial.suggest_float(name, *SHARES) for name in ('alpha', 'gnn_dropout')}
        options |= {
            'beta': trial.suggest_float('beta', 0.0, 1.0),
            'gnn_num_layers': trial.suggest_int('gnn_num_layers', 1, 8),
            'norm': trial.suggest_categorical('norm', ('row', 'frobenius')),
            'layer_norm': trial.suggest_categorical('layer_norm', (True, False)),
            'gnn': trial.suggest_categorical('gnn', ('gcn', *BRANCHES)),
        }
        if options['gnn'] == 'gcn':
            options['gnn_residual'] = trial.suggest_categorical('gnn_residual', (False, True))
        options['gnn_input'] = (
            'hidden'
            if options['gnn'] == 'sage'
            else trial.suggest_categorical('gnn_input', ('input', 'hidden'))
        )
        overrides['attention_weight_decay'] = trial.suggest_float(
            'attention_weight_decay', 1e-5, 1e-1, log=True
        )
    if model in ('sgformer', 'difformer'):
        options['value_projection'] = trial.suggest_categorical('value_projection', (True, False))
    if model == 'difformer':
        options |= {
            'tau': trial.suggest_float('tau', 0.1, 1.0),
            'norm': trial.suggest_categorical('norm', ('row', 'frobenius')),
        }
    if model == GRAPH_TRANSFORMER:
        overrides['laplacian_pe'] = trial.suggest_categorical('laplacian_pe', (0, 16))
        options |= {
            'input_dropout': trial.suggest_float('input_dropout', *SHARES),
            'num_local_layers': trial.suggest_int('num_local_layers', 1, 8),
            'conv': trial.suggest_categorical('conv', ('GCNConv', 'SAGEConv', 'GATConv')),
            'norm': trial.suggest_categorical('norm', ('batch_norm', 'layer_norm', None)),
            'attention': trial.suggest_categorical('attention', COMPARED),
        }
    if model == 'nodeformer':
        options['relational_order'] = trial.suggest_int('relational_order', 0, 3)
        options['gumbel_evaluation'] = trial.suggest_categorical(
            'gumbel_evaluation', ('softmax', 'tempered')
        )
        overrides['edge_loss_weight'] = trial.suggest_float('edge_loss_weight', 1e-3, 1.0, log=True)
    return overrides | {'options': options}


def first_trial(config: dict[str, Any], model: str) -> dict[str, Any]:
    r"""Converts the configuration to the values of the first trial. Rates and weights of 0 are left
    out, as their scales are logarithmic."""
    parameters = inspect.signature(OURS[model]).parameters.values() if model in OURS else ()
    if config['attention_weight_decay'] is None:
        config = config | {'attention_weight_decay': config['weight_decay']}
    rates = {name: value for name, value in config.items() if isinstance(value, bool) or value}
    flat = (
        {parameter.name: parameter.default for parameter in parameters}
        | {'gnn': 'gcn'}
        | rates
        | config['options']
    )
    return {name: value for name, value in flat.items() if isinstance(value, float | int | str)}


@contextlib.contextmanager
def locked(key: str) -> Iterator[None]:
    r"""Keeps other processes from the study of this key, whose running trials would count as
    killed.

    Raises:
        DataError: If another process runs it.
    """
    training.CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    lock = FileLock(training.CHECKPOINTS / f'.search-{key}.lock')
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise DataError('another process runs the same search; wait for its end') from error
    try:
        yield
    finally:
        lock.release()


def open_study(name: str, key: str, fixed: dict[str, Any]) -> 'optuna.Study':
    r"""Opens the study of these settings, this data and this version of the package, and says
    how many trials of earlier calls it has. Random numbers of later calls are others, so that they
    try other settings."""
    import optuna

    address = f'sqlite:///{training.CHECKPOINTS / "search.db"}'
    storage = optuna.storages.get_storage(address)
    others = [
        other for other in optuna.get_all_study_names(storage) if other.startswith(f'{name}-')
    ]
    study = optuna.create_study(
        storage=storage,
        study_name=f'{name}-{key}',
        direction='maximize',
        pruner=optuna.pruners.MedianPruner(n_startup_trials=10),
        load_if_exists=True,
    )
    if study.study_name in others:
        say(f'{study.study_name}: {len(study.trials)} trials are read back from {address}')
    elif others:
        say(
            f'{name}: other settings or data, or another version of the package, than in '
            f'{address}: the search starts anew'
        )
    sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    study.sampler = optuna.samplers.PartialFixedSampler(fixed, sampler)
    return study


def search(args: argparse.Namespace) -> 'optuna.Study':
    r"""Runs what is left of the trials and returns the study."""
    protocol, default = settings(args.dataset, args.protocol, args.model)
    overrides = parse_overrides(args.set)
    default = merged(default, overrides)
    fixed = overrides.pop('options', {}) | overrides
    with data_from(args.root, LAYOUT):
        graph = load(args.root, args.dataset, wrong_edges=default['wrong_edges'])
        parts = {seed: split(graph, protocol, seed) for seed in args.seeds}
    for part in parts.values():
        check_classes(graph.y, {'valid': part['valid']}, default['metric'])
    name = '-'.join([args.model, Path(args.dataset).stem, protocol, str(SPACE), *sorted(args.set)])
    settings_text = json.dumps(
        [default, args.seeds, args.patience, training.PROTOCOL, __version__], sort_keys=True
    )
    key = training.fingerprint(dense_tensors(graph), *parts.values(), settings_text)
    with locked(key):
        study = open_study(name, key, fixed)
        run_trials(study, args, default, graph, parts)
    return study


def run_trials(
    study: 'optuna.Study',
    args: argparse.Namespace,
    default: dict[str, Any],
    graph: Data,
    parts: dict[int, dict[str, Tensor]],
) -> None:
    r"""Runs the trials that a study still lacks. The first one has the settings of
    :obj:`default`."""
    import optuna
    from optuna.trial import TrialState

    for trial in study.get_trials(states=(TrialState.RUNNING,)):  # its process was killed
        study.tell(trial.number, state=TrialState.FAIL)
    finished = len(study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED)))
    if finished == 0 and not study.get_trials(states=(TrialState.WAITING,)):
        study.enqueue_trial(first_trial(default, args.model))

    @functools.cache
    def graph_with(normalize_features: bool, laplacian_pe: int) -> Data:
        features = {'normalize_features': normalize_features, 'laplacian_pe': laplacian_pe}
        return model_input(graph, args.model, default | features, args.device)

    def objective(trial: 'optuna.Trial') -> float:
        config = merged(merged(default, space(trial, args.model)), parse_overrides(args.set))
        scores: list[float] = []
        data = graph_with(config['normalize_features'], config['laplacian_pe'])
        for number, seed in enumerate(args.seeds):
            with tempfile.TemporaryDirectory() as folder:
                run = prepare(
                    data, parts[seed], args.model, config, seed, Path(folder) / 'checkpoint'
                )
                run.fit(
                    config['epochs'],
                    args.patience,
                    1,
                    f'trial {trial.number}, seed {seed}',
                    lambda *_: None,
                )
            scores.append(run.best_score)
            trial.report(statistics.fmean(scores), number)
            if trial.should_prune():
                raise optuna.TrialPruned
        return statistics.fmean(scores)

    study.optimize(objective, n_trials=max(0, args.trials - finished), show_progress_bar=True)


def command(args: argparse.Namespace, study: 'optuna.Study') -> str:
    r"""Writes the command that runs the best configuration. The name of the variant records the
    search."""
    import optuna

    best = space(optuna.trial.FixedTrial(study.best_params), args.model)
    fixed = parse_overrides(args.set)
    options = best.pop('options') | fixed.pop('options', {})
    overrides = [f'{name}={_text(value)}' for name, value in (best | fixed).items()]
    overrides += [f'options.{name}={_text(value)}' for name, value in options.items()]
    root = '' if args.root == 'data' else f' --root {shlex.quote(args.root)}'
    protocol = f' --protocol {args.protocol}' if args.protocol else ''
    dataset = shlex.quote(args.dataset)
    start = (
        f'python -m benchmarks.node_classification{root} --dataset {dataset} --model '
        f'{args.model}{protocol}'
    )
    return f'{start} --variant searched-{len(study.trials)}-trials --set {" ".join(overrides)}'


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f'{value:.6g}' if isinstance(value, float) else str(value)


def main() -> None:
    parser = script_parser(__doc__, writes=False)
    add_dataset(parser)
    add_protocol(parser)
    parser.groups['model'].add_argument(
        '--model', choices=MODELS, default='sgformer', help='the model whose settings are searched'
    )
    add_seeds(parser, [0, 1, 2], 'a training for each in every trial')
    parser.groups['training'].add_argument(
        '--trials', type=positive, default=60, help='trials in all, those of earlier calls counted'
    )
    parser.groups['model'].add_argument(
        '--set', nargs='+', default=[], metavar='NAME=VALUE', help='settings that are not searched'
    )
    parser.groups['training'].add_argument(
        '--patience',
        type=positive,
        default=100,
        help='epochs without a better validation score that end a training',
    )
    add_device(parser)
    args = parser.parse_args()
    try:
        _, default = settings(args.dataset, args.protocol, args.model)
        config = apply_overrides(default, args.model, args.set)
    except ValueError as error:
        parser.error(str(error))
    metric = METRICS[config['metric']].title
    study = search(args)
    seconds = sum(
        trial.duration.total_seconds() for trial in study.trials if trial.duration is not None
    )
    print(
        f'validation {metric} {study.best_value:.4f} after {len(study.trials)} trials and '
        f'{seconds:.0f} s; to measure it:'
    )
    print(command(args, study))


if __name__ == '__main__':
    run_script(main)
