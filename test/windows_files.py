"""Refuses what Windows refuses: to remove, rename or replace a file that is open or mapped."""

import os
import pathlib
import sys
from pathlib import Path

import pytest

replaces_mapped_files = pytest.mark.skipif(
    sys.platform == 'win32', reason='Windows replaces and removes no mapped files'
)
has_pipes = pytest.mark.skipif(
    sys.platform == 'win32', reason='Windows has no pipes, sockets and devices in folders'
)


def open_or_mapped():
    """The paths of the files that this process has open or maps."""
    paths = set()
    for link in Path('/proc/self/fd').iterdir():
        try:
            paths.add(os.readlink(link))
        except FileNotFoundError:  # the folder that is listed here
            continue
    lines = Path('/proc/self/maps').read_text(encoding='utf-8').splitlines()
    return paths | {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}


def require_unused(*paths):
    """Raises the error of Windows if a file, or a file in a folder, is in use."""
    for used in open_or_mapped():
        for path in map(os.path.abspath, paths):
            if used == path or used.startswith(f'{path}{os.sep}'):
                raise PermissionError(13, 'The process cannot access the file', used)


def refuse_used_files(monkeypatch):
    """Makes this process refuse what Windows refuses."""
    replace, unlink = os.replace, os.unlink

    def checked_replace(source, target):
        require_unused(source, target)
        replace(source, target)

    def checked_unlink(path, *, dir_fd=None):
        folder = os.getcwd() if dir_fd is None else os.readlink(f'/proc/self/fd/{dir_fd}')
        require_unused(os.path.join(folder, path))
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, 'replace', checked_replace)
    monkeypatch.setattr(os, 'rename', checked_replace)
    monkeypatch.setattr(os, 'unlink', checked_unlink)
    if hasattr(pathlib, '_NormalAccessor'):  # Python 3.10 has its own names for the functions
        for name in ('replace', 'rename', 'unlink'):
            checked = staticmethod(getattr(os, name))
            monkeypatch.setattr(pathlib._NormalAccessor, name, checked)
