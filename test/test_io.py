import hashlib
import json
import os
import pickle
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from windows_files import has_pipes, replaces_mapped_files

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
        path.write_bytes(
            content[:position] + bytes([content[position] ^ 0x41]) + content[position + 1 :]
        )
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
    with pytest.raises(OSError, match='No space') as error:
        _io.write_atomically(path, b'new')
    assert str(error.value) == f'[Errno 28] No space left on device: {str(path)!r}'
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_full_disk_is_named_with_the_bytes_that_are_needed(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(os, 'posix_fallocate', full, raising=False)
    with pytest.raises(OSError, match='No space') as error:
        _io.allocate(tmp_path / 'array', 4000)
    reason = f'No space left on device; the file needs 4000 bytes: {str(tmp_path / "array")!r}'
    assert str(error.value) == f'[Errno 28] {reason}'
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('num_bytes', [0, 1, 70_000, 140_000])
def test_blocks_of_a_new_file_are_allocated(num_bytes, tmp_path, monkeypatch, constants):
    """Also on macOS, which lacks the function of POSIX and makes a file of holes instead."""
    monkeypatch.delattr(os, 'posix_fallocate', raising=False)
    constants(file_chunk=70_000)
    _io.allocate(tmp_path / 'array', num_bytes)
    assert (tmp_path / 'array').read_bytes() == bytes(num_bytes)
    if hasattr(os.stat_result, 'st_blocks'):
        assert 512 * (tmp_path / 'array').stat().st_blocks >= num_bytes


def test_missing_folder(tmp_path):
    path = tmp_path / 'none' / 'file'
    with pytest.raises(FileNotFoundError) as error:
        _io.write_atomically(path, b'x')
    assert error.value.filename == str(path)


def test_files_have_the_permissions_of_any_file(tmp_path):
    (tmp_path / 'plain').write_bytes(b'x')
    _io.write_atomically(tmp_path / 'ours', b'x')
    assert (tmp_path / 'ours').stat().st_mode == (tmp_path / 'plain').stat().st_mode


STRIDED = {
    'no rows of a column': torch.rand(5, 3)[:0, 1],
    'one row of a column': torch.rand(5, 3)[:1, 1],
    'no step of a range': torch.arange(10)[0:0:3],
    'steps of a range': torch.arange(10.0)[::3],
    'no edges': torch.empty(2, 0, dtype=torch.long),
    'no columns': torch.empty(3, 0).t(),
    'transposed': torch.rand(3, 4).t(),
    'a number': torch.tensor(3.0),
    'expanded': torch.ones(1, 1).expand(2, 3),
    'conjugated': torch.complex(torch.rand(3), torch.rand(3)).conj(),
    'negated': torch.complex(torch.rand(3), torch.rand(3)).conj().imag,
    'learned': torch.nn.Parameter(torch.rand(2, 2)),
    'truth values': torch.rand(7).gt(0.5)[::2],
}


@pytest.mark.parametrize('name', STRIDED)
def test_checksum_of_any_strides(name):
    tensor = STRIDED[name].detach()
    digest = hashlib.sha256(json.dumps(['x', str(tensor.dtype), [*tensor.shape]]).encode())
    digest.update(np.ascontiguousarray(tensor.resolve_conj().resolve_neg().numpy()).tobytes())
    assert _io.checksum({'x': STRIDED[name]}) == digest.hexdigest()


def test_tensors_without_elements_are_written_and_read(tmp_path):
    for name in ('no rows of a column', 'no edges', 'no columns'):
        _io.write_tensors(tmp_path / 'x', {'a': STRIDED[name], 'b': torch.ones(2)}, 'thing')
        assert torch.equal(_io.read_tensors(tmp_path / 'x', 'thing')['a'], STRIDED[name])


def test_a_missing_tensor_is_told(path):
    read = _io.read_tensors(path, 'thing')
    with pytest.raises(
        ValueError,
        match=(
            r"'path' must hold 'c' \(got \['a', 'b'\] in '.*state.safetensors'\); remove the file"
        ),
    ):
        read['c']


def pipe(place):
    os.mkfifo(place)


def listening(place):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))


def to_device(place):
    place.symlink_to('/dev/zero')


IRREGULAR = [
    *(pytest.param(make, marks=has_pipes) for make in (pipe, listening, to_device)),
    Path.mkdir,
]


