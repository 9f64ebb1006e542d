import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location('faults', ROOT / 'docs' / 'faults.py')
faults = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(faults)


def test_each_fault_is_provoked_and_in_the_table():
    found = faults.outcomes(ROOT / 'test')
    assert {outcome.fault for outcome in found} == {*faults.FAULTS} == {*range(1, 41)}
    page = faults.page(ROOT / 'test')
    assert all(outcome.text in page and outcome.test in page for outcome in found)
