import gzip
import hashlib
import io
import tracemalloc
import zipfile
from collections import UserList
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from torch_geometric_lgt.datasets import InteractionDataset, SBMDataset, TSPDataset, _sources
from torch_geometric_lgt.datasets._split import assign_splits

PARTS = ('train', 'valid', 'test')


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace('_', '.')).write_text(content)
    return folder.parent


def pairs(dataset):
    """The pairs of each part by their own ids."""
    store = dataset[0]['user', 'rates', 'item']
    labels = (store[f'{part}_edge_label_index'] for part in PARTS)
    return [
        sorted(
            zip(
                dataset.user_ids[user.numpy()].tolist(),
                dataset.item_ids[item.numpy()].tolist(),
                strict=True,
            )
        )
        for user, item in labels
    ]


def test_given_split_of_text_files(tmp_path):
    root = write(
        tmp_path / 'mine',
        train_txt='7 20 10\n3 10\n\n9\n',
        valid_txt='7 30\n',
        test_txt='3 30\n11 10\n',
    )
    dataset = InteractionDataset(root, 'mine')
    data = dataset[0]
    assert repr(dataset) == "InteractionDataset('mine')"
    assert len(dataset) == 1
    assert dataset.split == 'given'
    assert InteractionDataset(root, 'mine', split='ratio').split == 'ratio'
    assert dataset.user_ids.tolist() == [3, 7, 11]
    assert dataset.item_ids.tolist() == [10, 20, 30]
    assert (data['user'].num_nodes, data['item'].num_nodes) == (3, 3)
    assert pairs(dataset) == [[(3, 10), (7, 10), (7, 20)], [(7, 30)], [(3, 30), (11, 10)]]
    assert torch.equal(
        data['user', 'rates', 'item'].edge_index, torch.tensor([[1, 1, 0], [1, 0, 0]])
    )
    data.validate(raise_on_error=True)
    data['user', 'rates', 'item'].edge_index[1] += 3  # ids of nodes
    assert pairs(dataset)[0] == [(3, 10), (7, 10), (7, 20)]


@pytest.mark.parametrize('suffix', ['txt', 'txt.gz', 'csv', 'csv.gz', 'parquet'])
def test_formats_give_the_same_data(tmp_path, suffix):
    rows = [('b', 'x1'), ('a', 'x1'), ('b', 'x2'), ('b', 'x3'), ('b', 'x2')]
    path = tmp_path / 'mine' / 'raw' / f'raw.{suffix}'
    path.parent.mkdir(parents=True)
    if suffix == 'parquet':
        columns = {
            'time': [1] * 5,
            'item_id': [item for _, item in rows],
            'user_id': [user for user, _ in rows],
        }
        parquet.write_table(pa.table(columns), path)
    else:
        lines = (
            [f'{user} {item}' for user, item in rows]
            if 'txt' in suffix
            else ['x,user_id,item_id', *(f'0,{u},{i}' for u, i in rows)]
        )
        content = ('\n'.join(lines) + '\n').encode()
        path.write_bytes(gzip.compress(content) if suffix.endswith('gz') else content)
    dataset = InteractionDataset(tmp_path, 'mine', split='leave-one-out')
    assert dataset.user_ids.tolist() == ['a', 'b']
    assert pairs(dataset) == [[('a', 'x1'), ('b', 'x1')], [('b', 'x2')], [('b', 'x3')]]


def test_line_breaks_within_ids_are_kept(tmp_path):
    """A compressed file lost the carriage return."""
    content = b'user_id,item_id\r\n"a\r\nb",1\r\nc,1\r\n'
    for name, data in {'raw.csv': content, 'raw.csv.gz': gzip.compress(content)}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(data)
        assert InteractionDataset(tmp_path, name).user_ids.tolist() == ['a\r\nb', 'c']


def test_the_longest_id_does_not_set_the_memory_of_each_row(tmp_path):
    rows = [f'{row % 50},{row % 7}' for row in range(2000)]
    root = write(
        tmp_path / 'mine', raw_csv='\n'.join(['user_id,item_id', f'0,{"x" * 20000}', *rows])
    )
    tracemalloc.start()
    dataset = InteractionDataset(root, 'mine')
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert dataset.item_ids.tolist() == ['0', '1', '2', '3', '4', '5', '6', 'x' * 20000]
    assert peak < 2000 * 20000


