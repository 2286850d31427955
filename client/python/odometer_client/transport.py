"""Transport: one HTTP call over a connection that stays open for the next one."""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from .errors import InvalidReply, Unreachable
from .resolver import Resolver

#: For each address of a host.
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
    #: Whether the reply said where its body ends. If not, the body may be cut.
    is_whole: bool
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


class _Connection(http.client.HTTPConnection):
    """Connects quickly or not at all. The name is resolved at each connect."""

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None, resolver: Resolver, until: float
    ) -> None:
        super().__init__(host, port)
        self.default_port = http.client.HTTP_PORT if context is None else http.client.HTTPS_PORT
        self._context = context
        self._resolver = resolver
        self._until = until

    def connect(self) -> None:
        plain = self._dial()
        try:
            if self._context is not None:
                plain.settimeout(_left(self._until))
                plain = self._context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        self.sock = cast(socket.socket, _Link(plain, self._until))

    def _dial(self) -> socket.socket:
        failure = OSError(f"{self.host} has no address")
        for address in self._resolver.addresses(self.host, self.port, self._until):
            family, kind, protocol, _, place = address
            plain = socket.socket(family, kind, protocol)
            try:
                plain.settimeout(min(CONNECT_TIMEOUT_SECONDS, _left(self._until)))
                plain.connect(place)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return plain
            except OSError as error:
                plain.close()
                failure = error
            except BaseException:
                plain.close()
                raise
        raise failure


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time for the call is over")
    return left


def _body(response: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """Reads a body, or as much of it as makes it too long. Also says whether it surely is whole:
    `http.client` takes the end of the stream for the end of the headers, or of the body."""
    is_whole = response.chunked or response.length is not None
    body = response.read(MAX_REPLY_BYTES + 1)
    if response.length and len(body) <= MAX_REPLY_BYTES:
        raise http.client.IncompleteRead(body, response.length)
    return body, is_whole


_Idle = dict[str, "deque[tuple[float, _Connection]]"]


class Transport:
    """Makes calls, and keeps connections for the calls after them.

    Each step with the idle connections is one of a deque, so threads need no lock.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._resolver = Resolver()
        #: The connections that no call uses, by endpoint. `close_idle` puts others in their place.
        self._idle: _Idle = {}
        self._open: weakref.WeakSet[_Connection] = weakref.WeakSet()

    def close_idle(self) -> None:
        """Closes what no call uses. Calls in flight close theirs when they end."""
        before, self._idle = self._idle, {}
        for kept in tuple(before.values()):
            while kept:
                try:
                    kept.pop()[1].close()
                except IndexError:
                    break

    def let_go(self) -> None:
        """Closes the copies that a forked child has of its parent's sockets. The server must not
        notice, so only the descriptors are closed."""
        for connection in tuple(self._open):
            link = connection.sock
            try:
                if link is not None:
                    os.close(link.detach())
            except OSError:
                pass

    def call(
        self, endpoint: str, method: str, path: str, headers: Mapping[str, str], timeout: float
    ) -> Reply:
        """Makes one call, or raises `Unreachable`. It ends after `timeout` seconds at most."""
        until = time.monotonic() + timeout
        parts = urlsplit(endpoint)
        idle = self._idle
        connection = self._idle_connection(idle, endpoint, until) or self._new(parts, until)
        try:
            connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
            with closing(connection.getresponse()) as response:
                body, is_whole = _body(response)
                is_last = response.will_close or not response.isclosed()
            if len(body) > MAX_REPLY_BYTES:
                raise InvalidReply(f"{endpoint} answered with too many bytes", endpoint)
        except TimeoutError as error:
            connection.close()
            what = f"{endpoint} gave no reply within {timeout:.1f} s"
            raise Unreachable(what, endpoint, timed_out=True) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            what = f"{endpoint} gave no reply: {error or type(error).__name__}"
            raise Unreachable(what, endpoint, timed_out=False) from error
        except BaseException:
            connection.close()
            raise
        # They may have been closed while this call was in flight.
        if is_last or connection.sock is None or idle is not self._idle:
            connection.close()
        else:
            self._keep(idle, endpoint, connection)
        retry_after = response.getheader("Retry-After")
        return Reply(response.status, body, is_whole, retry_after, is_last)

    def _idle_connection(self, idle: _Idle, endpoint: str, until: float) -> _Connection | None:
        kept = idle.get(endpoint)
        while kept:
            try:
                since, connection = kept.pop()
            except IndexError:
                break
            link = cast(_Link, connection.sock)
            if time.monotonic() - since < MAX_IDLE_SECONDS and not link.is_readable():
                link.until = until
                return connection
            connection.close()
        return None

    def _new(self, parts: SplitResult, until: float) -> _Connection:
        is_secure = parts.scheme == "https"
        if is_secure and self._context is None:
            self._context = ssl.create_default_context()
        port = parts.port or (http.client.HTTPS_PORT if is_secure else http.client.HTTP_PORT)
        context = self._context if is_secure else None
        connection = _Connection(parts.hostname or "", port, context, self._resolver, until)
        self._open.add(connection)
        return connection

    def _keep(self, idle: _Idle, endpoint: str, connection: _Connection) -> None:
        now = time.monotonic()
        kept = idle.setdefault(endpoint, deque())
        kept.append((now, connection))
        while kept:
            try:
                is_new = now - kept[0][0] < MAX_IDLE_SECONDS
                if is_new and len(kept) <= MAX_IDLE_CONNECTIONS:
                    break
                kept.popleft()[1].close()
            except IndexError:
                break
