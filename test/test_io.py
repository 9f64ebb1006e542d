import os
import pickle

import pytest
import torch
from safetensors.torch import save_file

from torch_geometric_lgt import _io


class Payload:
    def __reduce__(self):
        return os.mkdir, ('planted',)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / 'state.safetensors'
    _io.write_tensors(path, {'a': torch.arange(12.0).view(3, 4), 'b': torch.tensor(7)}, 'thing')
    return path


def test_round_trip_leaves_no_other_file(path):
    read = _io.read_tensors(path, 'thing')
    assert torch.equal(read['a'], torch.arange(12.0).view(3, 4))
    assert int(read['b']) == 7
    assert os.listdir(path.parent) == [path.name]


def test_each_damaged_byte_or_cut_is_refused(path):
    content = path.read_bytes()
    for position in range(0, len(content), 3):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x41]) + content[position + 1 :])
        with pytest.raises(ValueError, match='write it again'):
            _io.read_tensors(path, 'thing')
    for length in (0, 4, 20, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match='write it again'):
            _io.read_tensors(path, 'thing')


def test_other_kind_and_foreign_file_are_refused(path):
    with pytest.raises(ValueError, match="must hold 'other'"):
        _io.read_tensors(path, 'other')
    save_file({'a': torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="must hold 'thing'"):
        _io.read_tensors(path, 'thing')


def test_pickle_is_refused_and_does_not_run(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    path.write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match='intact safetensors'):
        _io.read_tensors(path, 'thing')
    torch.save(Payload(), path)
    with pytest.raises(ValueError, match='intact safetensors'):
        _io.read_tensors(path, 'thing')
    assert os.listdir(path.parent) == [path.name]


def test_failed_write_keeps_the_old_file(path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, 'No space left on device')

    before = path.read_bytes()
    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(OSError, match='No space'):
        _io.write_atomically(path, b'new')
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        _io.write_atomically(tmp_path / 'none' / 'file', b'x')


def test_files_have_the_permissions_of_any_file(tmp_path):
    (tmp_path / 'plain').write_bytes(b'x')
    _io.write_atomically(tmp_path / 'ours', b'x')
    assert (tmp_path / 'ours').stat().st_mode == (tmp_path / 'plain').stat().st_mode