@pytest.mark.parametrize('other', ['raw.csv', 'raw.txt.gz', 'raw/raw.txt'])
def test_a_part_is_one_file(tmp_path, other):
    """The first file was read, and the other was not."""
    root = write(tmp_path / 'mine', raw_txt='0 1\n')
    (root / 'mine' / other).parent.mkdir(exist_ok=True)
    (root / 'mine' / other).write_bytes(b'')
    with pytest.raises(
        ValueError, match=rf"'raw' must be one file \(got '.*raw.txt' and '.*{other}"
    ):
        InteractionDataset(root, 'mine')


TIMES = {
    'integers': ['30', '9', '100', '9'],
    'large integers': [str(2**53 + 1), str(2**53), str(2**53 + 2), str(2**53)],
    'floats': ['3e1', '9.5', '100', '9.5'],
    'dates': ['2024-01-30', '2023-12-31', '2024-02-01', '2023-12-31'],
    'date and time': ['2024-01-01 10:00:01', '2024-01-01T10', '2024-02-01', '2024-01-01 10:00'],
    'time zones': [
        '2024-01-01T10:00Z',
        '2024-01-01T11:00+02:00',
        '2024-01-01T10:01',
        '2024-01-01T09:00',
    ],
}


@pytest.mark.parametrize('times', TIMES.values(), ids=TIMES)
@pytest.mark.parametrize('suffix', ['csv', 'csv.gz', 'parquet'])
def test_rows_are_sorted_by_a_column_of_times(tmp_path, suffix, times):
    """Of two rows at the same time, the later one in the file comes later."""
    rows = [('b', item, time) for item, time in zip('cabd', times, strict=True)]
    path = tmp_path / 'mine' / f'raw.{suffix}'
    path.parent.mkdir()
    names = ('item_id', 'time', 'user_id')
    if suffix == 'parquet':
        users, items, texts = map(list, zip(*rows, strict=True))
        parquet.write_table(pa.table(dict(zip(names, (items, texts, users), strict=True))), path)
    else:
        lines = [','.join(names), *(f'{item},{time},{user}' for user, item, time in rows)]
        content = '\n'.join(lines).encode()
        path.write_bytes(gzip.compress(content) if suffix.endswith('gz') else content)
    arguments = {'root': tmp_path, 'name': 'mine', 'split': 'leave-one-out'}
    columns = UserList(['user_id', 'item_id', 'time'])  # any sequence, as of OmegaConf
    by_time = InteractionDataset(**arguments, columns=columns)
    assert pairs(by_time) == [[('b', 'a'), ('b', 'd')], [('b', 'c')], [('b', 'b')]]
    assert pairs(InteractionDataset(**arguments))[2] == [('b', 'd')]


@pytest.mark.parametrize(
    'kind', [pa.int64(), pa.float32(), pa.timestamp('ns'), pa.timestamp('s', 'UTC'), pa.date32()]
)
def test_times_of_parquet_files_have_any_type(tmp_path, kind):
    (tmp_path / 'mine').mkdir()
    table = {
        'user_id': ['b'] * 4,
        'item_id': list('cabd'),
        'time': pa.array([30, 9, 100, 9], pa.int32() if kind == pa.date32() else None).cast(kind),
    }
    parquet.write_table(pa.table(table), tmp_path / 'mine' / 'raw.parquet')
    arguments = {'split': 'leave-one-out', 'columns': ('user_id', 'item_id', 'time')}
    dataset = InteractionDataset(tmp_path, 'mine', **arguments)
    assert pairs(dataset) == [[('b', 'a'), ('b', 'd')], [('b', 'c')], [('b', 'b')]]
    table['time'] = pa.array([None, 1, 2, 3], pa.int64())
    parquet.write_table(pa.table(table), tmp_path / 'mine' / 'raw.parquet')
    with pytest.raises(ValueError, match=r"all numbers or all dates .* \(got 'None' in row 1\)"):
        InteractionDataset(tmp_path, 'mine', **arguments)


