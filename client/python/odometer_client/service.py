"""Service: one call to whichever replica has its turn, and what the reply means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .endpoints import Endpoints, Turn
from .errors import CallFailed, InvalidReply, Refused, Unreachable
from .fork import register
from .transport import Reply, Transport

#: Raised with the workspace.
VERSION = "0.1.0"
#: With these a replica says that it cannot serve now.
_UNFIT = frozenset({502, 503, 504})


class Token:
    """The bearer token: given, or read from a file at each call, because files are rotated."""

    def __init__(self, token: str | None = None, file: str | Path | None = None) -> None:
        self._token = token
        self._file = None if file is None else Path(file)
        if self._file is not None:
            self._token = self._file.read_text().strip()

    def read(self) -> str | None:
        """Returns the token. While the file cannot be read, the last one counts."""
        if self._file is not None:
            try:
                self._token = self._file.read_text().strip()
            except OSError:
                pass
        return self._token


class Answer:
    """A reply of success."""

    def __init__(self, body: dict[str, Any], endpoint: str) -> None:
        self.body = body
        self.endpoint = endpoint


class Service:
    """Makes calls at the endpoints, and learns from each how the endpoint does."""

    def __init__(self, endpoints: Endpoints, transport: Transport, token: Token) -> None:
        self.endpoints = endpoints
        self._transport = transport
        self._token = token
        register(self)

    def renew_in_child(self) -> None:
        """Lets go of the parent's connections, and begins at a random endpoint."""
        self._transport.renew_in_child()
        self.endpoints.renew()

    def close_idle(self) -> None:
        """Closes the connections that no call uses."""
        self._transport.close_idle()

    def ask(
        self,
        method: str,
        path: str,
        timeout: float,
        traceparent: str | None = None,
        *,
        is_hasty: bool = False,
    ) -> Answer:
        """Makes one call at one endpoint. Raises `CallFailed`: it retries nothing.

        If a hasty call gets no reply in time, that says nothing about the endpoint.
        """
        turn = self.endpoints.choose()
        has_ended = False
        try:
            headers = self._headers(traceparent)
            reply = self._transport.call(turn.url, method, path, headers, timeout)
            answer = _answer(reply, turn.url)
            has_ended = True
        except CallFailed as error:
            has_ended = True
            self._judge(turn, error, is_hasty)
            raise
        finally:
            if not has_ended:
                self.endpoints.abandoned(turn)
        self.endpoints.succeeded(turn)
        if reply.is_last:
            self.endpoints.moved_on(turn)
        return answer

    def _judge(self, turn: Turn, error: CallFailed, is_hasty: bool) -> None:
        if isinstance(error, Unreachable):
            if error.timed_out and is_hasty:
                self.endpoints.abandoned(turn)
            else:
                self.endpoints.failed(turn)
        elif isinstance(error, Refused) and error.status in _UNFIT:
            self.endpoints.failed(turn)
        else:
            self.endpoints.succeeded(turn)
            # Another replica may have numbers in memory. A limit holds for this replica.
            if isinstance(error, Refused) and error.status == 429 and error.limit is None:
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


def _answer(reply: Reply, endpoint: str) -> Answer:
    body = _object(reply.body)
    if not 200 <= reply.status < 300:
        raise _refusal(reply, body or {}, endpoint)
    if body is None:
        raise InvalidReply(f"{endpoint} answered {reply.status} without a JSON object", endpoint)
    return Answer(body, endpoint)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _refusal(reply: Reply, body: Mapping[str, Any], endpoint: str) -> Refused:
    limit = body.get("limit")
    try:
        retry_after = float(reply.retry_after or "")
    except ValueError:
        retry_after = None
    return Refused(
        status=reply.status,
        code=str(body.get("code") or f"http_{reply.status}"),
        detail=str(body.get("detail") or "no reason given"),
        endpoint=endpoint,
        limit=int(limit) if isinstance(limit, str) and limit.isdecimal() else None,
        retry_after=retry_after,
    )
