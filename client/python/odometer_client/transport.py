"""Transport: one HTTP call over a connection that stays open for the next one."""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from .errors import InvalidReply, Unreachable

CONNECT_TIMEOUT_SECONDS = 1.0
#: The server closes connections that were idle for 75 s.
MAX_IDLE_SECONDS = 60.0
MAX_IDLE_CONNECTIONS = 32
MAX_REPLY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Reply:
    """What a replica answered."""

    status: int
    body: bytes
    retry_after: str | None
    #: The server will answer no further call on this connection.
    is_last: bool


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a time, however slowly the bytes come."""

    def __init__(self, link: _Link, raw: socket.SocketIO) -> None:
        self._link = link
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._link.limit()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Link:
    """A socket whose reads and writes together end in time. `http.client` uses these methods."""

    def __init__(self, plain: socket.socket, until: float) -> None:
        self._socket = plain
        self.until = until

    def limit(self) -> None:
        self._socket.settimeout(_left(self.until))

    def sendall(self, data: Any) -> None:
        self.limit()
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_TimedReader(self, self._socket.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._socket.close()

    def detach(self) -> int:
        return self._socket.detach()

    def is_readable(self) -> bool:
        """Says whether bytes or the end of the stream wait here, though nothing was asked."""
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([self._socket], [], [], 0)[0])


class _Dial(http.client.HTTPConnection):
    """Connects quickly or not at all. The name is resolved at each connect."""

    until = 0.0

    def connect(self) -> None:
        self.timeout = min(CONNECT_TIMEOUT_SECONDS, _left(self.until))
        super().connect()
        self.sock.settimeout(_left(self.until))


class _Plain(_Dial):
    def connect(self) -> None:
        super().connect()
        self.sock = cast(socket.socket, _Link(self.sock, self.until))


class _Tls(http.client.HTTPSConnection, _Dial):
    def connect(self) -> None:
        super().connect()
        self.sock = cast(socket.socket, _Link(self.sock, self.until))


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time for the call is over")
    return left


def _whole_body(response: http.client.HTTPResponse) -> bytes:
    """Reads a body, or as much of it as makes it too long. `http.client` takes the end of the
    stream for the end of the headers, and of a body that is read with a limit."""
    if not response.chunked and response.length is None:
        raise http.client.IncompleteRead(b"")
    body = response.read(MAX_REPLY_BYTES + 1)
    if response.length and len(body) <= MAX_REPLY_BYTES:
        raise http.client.IncompleteRead(body, response.length)
    return body


class Transport:
    """Makes calls, and keeps connections for the calls after them."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.renew()

    def renew(self) -> None:
        """Starts without connections. Calls in flight keep theirs until they end."""
        self._lock = threading.Lock()
        self._idle: dict[str, list[tuple[float, _Dial]]] = {}
        self._open: set[_Dial] = set()

    def close_idle(self) -> None:
        """Closes what no call uses. Calls in flight close theirs when they end."""
        with self._lock:
            idle = [it for each in self._idle.values() for _, it in each]
            self._idle.clear()
            self._open.clear()
        for connection in idle:
            connection.close()

    def renew_in_child(self) -> None:
        """Lets go of the parent's sockets. The server must not notice, and locks of threads
        that are not there any more must not be waited for, so only the numbers are closed."""
        for connection in list(self._open):
            link = connection.sock
            try:
                if link is not None:
                    os.close(link.detach())
            except OSError:
                pass
        self.renew()

    def call(
        self, endpoint: str, method: str, path: str, headers: Mapping[str, str], timeout: float
    ) -> Reply:
        """Makes one call, or raises `Unreachable`. It ends after `timeout` seconds at most."""
        until = time.monotonic() + timeout
        parts = urlsplit(endpoint)
        connection = self._connection(endpoint, parts, until)
        try:
            connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
            response = connection.getresponse()
            body = _whole_body(response)
            if len(body) > MAX_REPLY_BYTES:
                raise InvalidReply(f"{endpoint} answered with too many bytes", endpoint)
        except TimeoutError as error:
            self._discard(connection)
            what = f"{endpoint} gave no reply within {timeout:.1f} s"
            raise Unreachable(what, endpoint, timed_out=True) from error
        except (OSError, http.client.HTTPException) as error:
            self._discard(connection)
            what = f"{endpoint} gave no reply: {error or type(error).__name__}"
            raise Unreachable(what, endpoint, timed_out=False) from error
        except BaseException:
            self._discard(connection)
            raise
        self._keep(endpoint, connection, response)
        retry_after = response.getheader("Retry-After")
        return Reply(response.status, body, retry_after, response.will_close)

    def _connection(self, endpoint: str, parts: SplitResult, until: float) -> _Dial:
        while True:
            with self._lock:
                idle = self._idle.get(endpoint)
                since, connection = idle.pop() if idle else (0.0, None)
            if connection is None:
                break
            link = cast(_Link, connection.sock)
            if time.monotonic() - since < MAX_IDLE_SECONDS and not link.is_readable():
                link.until = until
                return connection
            self._discard(connection)
        connection = self._new(parts)
        connection.until = until
        with self._lock:
            self._open.add(connection)
        return connection

    def _new(self, parts: SplitResult) -> _Dial:
        host = parts.hostname or ""
        if parts.scheme == "https":
            if self._context is None:
                self._context = ssl.create_default_context()
            return _Tls(host, parts.port, context=self._context)
        return _Plain(host, parts.port)

    def _keep(
        self, endpoint: str, connection: _Dial, response: http.client.HTTPResponse
    ) -> None:
        if response.will_close or not response.isclosed() or connection.sock is None:
            self._discard(connection)
            return
        now = time.monotonic()
        with self._lock:
            if connection not in self._open:
                stale = [connection]
            else:
                idle = self._idle.setdefault(endpoint, [])
                idle.append((now, connection))
                n_stale = max(0, len(idle) - MAX_IDLE_CONNECTIONS)
                while n_stale < len(idle) and now - idle[n_stale][0] >= MAX_IDLE_SECONDS:
                    n_stale += 1
                stale = [it for _, it in idle[:n_stale]]
                del idle[:n_stale]
        for old in stale:
            self._discard(old)

    def _discard(self, connection: _Dial) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()