def test_ids_that_look_like_numbers_stay_apart(tmp_path):
    root = write(tmp_path / 'mine', raw_txt='07 1\n7 1\n')
    assert InteractionDataset(root, 'mine').user_ids.tolist() == ['07', '7']


def test_ratio_split_counts_and_seed():
    sizes = np.array([1, 2, 3, 5, 10, 19, 20, 47])
    user = np.repeat(np.arange(sizes.size), sizes)
    user = np.random.default_rng(0).permutation(user)
    part = assign_splits(user, (0.8, 0.1, 0.1), 3)
    counts = [[int((part[user == u] == p).sum()) for p in range(3)] for u in range(sizes.size)]
    assert counts == [
        [1, 0, 0],
        [1, 0, 1],
        [1, 1, 1],
        [3, 1, 1],
        [8, 1, 1],
        [17, 1, 1],
        [16, 2, 2],
        [39, 4, 4],
    ]
    assert np.array_equal(part, assign_splits(user, (0.8, 0.1, 0.1), 3))
    assert not np.array_equal(part, assign_splits(user, (0.8, 0.1, 0.1), 4))
    assert set(assign_splits(user, (1.0, 0.0, 0.0), 3)) == {0}


def test_shares_that_are_whole_numbers_are_not_rounded_down():
    """The product 0.29 * 100 is 28.999999999999996."""
    for total, ratio in ((100, 0.29), (180, 0.35), (50, 0.58)):
        part = assign_splits(np.zeros(total, np.int64), (1 - ratio, 0.0, ratio), 0)
        assert int((part == 2).sum()) == round(ratio * total)


def test_leave_one_out_takes_the_last():
    user = np.array([2, 0, 2, 1, 2, 1, 2])
    assert assign_splits(user, None, 0).tolist() == [0, 0, 0, 0, 1, 2, 2]


def test_valid_part_is_held_out_of_train(tmp_path):
    lines = '\n'.join(f'{user} ' + ' '.join(map(str, range(10))) for user in range(4))
    root = write(tmp_path / 'mine', train_txt=f'{lines}\n4 0 1', test_txt='0 10\n1 11\n')
    train, valid, test = pairs(InteractionDataset(root, 'mine'))
    assert (len(train), len(valid), len(test)) == (37, 5, 2)
    assert not set(train) & set(valid)
    assert [user for user, _ in valid] == [0, 1, 2, 3, 4]
    assert pairs(InteractionDataset(root, 'mine', seed=2022))[1] == valid
    assert pairs(InteractionDataset(root, 'mine', seed=0))[1] != valid


def test_transforms(tmp_path):
    calls = []
    root = write(tmp_path / 'mine', raw_txt='0 0 1 2\n')

    def note(name, data):
        calls.append(name)
        return data

    dataset = InteractionDataset(
        root, 'mine', transform=partial(note, 'each'), pre_transform=partial(note, 'once')
    )
    assert calls == ['once']
    _ = dataset[0], dataset[0]
    assert calls == ['once', 'each', 'each']


def test_download(tmp_path, file_server, monkeypatch):
    folder, url = file_server
    content = b'1 5 6\n2 5\n'
    (folder / 'train.txt').write_bytes(content)
    checksum = 'git:' + hashlib.sha1(f'blob {len(content)}\0'.encode() + content).hexdigest()
    source = _sources.Source(f'{url}/train.txt', checksum)
    monkeypatch.setitem(
        _sources.SOURCES,
        'gowalla',
        {'train.txt': source, 'test.txt': source._replace(url=f'{url}/test.txt')},
    )
    with pytest.raises(
        RuntimeError, match=r'cannot be downloaded \(HTTP Error 404.*put it at .*test.txt'
    ):
        InteractionDataset(tmp_path, 'gowalla')
    (folder / 'test.txt').write_bytes(content[:-3])
    with pytest.raises(
        RuntimeError, match=r'has changed, or the download was cut off.*put it at .*test.txt'
    ):
        InteractionDataset(tmp_path, 'gowalla')
    assert {path.name for path in (tmp_path / 'gowalla' / 'raw').iterdir()} - {
        'train.txt.lock',
        'test.txt.lock',
    } == {'train.txt'}
    (tmp_path / 'gowalla' / 'raw' / 'test.txt').write_text('1 7\n')
    (folder / 'train.txt').unlink()
    with pytest.warns(UserWarning, match='it does not have the checksum of http://.*/test.txt'):
        assert pairs(InteractionDataset(tmp_path, 'gowalla'))[2] == [(1, 7)]


