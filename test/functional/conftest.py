import pytest


@pytest.fixture(autouse=True)
def by_operators(constants):
    """Operators compute small graphs, as they compute large ones, unless a test changes it."""
    constants(plain=False)
