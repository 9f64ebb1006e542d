import os

import pytest


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch) -> None:
    """No test here is about a loss of power; those of what is written then are in test_io.py."""
    monkeypatch.setattr(os, 'fsync', lambda _: None)