def test_download_of_an_archive(tmp_path, file_server, monkeypatch):
    folder, url = file_server
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as archive:
        archive.writestr('ml-100k/u.data', '5\t9\t3\t30\n5\t8\t1\t10\n4\t8\t5\t20\n5\t7\t5\t40\n')
    (folder / 'ml-100k.zip').write_bytes(buffer.getvalue())
    source = _sources.SOURCES['movielens-100k']['raw.csv']
    source = source._replace(
        url=f'{url}/ml-100k.zip', checksum='sha256:' + hashlib.sha256(buffer.getvalue()).hexdigest()
    )
    monkeypatch.setitem(_sources.SOURCES, 'movielens-100k', {'raw.csv': source})
    assert pairs(InteractionDataset(tmp_path, 'movielens-100k', split='leave-one-out')) == [
        [(4, 8), (5, 8)],
        [(5, 9)],
        [(5, 7)],
    ]


@pytest.mark.parametrize(
    ('files', 'arguments', 'error', 'message'),
    [
        ({}, {}, FileNotFoundError, 'put train and test, or raw'),
        ({'raw_txt': '0 0\n'}, {'split': 'random'}, ValueError, "'split' must be one of"),
        ({'raw_txt': '0 0\n'}, {'split': 'given'}, ValueError, 'needs files for train and test'),
        (
            {'train_txt': '0 0\n', 'test_txt': '0 1\n'},
            {'split': 'leave-one-out'},
            ValueError,
            'needs the order of time',
        ),
        (
            {'train_txt': '0 0 1\n', 'test_txt': '0 1\n'},
            {},
            ValueError,
            'must not share pairs .got 1 pairs',
        ),
        (
            {'raw_txt': '1 1\n2 2\n'},
            {'relabel': False},
            ValueError,
            r"user ids must be the numbers from 0 to 1 \(got 1 to 2\); set 'relabel'",
        ),
        (
            {'raw_txt': '0 0\n'},
            {'ratios': (0.5, 0.1, 0.1)},
            ValueError,
            "'ratios' must be three shares",
        ),
        ({'raw_csv': 'user,item\n1,2\n'}, {}, ValueError, "'columns' must name columns"),
        (
            {'raw_csv': 'user_id,item_id\n1,2\n'},
            {'columns': ('user_id', 'user_id')},
            ValueError,
            "'columns' must name two columns.* each once",
        ),
        (
            {'raw_csv': 'user_id,item_id\n1,2\n'},
            {'columns': None},
            ValueError,
            r"'columns' must name two columns.* \(got None\)",
        ),
        (
            {'raw_csv': 'user_id,item_id\n1,2\n\n1,\n'},
            {},
            ValueError,
            r"raw.csv' must have two ids in each row \(got an empty id in line 4\)",
        ),
        (
            {'raw_csv': 'user_id,item_id,n\nann,tea,1\ndan, Jr.,tea,3\n'},
            {},
            ValueError,
            r"raw.csv' must have 3 fields in each row, as in its header \(got 4 in line 3\)",
        ),
        (
            {'raw_csv': 'user_id,item_id,n\nann,tea\n'},
            {},
            ValueError,
            r'3 fields in each row, as in its header \(got 2 in line 2\)',
        ),
        (
            {'raw_csv': 'user_id,item_id\n1,2\nuser_id,item_id\n3,4\n'},
            {},
            ValueError,
            r"raw.csv' must have one header \(got another in line 3\); remove it",
        ),
        (
            {'raw_csv': 'user_id,item_id\n1,2\n1,"3\n4,5\n6,7\n'},
            {},
            ValueError,
            r"raw.csv' must be csv \(got a row from line 3 on with the error: unexpected end",
        ),
        (
            {'raw_csv': 'user_id,item_id\nann,tea\n"ann ",rice\n'},
            {},
            ValueError,
            r"user ids must differ by more than white space .* \(got 'ann' and 'ann '\)",
        ),
        (
            {'train_csv': 'user_id,item_id\n1, b\n', 'test_csv': 'user_id,item_id\n1,b \n'},
            {},
            ValueError,
            r"item ids must differ by more than white space .* \(got ' b' and 'b '\)",
        ),
        (
            {'raw_txt': '0 0\n'},
            {'columns': ('user_id', 'item_id', 'time')},
            ValueError,
            "'columns' must be two names for '.*raw.txt', which has no times",
        ),
        *(
            (
                {'raw_csv': 'user_id,item_id\n1,2\n'},
                {'columns': columns},
                ValueError,
                "'columns' must name two columns, users and items, or three, then times",
            )
            for columns in (('user_id',), ('user_id', 'item_id', 'a', 'b'), 'ui')
        ),
        *(
            (
                {'raw_csv': 'user_id,item_id,time\n' + ''.join(f'1,2,{time}\n' for time in times)},
                {'columns': ('user_id', 'item_id', 'time')},
                ValueError,
                rf'times that are all numbers or all dates .* \(got {wrong!r} in line {line}\)',
            )
            for times, wrong, line in (
                (('1', '2', ''), '', 4),
                (('1.5', 'nan'), 'nan', 3),
                (('3', '2024-01-01'), '2024-01-01', 3),
                (('2024-01-01', '3'), '3', 3),
                (('noon', '3'), 'noon', 2),
            )
        ),
    ],
)
def test_raises(tmp_path, files, arguments, error, message):
    with pytest.raises(error, match=message):
        InteractionDataset(write(tmp_path / 'mine', **files), 'mine', **arguments)


