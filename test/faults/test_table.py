import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location('faults', ROOT / 'docs' / 'faults.py')
faults = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(faults)


def test_each_fault_is_provoked_and_in_the_table():
    actual = faults.outcomes(ROOT / 'test')
    assert {outcome.fault for outcome in actual} == {*faults.FAULTS}
    assert len(faults.FAULTS) == 40
    page = faults.page(ROOT / 'test')
    assert all(outcome.text in page and outcome.test in page for outcome in actual)
    places = [page.index(f'* - ``{name}``') for name in faults.FAULTS]
    assert places == sorted(places)


def test_a_fault_without_a_description_is_named(tmp_path):
    (tmp_path / 'test_new.py').write_text(
        "@pytest.mark.fault('new-fault', 'Ends in an error.')\ndef test_new(): ...\n"
    )
    with pytest.raises(ValueError, match='does not describe new-fault'):
        faults.outcomes(tmp_path)
