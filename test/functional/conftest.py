import pytest
from constants import BY_OPERATORS


@pytest.fixture(autouse=True)
def by_operators(constants):
    """Operators compute small graphs, as they compute large ones, unless a test changes it."""
    constants(plain_elements=BY_OPERATORS)