@pytest.mark.parametrize('name', ['raw.txt.gz', 'raw.parquet', 'raw.csv'])
def test_damaged_files(tmp_path, name):
    path = tmp_path / 'mine' / name
    path.parent.mkdir()
    path.write_bytes(
        gzip.compress(b'0 1 2 3\n' * 100)[:-12]
        if name.endswith('gz')
        else b'\xff\xfe\x00user_id,item_id\n'
    )
    with pytest.raises(ValueError, match=rf"'.*{name}' is damaged"):
        InteractionDataset(tmp_path, 'mine')


@pytest.mark.parametrize('name', ['train.txt', 'train.csv', 'train.txt.gz'])
def test_byte_order_marks_are_no_part_of_an_id(tmp_path, name):
    text = '\ufeffuser_id,item_id\n0,1\n1,2\n' if 'csv' in name else '\ufeff0 1\n1 2\n'
    content = text.encode()
    folder = tmp_path / 'mine'
    folder.mkdir()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith('gz') else content)
    (folder / 'test.txt').write_bytes('\ufeff0 2\n'.encode())
    dataset = InteractionDataset(tmp_path, 'mine')
    assert dataset.user_ids.tolist() == [0, 1]
    assert dataset.item_ids.tolist() == [1, 2]


def test_ratios_and_interactions_are_asked_for(tmp_path):
    root = write(tmp_path / 'mine', raw_txt='\n')
    with pytest.raises(
        ValueError, match=r"'root' must hold interactions \(got none in '.*raw.txt'\)"
    ):
        InteractionDataset(root, 'mine')
    for ratios in ((0.5, 0.1, 0.1), (0.9, 0.1)):
        with pytest.raises(ValueError, match="'ratios' must be three shares"):
            InteractionDataset(root, 'mine', ratios=ratios)


@pytest.mark.parametrize('value', [float('nan'), float('inf'), None])
def test_ids_that_are_no_numbers_are_refused(tmp_path, value):
    (tmp_path / 'mine').mkdir()
    parquet.write_table(
        pa.table({'user_id': [1.0, value, 2.0], 'item_id': [1, 2, 3]}),
        tmp_path / 'mine' / 'raw.parquet',
    )
    with pytest.raises(
        ValueError,
        match=r"mine/raw.parquet' must have two ids in each row \(got .* NaN .* in row 2\)",
    ):
        InteractionDataset(tmp_path, 'mine')


