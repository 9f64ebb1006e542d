"""Servers that lie, drip or lead elsewhere."""

import contextlib
import hashlib
import io
import itertools
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

from torch_geometric_lgt.datasets import InteractionDataset, _download, _sources

BODY = b'0 1 2\n1 2 3\n'
OK = b'HTTP/1.1 200 OK\r\n'


@contextlib.contextmanager
def serving(*pieces, pause=0.0, context=None):
    """The address of a server that answers each request with these pieces, perhaps encrypted, and
    closes the connection."""
    done = threading.Event()

    def answer(connection):
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(connection, server_side=True)
            if context
            else connection as connection,
        ):
            connection.recv(4096)
            for piece in pieces:
                connection.sendall(piece)
                if pause and done.wait(pause):
                    return

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(('127.0.0.1', 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f'{"https" if context else "http"}://127.0.0.1:{listening.getsockname()[1]}/train.txt'
        done.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def git(content):
    return 'git:' + hashlib.sha1(f'blob {len(content)}\0'.encode() + content).hexdigest()


def refused(address, tmp_path, monkeypatch, checksum=None):
    """Nothing is left of what is not as it should be, and the error says what to do."""
    source = _sources.Source(address, checksum or git(BODY))
    monkeypatch.setitem(_sources.SOURCES, 'gowalla', {'train.txt': source})
    message = r'(cannot be downloaded|has changed).*put it at .*gowalla/raw/train.txt'
    with pytest.raises(RuntimeError, match=message) as error:
        InteractionDataset(tmp_path, 'gowalla')
    assert [path.name for path in (tmp_path / 'gowalla').rglob('*') if not path.is_dir()] == [
        'train.txt.lock'
    ]
    assert str(error.value).isprintable()
    return str(error.value)


HEADERS = {
    'too short': (OK, b'Content-Length: 3\r\n\r\n', BODY),
    'too long': (OK, b'Content-Length: 900\r\n\r\n', BODY),
    'far too long': (OK, b'Content-Length: 99999999999999999999999999\r\n\r\n', BODY),
    'beyond floating point': (OK, b'Content-Length: ' + b'9' * 400 + b'\r\n\r\n', BODY),
    'a broken chunk': (OK, b'Transfer-Encoding: chunked\r\n\r\n', b'zz\r\n', BODY),
    'a negative chunk': (OK, b'Transfer-Encoding: chunked\r\n\r\n', b'-5\r\n', BODY),
    'a huge chunk': (OK, b'Transfer-Encoding: chunked\r\n\r\n', b'ffffffffffffffffffff\r\n', BODY),
    'no last chunk': (OK, b'Transfer-Encoding: chunked\r\n\r\n', b'c\r\n' + BODY + b'\r\n'),
    'a long line': (OK, b'X: ' + b'a' * 70_000 + b'\r\n\r\n', BODY),
    'many lines': (OK, b'X: a\r\n' * 200 + b'\r\n', BODY),
    'no status': (b'HTTP/1.1 abc OK\r\n\r\n', BODY),
    'another status': (b'HTTP/1.1 500 No\r\n\r\n', BODY),
    'letters that move the cursor': (b'HTTP/1.1 500 No\x1b[2Jway\r\n\r\n', BODY),
    'nothing': (),
    'a redirection to nowhere': (
        b'HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n',
    ),
    'a redirection to no name': (
        b'HTTP/1.1 302 Found\r\nLocation: http://a\xff..b/\r\nContent-Length: 0\r\n\r\n',
    ),
    'a redirection to itself': (
        b'HTTP/1.1 302 Found\r\nLocation: /train.txt\r\nContent-Length: 0\r\n\r\n',
    ),
}


@pytest.mark.fault(
    'no-network',
    'Headers that lie, redirections in circles and broken chunks end in the same error.',
)
@pytest.mark.parametrize('name', HEADERS)
def test_hostile_headers(name, tmp_path, monkeypatch):
    with serving(*HEADERS[name]) as address:
        refused(address, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    'length',
    [
        b'',
        b'Content-Length: -1\r\n',
        b'Content-Length: abc\r\n',
        b'Content-Length: ' + b'9' * 5000 + b'\r\n',
        b'Content-Length: 12\r\n',
    ],
)
def test_a_right_body_is_taken_whatever_its_length_is_called(length):
    with serving(OK, length, b'\r\n', BODY) as address:
        received = io.BytesIO()
        _download.download(address, received, 'train.txt')
        assert received.getvalue() == BODY


@pytest.mark.fault('no-network', 'Only http and https are followed, after a redirection, too.')
@pytest.mark.parametrize(
    'scheme', ['file://', 'ftp://127.0.0.1:9', 'data:,', 'gopher://127.0.0.1:9']
)
def test_other_schemes_are_not_followed(scheme, tmp_path, monkeypatch):
    secret = tmp_path / 'secret.txt'
    secret.write_bytes(BODY)
    monkeypatch.setenv('ftp_proxy', 'http://127.0.0.1:9')
    error = refused(f'{scheme}{secret}', tmp_path, monkeypatch)
    assert 'unknown url type' in error
    with serving(
        f'HTTP/1.1 302 Found\r\nLocation: {scheme}{secret}\r\nContent-Length: 0\r\n\r\n'.encode()
    ) as address:
        error = refused(address, tmp_path, monkeypatch)
    assert 'is not allowed' in error or 'unknown url type' in error


def test_a_redirection_to_http_is_followed():
    received = io.BytesIO()
    with serving(OK, b'\r\n', BODY) as target:
        redirection = (
            f'HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n'.encode()
        )
        with serving(redirection) as address:
            _download.download(address, received, 'train.txt')
    assert received.getvalue() == BODY


DRIPS = {
    'status': lambda: (OK[i : i + 1] for i in itertools.count()),
    'a header': lambda: itertools.chain([OK, b'X: '], itertools.repeat(b'a')),
    'headers': lambda: itertools.chain([OK], itertools.repeat(b'X: a\r\n')),
    'body': lambda: itertools.chain([OK, b'\r\n'], itertools.repeat(b'0')),
    'body of a known length': lambda: itertools.chain(
        [OK, b'Content-Length: 100000\r\n\r\n'], itertools.repeat(b'0')
    ),
    'chunks': lambda: itertools.chain(
        [OK, b'Transfer-Encoding: chunked\r\n\r\n'], itertools.repeat(b'1\r\n0\r\n')
    ),
    'the size of a chunk': lambda: itertools.chain(
        [OK, b'Transfer-Encoding: chunked\r\n\r\n'], itertools.repeat(b'0')
    ),
    'what is left of a redirection': lambda: itertools.chain(
        [b'HTTP/1.1 302 Found\r\nLocation: /train.txt\r\nContent-Length: 100000\r\n\r\n'],
        itertools.repeat(b'0'),
    ),
}


@pytest.mark.fault('no-network', 'A server that sends a byte now and then is cut off.')
@pytest.mark.parametrize('name', DRIPS)
def test_dripping_servers(name, tmp_path, monkeypatch, constants):
    constants(stalled_seconds=0.5)
    with serving(*itertools.islice(DRIPS[name](), 400), pause=0.05) as address:  # 20 seconds
        assert 'less than 1024 a second' in refused(address, tmp_path, monkeypatch)


@pytest.mark.skipif(shutil.which('openssl') is None, reason='openssl makes the certificate')
def test_encrypted_connections(tmp_path, monkeypatch, constants):
    """Are held against the same rate, and against a certificate."""
    key, certificate = tmp_path / 'key.pem', tmp_path / 'certificate.pem'
    options = [
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-subj',
        '/CN=127.0.0.1',
    ]
    options += [
        '-addext',
        'subjectAltName=IP:127.0.0.1',
        '-keyout',
        str(key),
        '-out',
        str(certificate),
    ]
    subprocess.run(['openssl', 'req', '-x509', *options], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(OK, b'\r\n', BODY, context=context) as address:
        assert 'CERTIFICATE_VERIFY_FAILED' in refused(address, tmp_path, monkeypatch)
        monkeypatch.setenv('SSL_CERT_FILE', str(certificate))
        received = io.BytesIO()
        _download.download(address, received, 'train.txt')
        assert received.getvalue() == BODY
    constants(stalled_seconds=0.5)
    with serving(*itertools.islice(DRIPS['body'](), 400), pause=0.05, context=context) as address:
        assert 'less than 1024 a second' in refused(address, tmp_path, monkeypatch)


def test_a_slow_server_that_keeps_the_least_rate_is_waited_for(constants):
    constants(stalled_seconds=0.3)
    pieces = [b'a' * 512] * 20
    with serving(OK, b'\r\n', *pieces, pause=0.06) as address:  # four windows
        received = io.BytesIO()
        _download.download(address, received, 'train.txt')
    assert received.getvalue() == b''.join(pieces)


def test_time_between_reads_does_not_count(constants):
    """A disk that is slow is no slow server."""
    constants(stalled_seconds=0.2)

    class Slow(io.BytesIO):
        def write(self, piece):
            time.sleep(0.3)
            return super().write(piece)

    received, body = Slow(), os.urandom(3 * _download.CHUNK_BYTES)
    with serving(OK, b'\r\n', body) as address:
        _download.download(address, received, 'train.txt')
    assert received.getvalue() == body


def test_a_server_that_never_ends_is_cut_off(tmp_path, monkeypatch, constants):
    constants(download_bytes=1 << 20)
    with serving(OK, b'\r\n', *[bytes(1 << 16)] * 64) as address:
        assert 'the server sends more than 1048576 bytes' in refused(address, tmp_path, monkeypatch)
    with serving(OK, b'Content-Length: 1048577\r\n\r\n', b'') as address:
        assert 'the server promises more than 1048576 bytes' in refused(
            address, tmp_path, monkeypatch
        )


@pytest.mark.fault('no-network', 'No download is written through a link.')
def test_links_in_place_of_a_download(tmp_path, monkeypatch):
    victim, folder = tmp_path / 'victim', tmp_path / 'gowalla' / 'raw'
    victim.write_bytes(b'not to be changed')
    folder.mkdir(parents=True)
    for name in ('.train.txt.part', '.test.txt.part'):
        (folder / name).symlink_to(victim)
    (folder / 'test.txt').symlink_to(tmp_path / 'none')
    with serving(OK, b'\r\n', BODY) as address:
        source = _sources.Source(address, git(BODY))
        for name in ('train.txt', 'test.txt'):
            _sources.fetch(source, folder / name)
            assert (folder / name).read_bytes() == BODY
            assert not (folder / name).is_symlink()
    assert victim.read_bytes() == b'not to be changed'
    assert not (tmp_path / 'none').exists()
    assert {path.name for path in folder.iterdir()} == {
        *(
            'train.txt',
            'test.txt',
            'train.txt.lock',
            'test.txt.lock',
            '.train.txt.part',
            '.test.txt.part',
        )
    }


@pytest.mark.parametrize('make', [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_place_of_a_download(make, tmp_path):
    folder = tmp_path / 'gowalla' / 'raw'
    folder.mkdir(parents=True)
    make(folder / 'train.txt')
    with pytest.raises(ValueError, match=r"'path' must be a regular file .got '.*train.txt"):
        InteractionDataset(tmp_path, 'gowalla')


def test_a_proxy_is_asked(monkeypatch):
    """For http and https only; its answers are held against the same rate."""
    with serving(OK, b'\r\n', BODY) as address:
        monkeypatch.setenv('http_proxy', address)
        monkeypatch.setenv('no_proxy', '')
        received = io.BytesIO()
        _download.download('http://example.invalid/train.txt', received, 'train.txt')
        assert received.getvalue() == BODY
    monkeypatch.setenv('https_proxy', 'http://127.0.0.1:9')
    with pytest.raises(OSError, match='refused'):
        _download.download('https://example.invalid/train.txt', io.BytesIO(), 'train.txt')
