import io
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, BinaryIO
from urllib import request

from tqdm import tqdm

STALLED_SECONDS, LEAST_BYTES_A_SECOND = 60.0, 1024
CHUNK_BYTES, MAX_BYTES, MAX_REASON = 1 << 16, 1 << 40, 500


def download(url: str, file: BinaryIO, name: str, max_bytes: int = MAX_BYTES) -> None:
    r"""Downloads an address and writes its bytes to :obj:`file`, with a progress bar called
    :obj:`name`. Redirections are followed to http and https only.

    Raises:
        OSError: If the transfer fails, is cut off or is longer than :obj:`max_bytes`. If the server
            sends nothing for :obj:`STALLED_SECONDS`, or fewer than :obj:`LEAST_BYTES_A_SECOND`
            bytes a second in that time.
    """
    handler = _Handler()
    try:
        reply = _opener(handler).open(
            request.Request(url, headers={'User-Agent': 'torch-geometric-lgt'}),
            timeout=STALLED_SECONDS,
        )
        _copy(reply, file, name, max_bytes)
    except (OSError, HTTPException, ValueError) as error:
        reason = str(error) if isinstance(error, OSError) else f'{type(error).__name__}: {error}'
        printable = ''.join(
            letter if letter.isprintable() else ' ' for letter in reason[:MAX_REASON]
        )
        raise ConnectionError(' '.join(printable.split())) from error
    finally:
        for opened in handler.replies:
            opened.close()


def _copy(reply: Any, file: BinaryIO, name: str, max_bytes: int) -> None:
    r"""Copies the body of an HTTP reply to :obj:`file`, with a progress bar called :obj:`name`.

    Raises:
        ConnectionError: If the body is longer than :obj:`max_bytes`, or its length differs from the
            announced one.
    """
    size = reply.length
    received = 0
    if size is not None and size > max_bytes:
        raise ConnectionError(f'the server promises more than {max_bytes} bytes')
    with tqdm(desc=name, total=size, unit='B', unit_scale=True) as bar:
        while piece := reply.read1(CHUNK_BYTES):
            received += len(piece)
            if received > max_bytes:
                raise ConnectionError(f'the server sends more than {max_bytes} bytes')
            file.write(piece)
            bar.update(len(piece))
    if size is not None and received != size:
        raise ConnectionError(f'cut off after {received} of {size} bytes')


class _Paced(io.RawIOBase):
    r"""Reads bytes from a raw stream that must deliver :obj:`LEAST_BYTES_A_SECOND`. Only the time
    spent in reading counts; the rate is checked whenever that time reaches :obj:`STALLED_SECONDS`.

    Raises:
        TimeoutError: If a read finds the rate too low.
    """

    def __init__(self, raw: Any) -> None:
        super().__init__()
        self.raw = raw
        self.waited = 0.0
        self.received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        start = time.monotonic()
        count = self.raw.readinto(buffer)
        self.waited, self.received = self.waited + time.monotonic() - start, self.received + count
        if self.waited >= STALLED_SECONDS:
            if self.received < LEAST_BYTES_A_SECOND * self.waited:
                raise TimeoutError(
                    f'{self.received} bytes in {self.waited:.0f} seconds, less than '
                    f'{LEAST_BYTES_A_SECOND} a second'
                )
            self.waited, self.received = 0.0, 0
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class _Reply(HTTPResponse):
    r"""Reads an HTTP reply through :class:`_Paced`, which raises a TimeoutError if data arrives too
    slowly."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fp = io.BufferedReader(_Paced(self.fp.detach()))


class _Http(HTTPConnection):
    r"""Opens http connections whose replies are of class :class:`_Reply`."""

    response_class = _Reply


class _Https(HTTPSConnection):
    r"""Opens https connections whose replies are of class :class:`_Reply`."""

    response_class = _Reply


class _Handler(request.HTTPSHandler, request.HTTPHandler):
    r"""Opens http and https connections for urllib, and collects all replies in :obj:`replies`.

    The caller closes the replies: urllib does not close the replies of redirections that it
    refuses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[Any] = []

    def http_open(self, req: request.Request) -> Any:
        return self._reply(_Http, req)

    def https_open(self, req: request.Request) -> Any:
        return self._reply(_Https, req)

    def _reply(self, connection: Any, req: request.Request) -> Any:
        self.replies.append(self.do_open(connection, req))
        return self.replies[-1]


def _opener(connections: _Handler) -> request.OpenerDirector:
    r"""Builds a urllib opener that uses :obj:`connections` and the proxies of the environment.
    Unlike urllib's default opener, it opens neither files nor ftp addresses."""
    opener, proxies = request.OpenerDirector(), request.getproxies()
    for handler in (
        request.ProxyHandler(
            {scheme: proxies[scheme] for scheme in ('http', 'https') if scheme in proxies}
        ),
        request.UnknownHandler(),
        connections,
        request.HTTPDefaultErrorHandler(),
        request.HTTPRedirectHandler(),
        request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