def test_ids_that_differ_by_a_nul_stay_apart(tmp_path):
    """Also where another file holds whole numbers only."""
    folder, ids = tmp_path / 'mine', ['a', 'a\0', '7\0', '7', 'a\0b']
    folder.mkdir()
    parquet.write_table(
        pa.table({'user_id': ids, 'item_id': [1, 2, 3, 4, 5]}), folder / 'train.parquet'
    )
    parquet.write_table(
        pa.table({'user_id': [7, 8], 'item_id': ['1', '1\0']}), folder / 'test.parquet'
    )
    dataset = InteractionDataset(tmp_path, 'mine', ratios=(1, 0, 0))
    assert dataset.user_ids.tolist() == sorted([*ids, '8'])
    train, _, test = pairs(dataset)
    assert train == sorted(zip(ids, '12345', strict=True))
    assert test == [('7', '1'), ('8', '1\0')]


@pytest.mark.parametrize(
    'ratios',
    [
        (float('nan'), 0.1, 0.1),
        (0.8, float('nan'), 0.1),
        (0.8, 0.1, float('nan')),
        (float('inf'), 0, 0),
        None,
        0.5,
        'abc',
        ('a', 'b', 'c'),
        (0.8, 0.1, None),
        {0.8, 0.1},
    ],
)
def test_shares_that_are_no_numbers_are_refused(tmp_path, ratios):
    with pytest.raises(ValueError, match="'ratios' must be three shares"):
        InteractionDataset(write(tmp_path / 'mine', raw_txt='0 0 1 2\n'), 'mine', ratios=ratios)


@pytest.mark.parametrize('seed', [1.0, 0.5, True, -1, '3', None, float('nan')])
def test_seeds_that_are_no_whole_numbers_are_refused(tmp_path, seed):
    root = write(tmp_path / 'mine', raw_txt='0 0 1 2\n')
    makers = (
        lambda: InteractionDataset(root, 'mine', seed=seed),
        lambda: SBMDataset(tmp_path, 'CLUSTER', num_graphs=1, seed=seed),
        lambda: TSPDataset(tmp_path, num_graphs=1, seed=seed),
    )
    for make in makers:
        with pytest.raises(ValueError, match="'seed' must be a whole number from 0"):
            make()
    same = [InteractionDataset(root, 'mine', seed=kind(3)) for kind in (int, np.int64)]
    assert pairs(same[0]) == pairs(same[1])


def write_tables(folder, **columns):
    folder.mkdir()
    for name, (users, items) in columns.items():
        parquet.write_table(
            pa.table({'user_id': users, 'item_id': items}), folder / f'{name}.parquet'
        )
    return folder.parent


@pytest.mark.parametrize('kind', [pa.float64(), pa.float32(), pa.float16(), pa.decimal128(5, 1)])
def test_whole_floats_are_the_ids_that_integers_are(tmp_path, kind):
    scalars = (
        [0, 1, 2, 3]
        if kind == pa.decimal128(5, 1)
        else np.array([-0.0, 1, 2, 3], kind.to_pandas_dtype())
    )
    floats = pa.array(scalars, kind)
    root = write_tables(
        tmp_path / 'mine',
        train=([0, 1, 2, 3], [0, 1, 2, 3]),
        test=(floats, pa.array([3, 3, 3, 4], pa.int64())),
    )
    dataset = InteractionDataset(root, 'mine', ratios=(1, 0, 0))
    assert dataset.user_ids.dtype == np.int64
    assert dataset.user_ids.tolist() == [0, 1, 2, 3]
    assert pairs(dataset)[2] == [(0, 3), (1, 3), (2, 3), (3, 4)]


def test_whole_numbers_of_text_files_may_have_a_point(tmp_path):
    """As pandas writes a column with a gap."""
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'train.csv').write_text('user_id,item_id\n1,10\n2,9\n')
    (tmp_path / 'mine' / 'test.csv').write_text('user_id,item_id\n1.0,9.0\n2.0,10.0\n')
    dataset = InteractionDataset(tmp_path, 'mine', ratios=(1, 0, 0))
    assert dataset.user_ids.tolist() == [1, 2]
    assert dataset.item_ids.tolist() == [9, 10]
    assert pairs(dataset)[2] == [(1, 9), (2, 10)]


