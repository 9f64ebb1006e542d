import hashlib
import io
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from torch_geometric_lgt._io import open_regular, write_atomically
from torch_geometric_lgt.datasets._download import download

MAX_BYTES = 1 << 30  # of a file, which is in memory until it is checked


def _movielens(content: bytes) -> bytes:
    r"""Converts the zip archive of MovieLens-100K to csv with the columns ``user_id`` and
    ``item_id``, sorted by time."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        rows = [line.split('\t') for line in archive.read('ml-100k/u.data').decode().splitlines()]
    rows.sort(key=lambda row: int(row[3]))
    return '\n'.join(
        ['user_id,item_id', *(f'{user},{item}' for user, item, _, _ in rows), '']
    ).encode()


class Source(NamedTuple):
    r"""Describes a public file: its address, its checksum, and the function that converts its bytes
    to the bytes of a readable file.

    The checksum is ``sha256:`` with the SHA-256 of the bytes, or ``git:`` with the SHA-1 of the git
    blob.
    """

    url: str
    checksum: str
    convert: Callable[[bytes], bytes] = bytes


_GITHUB = 'https://raw.githubusercontent.com'
_LIGHTGCN = f'{_GITHUB}/gusye1234/LightGCN-PyTorch/947ca2b3b1d2d3545b114145710cb06c4e57b3d2/data'
_MIXGCF = f'{_GITHUB}/huangtinglin/MixGCF/e659f4a3c0b20a9fb1b45fcc62cf7984db9961ba/data/ali'
_S3REC = f'{_GITHUB}/RUCAIBox/CIKM2020-S3Rec/2a81540ae18615d88ef88227b0c066e5b74781e5/data'

SOURCES: dict[str, dict[str, Source]] = {
    'alibaba': {
        'train.txt': Source(f'{_MIXGCF}/train.txt', 'git:9e39745de98af0d1687bfe3a3f3f974d6d5bfeb3'),
        'valid.txt': Source(f'{_MIXGCF}/valid.txt', 'git:2c78585b474338cb2b68d99e6502f1909ce0eea5'),
        'test.txt': Source(f'{_MIXGCF}/test.txt', 'git:6f99a125476ae493249e6111cb200f6411b5a8f8'),
    },
    'amazon-beauty': {
        'raw.txt': Source(f'{_S3REC}/Beauty.txt', 'git:a29773026846d857ec8176cb25f37b23ecf20155')
    },
    'gowalla': {
        'train.txt': Source(
            f'{_LIGHTGCN}/gowalla/train.txt', 'git:a27782bd7a1d4d0744148dc0460ea94da74763f2'
        ),
        'test.txt': Source(
            f'{_LIGHTGCN}/gowalla/test.txt', 'git:9ed5af4b5d21511f33740b4e22e3852f45671800'
        ),
    },
    'movielens-100k': {
        'raw.csv': Source(
            'https://files.grouplens.org/datasets/movielens/ml-100k.zip',
            'sha256:50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229',
            _movielens,
        )
    },
    'yelp2018': {
        'train.txt': Source(
            f'{_LIGHTGCN}/yelp2018/train.txt', 'git:cda12361055ba448ae4bd1070f6000c16dea8f22'
        ),
        'test.txt': Source(
            f'{_LIGHTGCN}/yelp2018/test.txt', 'git:30dfbc3437b27b74cb2970b435a5ec93ad9f2468'
        ),
    },
}


def fetch(source: Source, path: Path) -> None:
    r"""Downloads a public file with a progress bar, checks its checksum, converts its bytes and
    writes them atomically to :obj:`path`. An existing file is left unchanged.

    If several processes call this function, one downloads and the others wait.

    Raises:
        RuntimeError: If the download fails, stalls or is cut off, or the checksum differs.
        ValueError: If :obj:`path` is a folder, a pipe, a device or a socket.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f'{path}.lock'):
        if path.exists():
            open_regular(path).close()
            return
        received = io.BytesIO()
        try:
            download(source.url, received, path.name, MAX_BYTES)
        except OSError as error:
            raise RuntimeError(
                f'{source.url} cannot be downloaded ({error}); fetch it elsewhere and '
                f'{_manual(source, path)}'
            ) from error
        content = received.getvalue()
        if not fits(source, content):
            raise RuntimeError(
                f'{source.url} has changed, or the download was cut off; fetch it again '
                f'and {_manual(source, path)}'
            )
        write_atomically(path, source.convert(content))


def fits(source: Source, content: bytes) -> bool:
    r"""Returns whether the bytes of a file have the checksum of its public source."""
    kind, expected = source.checksum.split(':')
    digest = (
        hashlib.sha1(f'blob {len(content)}\0'.encode() + content)
        if kind == 'git'
        else hashlib.new(kind, content)
    )
    return digest.hexdigest() == expected


def warn_of_others(name: str, paths: Iterable[Path]) -> None:
    r"""Warns of each file of data set :obj:`name` that is called like a file of its public source
    but differs from it in content."""
    for path in paths:
        source = SOURCES.get(name, {}).get(path.name)
        if source is not None and source.convert is bytes and not fits(source, path.read_bytes()):
            warnings.warn(
                f'{str(path)!r} is changed or damaged: it does not have the checksum of '
                f'{source.url}',
                stacklevel=2,
            )


def _manual(source: Source, path: Path) -> str:
    r"""Returns advice for a user who downloads the file by hand, as the end of an error message."""
    return (
        f'put it at {str(path)!r}'
        if source.convert is bytes
        else f'put its interactions at {str(path)!r} under the header user_id,item_id'
    )
