import sys

import pytest

from benchmarks.recommendation import __main__ as recommendation


def test_variants_of_a_study_differ_in_one_respect_from_what_they_have_in_common():
    common = recommendation.DEFAULTS['mgformer'] | recommendation.STUDY
    for name, study in recommendation.STUDIES.items():
        _, configs = recommendation.parse(['--study', name])
        assert list(configs) == ['study', *study]
        assert configs.pop('study') == common
        for variant, config in configs.items():
            assert set(config) == set(common)
            assert config != common, variant


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ('--model ease --gamma 1', 'ease does not take --gamma'),
        ('--study heads --gamma 1', 'a study names its own variants'),
        ('--mask adjacency --refresh 2', '--refresh must be 1 with the other options (got 2)'),
        ('--feature-map elu --num-features 8', '--num-features must be 0 with the other options'),
        ('--refresh 0', "argument --refresh: '0' must be an integer of at least 1"),
        ('--layers -1', "argument --layers: '-1' must be an integer of at least 0"),
        ('--lr nan', "argument --lr: 'nan' must be a number above 0"),
        ('--gamma x', "argument --gamma: 'x' must be a number of at least 0"),
        ('--model sgl --share 1', "argument --share: '1' must be a number of at least 0 and below"),
        ('--variant a/b', "argument --variant: 'a/b' must be a part of a file name"),
        ('--variant a:b', "argument --variant: 'a:b' must be a part of a file name"),
        ('--epochs 0', "argument --epochs: '0' must be an integer of at least 1"),
        ('--heads 3 --dim 8 --encoding 8', '--heads must divide --dim plus --encoding (got 3'),
        ('--heads 2 --key-channels 5', '--heads must divide --key-channels (got 2 and 5)'),
        ('--model simgcl --layers 0', '--layers must be at least 1 for simgcl, whose noise'),
        ('--start kmeans --layers 0', '--layers must be at least 1 for --start kmeans (got 0)'),
        ('--encoding 0 --encoding-scale 0.2', '--encoding-scale has no effect with --encoding 0'),
        ('--encoding 0 --no-normalize', '--no-normalize has no effect with --encoding 0'),
        ('--layers 0 --start random', '--start has no effect with --layers 0 (got random)'),
        ('--layers 0 --mask none', '--mask has no effect with --layers 0 (got none); leave it out'),
        ('--layers 0 --refresh 1', '--refresh has no effect with --layers 0 (got 1)'),
        ('--start kmeans --feature-map elu', '--feature-map must be learned with the other'),
    ],
)
def test_bad_options_are_refused(options, message, capsys):
    with pytest.raises(SystemExit):
        recommendation.parse(options.split())
    assert message in capsys.readouterr().err


def test_settings_that_others_ask_for():
    """A mask or a feature map alone ended in a traceback, as did a command of the documentation."""
    for options, name, value in (
        ('--mask adjacency', 'refresh', 1),
        ('--feature-map focused', 'num_features', 0),
        ('--start kmeans', 'feature_map', 'learned'),
    ):
        ((variant, config),) = recommendation.parse(options.split())[1].items()
        assert config[name] == value
        assert config[name] != recommendation.DEFAULTS['mgformer'][name]
        spelled = f'{options} --{name.replace("_", "-")} {value}'
        assert recommendation.parse(spelled.split())[1] == {variant: config}


def test_a_table_of_a_data_set_without_results_says_so(tmp_path, monkeypatch, capsys):
    """The name of another data set begins with this one: the program ended without a word."""
    words = ['x', '--table', '--dataset', 'amazon', '--output', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', words)
    recommendation.main()
    assert capsys.readouterr().out == 'there are no results of amazon\n'