def test_texts_that_begin_as_numbers_stay_texts(tmp_path):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'raw.csv').write_text('user_id,item_id\n1.10,1.0\n2.0,01.0\n')
    dataset = InteractionDataset(tmp_path, 'mine', ratios=(1, 0, 0))
    assert dataset.user_ids.tolist() == ['1.10', '2.0']
    assert dataset.item_ids.tolist() == ['01.0', '1.0']


@pytest.mark.parametrize('value', [0.5, 2.0**53, -1e300])
def test_floats_that_are_no_exact_ids_are_refused(tmp_path, value):
    root = write_tables(tmp_path / 'mine', raw=([1.0, value], [1, 2]))
    with pytest.raises(ValueError, match=r"mine/raw.parquet' must have exact whole numbers as ids"):
        InteractionDataset(root, 'mine')


def test_bytes_are_the_text_they_encode(tmp_path):
    root = write_tables(
        tmp_path / 'mine', train=(['a', 'é'], [1, 2]), test=([b'a', 'é'.encode()], [3, 4])
    )
    assert InteractionDataset(root, 'mine').user_ids.tolist() == ['a', 'é']
    for value, message in ((b'\xff', 'must have ids of UTF-8 text'), (b'', 'an empty id')):
        parquet.write_table(
            pa.table({'user_id': [b'a', value], 'item_id': [1, 2]}),
            tmp_path / 'mine' / 'test.parquet',
        )
        with pytest.raises(ValueError, match=message):
            InteractionDataset(root, 'mine')


@pytest.mark.parametrize(
    'files', [{'raw_txt': 'nan inf\n-1 1.0\n'}, {'raw_csv': 'user_id,item_id\nnan,inf\n-1,1.0\n'}]
)
def test_text_ids_are_any_words(tmp_path, files):
    dataset = InteractionDataset(write(tmp_path / 'mine', **files), 'mine')
    assert (dataset.user_ids.tolist(), dataset.item_ids.tolist()) == (['-1', 'nan'], ['1.0', 'inf'])


@pytest.mark.parametrize(
    ('content', 'line'),
    [
        ('user item\n1 10\n1 2\n2 10\n', 'user item'),
        ('userId itemId rating\n1 10 5\n2 5 3\n', 'userId itemId rating'),
        ('user_id:token\titem_id:token\n1\t2\n', 'user_id:token item_id:token'),
        ('# user item\n1 10\n2 10\n', '# user item'),  # as numpy.savetxt writes it
    ],
)
def test_headers_of_text_files_are_refused(tmp_path, content, line):
    """The header was a user and items, and all ids became texts."""
    message = rf"raw.txt' must have no header \(got the line '{line}'\); remove it where"
    with pytest.raises(ValueError, match=message):
        InteractionDataset(write(tmp_path / 'mine', raw_txt=content), 'mine')


@pytest.mark.parametrize(
    'content',
    [
        *('idris 1 2\nmary 1\n', 'ida 1 2\n3 x\n', 'id 1\n', 'Smith, 1 2\n'),
        *('david 1\n7 1\n8 2\n', 'guid0 1 2\n5 3 4\n', 'user 1 2\n5 3\n'),
    ],
)
def test_words_in_the_first_line_may_be_ids(tmp_path, content):
    first, *_ = content.split()
    dataset = InteractionDataset(write(tmp_path / 'mine', raw_txt=content), 'mine')
    assert first in dataset.user_ids.tolist()


@pytest.mark.parametrize('mark', [',', ';'])
def test_marks_between_ids_of_text_files_are_refused(tmp_path, mark):
    """Users were '1,' and '2,', and items of both forms."""
    root = write(tmp_path / 'mine', raw_txt=f'1{mark} 10\n2{mark} 10{mark} 3\n')
    with pytest.raises(ValueError, match=rf"must have white space between ids \(got '1{mark}'\)"):
        InteractionDataset(root, 'mine')


def test_tables_in_text_files_are_refused(tmp_path):
    """Ratings and times, as in the file u.data of MovieLens, were items."""
    rows = '196\t242\t3\t881250949\n186\t302\t3\t891717742\n\n196\t377\t1\t878887116\n'
    root = write(tmp_path / 'mine', raw_txt=rows)
    with pytest.raises(ValueError, match=r"raw.txt' must have all items .* \(got 4 words in each"):
        InteractionDataset(root, 'mine')


