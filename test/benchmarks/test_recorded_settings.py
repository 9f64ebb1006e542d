"""The command of a published result still gives its settings, or the README names the result."""

import json
import re
import shlex

from benchmarks.common.results import PUBLISHED
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.recommendation import __main__ as recommendation

# The protocol of these data sets was random-20-per-class by default.
OTHER_PROTOCOL = {
    f'{model}-{dataset}-random-20-per-class'
    for model in ('gcn', 'mlp')
    for dataset in ('cora', 'citeseer')
}
# The settings of DirectAU were others by default.
OTHER_SETTINGS = {'directau-lightgcn-amazon-beauty-dim-64'}


def recorded(task):
    for path in sorted((PUBLISHED / task).glob('*.json')):
        record = json.loads(path.read_text())
        for command in record['command'].split(' && '):
            yield path.stem, record, shlex.split(command)[3:]


def without_defaults(config):
    """Leaves out what says that something is not used, as results before the setting do."""
    rest = {name: value for name, value in config.items() if name != 'options'}
    rest |= {f'options.{name}': value for name, value in config.get('options', {}).items()}
    return {
        name: value
        for name, value in rest.items()
        if value not in (None, 0) and value not in ('float32', 'accuracy', 'random')
    }


def test_commands_of_node_classification_give_the_recorded_settings():
    others = set()
    for name, record, arguments in recorded('node_classification'):
        settings = [
            (variant, protocol, without_defaults(config | {'neighbors': neighbors}))
            for variant, protocol, neighbors, config in node_classification.parse(arguments)[1]
        ]
        wanted = record['variant'], record['protocol'], without_defaults(record['config'])
        if json.loads(json.dumps(wanted)) not in json.loads(json.dumps(settings)):
            others.add(name)
    assert others == OTHER_PROTOCOL


def test_commands_of_recommendation_give_the_recorded_settings():
    others = set()
    for name, record, arguments in recorded('recommendation'):
        config = recommendation.parse(arguments)[1].get(record['variant'], {})
        if without_defaults(config) != without_defaults(record['config']):
            others.add(name)
    assert others == OTHER_SETTINGS


def test_the_readmes_name_the_other_results():
    folder = PUBLISHED.parent
    for task, names in (
        ('node_classification', OTHER_PROTOCOL),
        ('recommendation', OTHER_SETTINGS),
    ):
        text = (folder / task / 'README.md').read_text()
        assert all(f'`{name}.json`' in text for name in names)


def settings_of(command):
    """Returns the options of a command and their values, without those that change no figure."""
    options = {}
    for word in shlex.split(command)[3:]:
        if word.startswith('--'):
            options[word] = values = []
        else:
            values.append(word)
    others = ('--root', '--output', '--seeds', '--pictures', '--domains')
    return {name: values for name, values in options.items() if name not in others}


def test_commands_of_the_first_readme_make_published_rows():
    """Without their presets, the networks on many graphs train for days and make other rows."""
    text = (PUBLISHED.parent / 'README.md').read_text()
    for module, task in (('sbm', 'sbm'), ('tsp', 'tsp'), ('attention_domains', 'domains')):
        (command,) = re.findall(rf'`(python -m benchmarks\.{module} .+?)`', text)
        commands = [
            part
            for path in (PUBLISHED / task).glob('*.json')
            for part in json.loads(path.read_text())['command'].split(' && ')
        ]
        assert settings_of(command) in [settings_of(part) for part in commands], command
