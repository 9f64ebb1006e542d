import sys

from benchmarks.common.results import command


def test_command_names_folders_without_the_way_there(monkeypatch):
    monkeypatch.setattr(sys, 'argv', [sys.argv[0], '--root', '/home/someone/data sets', '--seeds', '0', 'a/b'])
    assert command().endswith(" --root 'data sets' --seeds 0 a/b")