@pytest.mark.parametrize(
    ('content', 'num_pairs'),
    [('1 5\n2 5\n1 6\n', 3), ('1 5 6\n2 5 6\n', 4), ('1 5 6\n2 7 8\n1 9\n', 5)],
)
def test_lines_of_pairs_or_of_users_are_no_table(tmp_path, content, num_pairs):
    dataset = InteractionDataset(write(tmp_path / 'mine', raw_txt=content), 'mine')
    assert sum(map(len, pairs(dataset))) == num_pairs


@pytest.mark.parametrize('name', ['val.csv', 'valid.tsv', 'Validation.txt', 'raw/dev.csv'])
@pytest.mark.parametrize('split', [None, 'ratio'])
def test_validation_files_of_other_names_are_refused(tmp_path, name, split):
    """They were not read, and other pairs were drawn for validation."""
    root = write(tmp_path / 'mine', train_txt='0 1 2 3\n', test_txt='0 5\n')
    (root / 'mine' / 'raw').mkdir()
    (root / 'mine' / name).write_text('user_id,item_id\n0,4\n')
    message = rf"'root' must have its validation file as 'valid' and .*{name}', which is not"
    with pytest.raises(ValueError, match=message):
        InteractionDataset(root, 'mine', split=split)
    (root / 'mine' / 'valid.txt').write_text('0 4\n')
    assert len(InteractionDataset(root, 'mine', split=split)) == 1


@pytest.mark.parametrize('name', ['values.txt', 'devices.csv', 'valid.txt.lock', 'val_neg.txt'])
def test_other_files_beside_the_parts_are_left_alone(tmp_path, name):
    root = write(tmp_path / 'mine', train_txt='0 1 2 3\n', test_txt='0 5\n')
    (root / 'mine' / name).write_text('')
    assert InteractionDataset(root, 'mine').user_ids.tolist() == [0]


@pytest.mark.parametrize('suffix', ['csv', 'parquet'])
def test_a_column_that_occurs_twice_is_refused(tmp_path, suffix):
    root = write(tmp_path / 'mine', raw_csv='user_id,item_id,user_id\n1,2,3\n')
    if suffix == 'parquet':
        (tmp_path / 'mine' / 'raw.csv').unlink()
        table = pa.Table.from_arrays(
            [pa.array([1]), pa.array([2]), pa.array([3])], ['user_id', 'item_id', 'user_id']
        )
        parquet.write_table(table, tmp_path / 'mine' / 'raw.parquet')
    with pytest.raises(
        ValueError,
        match=rf"'columns' must name columns that '.*raw.{suffix}' has once .got 'user_id'",
    ):
        InteractionDataset(root, 'mine')


@pytest.mark.parametrize('name', [None, 3, True])
def test_names_of_other_types_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="'name' must be the name of a data set"):
        InteractionDataset(tmp_path, name)


def test_files_with_other_names_are_listed(tmp_path):
    root = write(tmp_path / 'mine', interactions_csv='user_id,item_id\n1,2\n')
    with pytest.raises(FileNotFoundError, match=r"the folder '.*mine' \(got 'interactions.csv'\)$"):
        InteractionDataset(root, 'mine')
    message = r'\(got a file; make a folder and call the file raw.csv\)$'
    with pytest.raises(FileNotFoundError, match=message):
        InteractionDataset(root / 'mine', 'interactions.csv')
    with pytest.raises(FileNotFoundError, match=r"or .parquet into .*did you mean 'gowalla'\?$"):
        InteractionDataset(root, 'gowala')


def test_a_list_of_items_in_each_row_is_refused(tmp_path):
    """Each list was one item, named by its text."""
    (tmp_path / 'mine').mkdir()
    table = pa.table({'user_id': [1, 2], 'item_id': [[1, 2], [3]]})
    parquet.write_table(table, tmp_path / 'mine' / 'raw.parquet')
    message = r"with one value in each row \(got 'item_id' of type list<.*\); write a row for each"
    with pytest.raises(ValueError, match=message):
        InteractionDataset(tmp_path, 'mine')