@pytest.mark.parametrize('make', IRREGULAR, ids=lambda make: make.__name__)
def test_what_is_no_file_is_refused_without_waiting(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the addresses of sockets are short
    place = Path('x')
    make(place)
    before = place.lstat()
    for mode in ('rb', 'r+b'):
        with pytest.raises(ValueError, match=r"'path' must be a regular file .got 'x'"):
            _io.open_regular(place, mode)
    for run in (
        lambda: _io.read_tensors(place, 'thing'),
        lambda: _io.cached_tensors(place, 'thing', lambda: {'a': torch.ones(1)}),
        lambda: _io.map_array(place, '<f4', (2,), 'c'),
        lambda: _io.map_array(place, '<f4', (0,), 'r+'),
    ):
        with pytest.raises(ValueError, match=r"'path' must be a regular file .got 'x'"):
            run()
    assert place.lstat() == before


@pytest.mark.parametrize('flag', ['own', 'none'])
def test_links_are_read_and_not_written_through(path, flag, monkeypatch):
    if flag == 'none':  # as on Windows
        monkeypatch.setattr(_io, 'NO_LINK', 0)
    content, link = path.read_bytes(), path.with_name('link')
    link.symlink_to(path)
    assert _io.read_tensors(link, 'thing').keys() == {'a', 'b'}
    assert _io.map_array(link, 'u1', (4,), 'c').tolist() == [*content[:4]]
    with pytest.raises(ValueError, match=r"'path' must be a regular file .got '.*link'"):
        _io.map_array(link, 'u1', (4,), 'r+')
    for write in (
        lambda: _io.allocate(link, 8),
        lambda: _io.write_atomically(link, bytes(8)),
        lambda: _io.allocate(link, 0),
    ):
        link.unlink()
        link.symlink_to(path)
        write()
        assert not link.is_symlink()
    link.unlink()
    link.hardlink_to(path)
    _io.allocate(link, 8)
    assert link.read_bytes() == bytes(8)
    assert path.read_bytes() == content


def test_a_link_in_place_of_a_cache(path):
    link, content = path.with_name('link'), path.read_bytes()
    link.symlink_to(path)
    with pytest.warns(UserWarning, match='is built again'):
        _io.cached_tensors(link, 'other', lambda: {'a': torch.ones(1)})
    assert not link.is_symlink()
    assert path.read_bytes() == content


@has_pipes
def test_a_link_in_place_of_a_lock(path):
    content, lock = path.read_bytes(), path.with_name('cache.lock')
    lock.symlink_to(path)
    with pytest.raises(OSError, match=r'cache.lock'):
        _io.cached_tensors(path.with_name('cache'), 'thing', lambda: {'a': torch.ones(1)})
    assert path.read_bytes() == content


def test_tensors_that_were_read_do_not_change_with_the_file(path):
    read = _io.read_tensors(path, 'thing')
    with open(path, 'r+b') as file:
        size = os.fstat(file.fileno()).st_size
        file.write(b'\xff' * size)
    assert torch.equal(read['a'], torch.arange(12.0).view(3, 4))
    assert int(read['b']) == 7
    os.truncate(path, 0)
    assert torch.equal(read['a'], torch.arange(12.0).view(3, 4))


@pytest.mark.parametrize(
    'value', [torch.ones(3), torch.ones(1, 2), torch.ones(2, dtype=torch.double)]
)
def test_a_cache_of_other_shapes_is_built_again(tmp_path, value, windows_files):
    path, expected = tmp_path / 'cache', {'a': (torch.float32, (2,))}
    _io.write_tensors(path, {'a': value}, 'thing')
    with pytest.warns(
        UserWarning, match=r"is built again: 'path' must hold 'a' of \(torch.float32, \(2,\)\)"
    ):
        _io.cached_tensors(path, 'thing', lambda: {'a': torch.zeros(2)}, expected)
    tensors = _io.cached_tensors(path, 'thing', lambda: pytest.fail('not from the cache'), expected)
    assert torch.equal(tensors['a'], torch.zeros(2))


@pytest.mark.parametrize('mapped', [False, True])
def test_all_dtypes_in_pieces(tmp_path, mapped, constants):
    constants(file_chunk=2)
    tensors = {str(dtype): torch.arange(15).view(5, 3).to(dtype) for dtype in reversed(_io.DTYPES)}
    _io.write_tensors(tmp_path / 'x', tensors, 'thing')
    read = _io.read_tensors(tmp_path / 'x', 'thing', mapped)
    assert read.keys() == tensors.keys() == load_file(tmp_path / 'x').keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
        assert read[name].data_ptr() % tensor.element_size() == 0


def test_tensors_that_share_memory(tmp_path):
    x = torch.arange(6.0)
    tensors = {'whole': x, 'again': x, 'rows': x.view(2, 3)[1:], 'none': x[:0], 'nothing': x[6:]}
    _io.write_tensors(tmp_path / 'x', tensors, 'thing')
    torch.testing.assert_close(
        dict(_io.read_tensors(tmp_path / 'x', 'thing')), tensors, rtol=0, atol=0
    )


@replaces_mapped_files
def test_mapped_tensors_outlive_their_file(path):
    read = _io.read_tensors(path, 'thing', mapped=True)
    _io.write_tensors(path, {'a': torch.zeros(3, 4), 'b': torch.tensor(8)}, 'thing')
    assert torch.equal(read['a'], torch.arange(12.0).view(3, 4))
    path.unlink()
    assert int(read['b']) == 7
