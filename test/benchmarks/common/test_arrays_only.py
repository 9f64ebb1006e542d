import io
import os
import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.utils import Bunch
from torch_geometric.data import Data

from benchmarks.common.arrays_only import arrays_only

ARRAYS = [
    np.arange(6, dtype=np.int64).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([], np.float32),
    np.array(3.5),
    np.array([True, False]),
    np.arange(3, dtype='>i4'),
    np.array(['a', 'bc']),
    np.array([{'train': np.arange(3)}, [1, 'x']], dtype=object),
]


class Planted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Forged:
    """Pickles as what a function returns, with a state of its own."""

    def __init__(self, function, arguments, state=None):
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.parts


def object_dtype_with_flags_of_numbers():
    return Forged(np.dtype, ('O', False, True), (3, '|', None, None, None, -1, -1, 0))


RECONSTRUCT = np.array([0]).__reduce__()[0]
FORGED = {
    'addresses in an array of objects': lambda: Forged(
        RECONSTRUCT,
        (np.ndarray, (0,), b'b'),
        (1, (1,), object_dtype_with_flags_of_numbers(), False, b'A' * 8),
    ),
    'addresses in the memory of an array': lambda: Forged(
        np.ndarray, ((1,), np.dtype('O'), b'A' * 8)
    ),
    'a structured dtype': lambda: Forged(np.dtype, ([('a', 'O')],)),
    'negative sizes': lambda: Forged(
        RECONSTRUCT, (np.ndarray, (0,), b'b'), (1, (-1, -1), np.dtype('i1'), False, b'A')
    ),
    'more content than elements': lambda: Forged(
        RECONSTRUCT, (np.ndarray, (0,), b'b'), (1, (1,), np.dtype('i1'), False, b'AA')
    ),
    'a memory map': lambda: Forged(np.memmap, ('/etc/hostname',)),
    'evaluated text': lambda: Forged(eval, ('1 + 1',)),
}


def unpickled(content, folder='here'):
    with arrays_only(folder):
        return pickle.loads(content)


@pytest.mark.parametrize('protocol', range(3, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize('array', ARRAYS, ids=lambda array: array.dtype.str)
def test_arrays_are_what_they_were(array, protocol):
    content = pickle.dumps({'a': [array, np.float64(2.5)]}, protocol)
    actual = unpickled(content)
    if array.dtype.kind == 'O':
        assert actual['a'][0][1] == [1, 'x']
        np.testing.assert_array_equal(actual['a'][0][0]['train'], np.arange(3))
    else:
        np.testing.assert_array_equal(actual['a'][0], array)
    assert actual['a'][0].dtype == pickle.loads(content)['a'][0].dtype
    assert actual['a'][1] == 2.5
    if array.dtype.kind in 'if' and array.dtype.isnative:
        assert torch.equal(torch.from_numpy(actual['a'][0]), torch.from_numpy(np.array(array)))


def test_collections_and_matrices_are_what_they_were():
    matrix = csr_matrix(np.array([[0, 2.0, 0], [1, 0, 3]]))
    objects = {
        'graph': defaultdict(list, {0: [1, 2]}),
        'news': Bunch(data=['text'], target=np.arange(1)),
        'x': matrix,
    }
    actual = unpickled(pickle.dumps(objects, 4))
    assert actual['graph'] == objects['graph']
    assert actual['graph'].default_factory is list
    assert actual['news'].data == ['text']
    np.testing.assert_array_equal(actual['x'].todense(), matrix.todense())


def test_arrays_of_python_2():
    """As the files of Planetoid have them."""
    content = b''.join(
        [
            b'\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02\x85',
            b'cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb',
            b'\x89U\x08\x01\x00\x00\x00\xff\x00\x00\x00tb.',
        ]
    )
    with arrays_only('here'):
        assert pickle.load(io.BytesIO(content), encoding='latin1').tolist() == [1, 255]


@pytest.mark.parametrize('name', FORGED)
@pytest.mark.parametrize('protocol', [3, 4])
def test_forged_arrays_are_refused(name, protocol):
    with pytest.raises((pickle.UnpicklingError, TypeError, ValueError)):
        unpickled(pickle.dumps([FORGED[name]()], protocol))


def test_an_array_is_filled_once():
    array = np.arange(3)
    function, arguments, state = array.__reduce__()
    parts = pickle.dumps(Forged(function, arguments, state), 3)
    twice = parts[:-1] + pickle.dumps(state, 3)[2:-1] + b'b.'
    with pytest.raises(pickle.UnpicklingError, match='must be filled once'):
        unpickled(twice)


@pytest.mark.parametrize(
    'change',
    [
        lambda matrix: matrix.indices.__setitem__(0, 1000),
        lambda matrix: matrix.indices.__setitem__(0, -1),
        lambda matrix: matrix.indptr.__setitem__(1, 1000),
        lambda matrix: setattr(matrix, 'data', np.array(['a', 'b', 'c'])),
    ],
)
def test_a_matrix_with_indices_out_of_range_is_refused(change):
    matrix = csr_matrix(np.array([[0, 2.0, 0], [1, 0, 3]]))
    matrix.check_format = list
    change(matrix)
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        unpickled(pickle.dumps(matrix, 4))


@pytest.mark.parametrize('protocol', range(pickle.HIGHEST_PROTOCOL + 1))
def test_planted_objects_do_not_run(tmp_path, protocol):
    planted, path = Planted(tmp_path / 'ran'), tmp_path / 'file'
    np.save(tmp_path / 'a.npy', np.array([planted], dtype=object), allow_pickle=True)
    torch.save(planted, path)
    for read in (
        lambda: pickle.loads(pickle.dumps(planted, protocol)),
        lambda: pickle.load(io.BytesIO(pickle.dumps(planted, protocol))),
        lambda: np.load(tmp_path / 'a.npy', allow_pickle=True),
        lambda: torch.load(path, weights_only=False),
        lambda: torch.load(path),
    ):
        message = r"a file in 'here' holds more than arrays, and was not run.*remove"
        with pytest.raises(pickle.UnpicklingError, match=message):  # noqa: SIM117
            with arrays_only('here'):
                read()
    assert not (tmp_path / 'ran').exists()


def test_torch_reads_forged_arrays_as_little(tmp_path):
    for name in ('addresses in an array of objects', 'addresses in the memory of an array'):
        torch.save(FORGED[name](), tmp_path / 'file')
        with arrays_only('here'), pytest.raises((pickle.UnpicklingError, TypeError, ValueError)):
            torch.load(tmp_path / 'file')


def test_all_is_as_before_afterwards(monkeypatch):
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    monkeypatch.delenv('TORCH_FORCE_WEIGHTS_ONLY_LOAD', raising=False)
    before = pickle.load, pickle.loads, dict(os.environ), torch.serialization.get_safe_globals()
    assert Data in before[3]  # which PyG's data sets are read with
    with arrays_only('here', (Data,)):
        assert os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'] == '1'
    after = pickle.load, pickle.loads, dict(os.environ), torch.serialization.get_safe_globals()
    assert after[:3] == before[:3]
    assert {str(one) for one in after[3]} == {str(one) for one in before[3]}
