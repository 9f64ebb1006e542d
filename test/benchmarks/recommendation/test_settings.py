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
    ],
)
def test_bad_options_are_refused(options, message, capsys):
    with pytest.raises(SystemExit):
        recommendation.parse(options.split())
    assert message in capsys.readouterr().err
