"""Service: one call to the replica that has its turn, and what the reply means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from .endpoints import Endpoints, Turn
from .errors import CallFailed, InvalidReply, Refused, Unreachable
from .transport import MAX_IDLE_CONNECTIONS, Reply, Transport

#: Raised with the workspace.
VERSION = "0.1.0"
#: With these a replica says that it cannot serve now.
_UNFIT = frozenset({502, 503, 504})
#: No number of a reply has more digits.
_MAX_DIGITS = 19

Body = Mapping[str, Any]
_T = TypeVar("_T")


class Token:
    """The bearer token: given, or read from a file at each call, because files are rotated."""

    def __init__(self, token: str | None = None, file: str | Path | None = None) -> None:
        self._file = None if file is None else Path(file)
        self._last: str | None = None
        if self._file is not None:
            self._last = _token_in(self._file.read_bytes())
            if self._last is None:
                raise ValueError(f"{self._file} has no token that can be sent")
        elif token:
            self._last = _token_in(token.encode("utf-8", "surrogatepass"))
            if self._last is None:
                raise ValueError("the token has characters that cannot be sent")

    def read(self) -> str | None:
        """Returns the token. While the file has none, as in a replacement, the last one counts."""
        if self._file is not None:
            try:
                self._last = _token_in(self._file.read_bytes()) or self._last
            except OSError:
                pass
        return self._last


def _token_in(text: bytes) -> str | None:
    """Returns the token in a text, without the space around it. A header has one line."""
    token = text.strip()
    is_right = bool(token) and all(0x21 <= byte <= 0x7E for byte in token)
    return token.decode("ascii") if is_right else None


@dataclass(frozen=True)
class Answer(Generic[_T]):
    """What was read from a reply of success."""

    value: _T
    endpoint: str


class Service:
    """Makes calls at the endpoints, and learns from each how the endpoint does."""

    def __init__(self, endpoints: Endpoints, transport: Transport, token: Token) -> None:
        self.endpoints = endpoints
        self._transport = transport
        self._token = token
        #: How often `forget` was called. The reply to a call from before it may have reached
        #: another copy of this process, too.
        self.n_forgets = 0
        #: Makes the calls of coroutines, which must not wait themselves.
        self.threads = ThreadPoolExecutor(MAX_IDLE_CONNECTIONS, "odometer-call")

    def let_go(self) -> None:
        """Closes the connections of a parent, in a forked child."""
        self._transport.let_go()

    def forget(self) -> None:
        """Closes the connections that no call uses. Replies to calls in flight are dropped."""
        self.close_idle()
        # Last, so that a call that still got one of those connections counts as in flight.
        self.n_forgets += 1

    def close_idle(self) -> None:
        """Closes the connections that no call uses."""
        self._transport.close_idle()

    def ask(
        self,
        method: str,
        path: str,
        read: Callable[[Body], _T],
        timeout: float,
        traceparent: str | None = None,
        *,
        is_hurried: bool = False,
    ) -> Answer[_T]:
        """Makes one call at one endpoint, and reads its reply. Raises `CallFailed`: it retries
        nothing.

        If one hurried call gets no reply in time, that says nothing about the endpoint.
        """
        turn = self.endpoints.choose()
        reply: Reply | None = None
        try:
            headers = self._headers(traceparent)
            reply = self._transport.call(turn.url, method, path, headers, timeout)
            answer = Answer(_value(reply, turn.url, read), turn.url)
            self.endpoints.succeeded(turn)
            return answer
        except CallFailed as error:
            self._judge(turn, error, is_hurried)
            raise
        except BaseException:
            self.endpoints.abandoned(turn)
            raise
        finally:
            if reply is not None and reply.is_last:
                self.endpoints.moved_on(turn)

    def _judge(self, turn: Turn, error: CallFailed, is_hurried: bool) -> None:
        if isinstance(error, Unreachable):
            if error.timed_out and is_hurried:
                self.endpoints.hurried(turn)
            else:
                self.endpoints.failed(turn)
        elif isinstance(error, Refused) and error.status in _UNFIT:
            self.endpoints.failed(turn)
        else:
            self.endpoints.succeeded(turn)
            # Another replica may have numbers in memory. A limit holds for this replica.
            is_full = isinstance(error, Refused) and error.status == 429 and error.limit is None
            is_foreign = not isinstance(error, Refused) or error.is_foreign
            if is_full or is_foreign:
                self.endpoints.moved_on(turn)

    def _headers(self, traceparent: str | None) -> Mapping[str, str]:
        headers = {
            "Accept": "application/json",
            "User-Agent": f"odometer-client-python/{VERSION}",
        }
        token = self._token.read()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if traceparent:
            headers["traceparent"] = traceparent
        return headers


def _value(reply: Reply, endpoint: str, read: Callable[[Body], _T]) -> _T:
    body = _object(reply.body)
    if not 200 <= reply.status < 300:
        raise _refusal(reply, body or {}, endpoint)
    if body is None and not reply.is_whole:
        raise Unreachable(f"{endpoint} sent half a reply", endpoint, timed_out=False)
    if body is None:
        raise InvalidReply(f"{endpoint} answered {reply.status} without a JSON object", endpoint)
    try:
        return read(body)
    except (LookupError, TypeError, ValueError) as error:
        what = f"{endpoint} answered what cannot be read: {error!r}"
        raise InvalidReply(what, endpoint) from error


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refusal(reply: Reply, body: Body, endpoint: str) -> Refused:
    return Refused(
        status=reply.status,
        code=str(body.get("code") or f"http_{reply.status}"),
        detail=str(body.get("detail") or "no reason given"),
        endpoint=endpoint,
        limit=_count(body.get("limit")),
        retry_after=_count(reply.retry_after),
    )


def _count(text: object) -> int | None:
    """Reads digits. Other texts say nothing, such as a date in `Retry-After`."""
    is_count = isinstance(text, str) and text.isascii() and text.isdigit()
    return int(str(text)) if is_count and len(str(text)) <= _MAX_DIGITS else None
