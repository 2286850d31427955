"""Client: the endpoints, how to call them, and the sequences of a program."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence as Several
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from .definition import Kind
from .endpoints import Endpoints
from .fork import PerProcess
from .hooks import Hooks, SafeHooks
from .sequence import Sequence
from .service import Service, Token
from .transport import Transport

DEFAULT_URL = "http://127.0.0.1:8080"


class Client:
    """Takes numbers from one installation of Odometer. Make one for a process, and share it.

    - `endpoints`: the addresses of the replicas, as `http://host:8080`.
    - `token`, `token_file`: the bearer token. The file is read at each call.
    - `ca_file`: the authority for `https`; or a whole `ssl_context`.
    - `deadline`: how long a caller waits who finds nothing in memory, in seconds.
    - `refill_timeout`: how long one call may take. The service holds a call for 5 s at most.
    - `max_age`: drops numbers that were asked for longer ago, in seconds. Off by default.
    - `initial_size`: how many numbers the first refill asks for.
    - `hooks`: what your program wants to know.
    """

    def __init__(
        self,
        endpoints: str | Several[str] = DEFAULT_URL,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
        deadline: float = 2.0,
        refill_timeout: float = 7.0,
        max_age: float | None = None,
        initial_size: int = 100,
        hooks: Hooks | None = None,
    ) -> None:
        urls = [endpoints] if isinstance(endpoints, str) else list(endpoints)
        if not urls:
            raise ValueError("a client needs an endpoint")
        for index, url in enumerate(urls):
            if not _is_address(url):
                # It may have a password, so it is not shown.
                raise ValueError(f"endpoint {index + 1} is no address such as http://host:8080")
        if initial_size < 1:
            raise ValueError(f"initial_size is 1 at least, not {initial_size}")
        if ca_file is not None and ssl_context is None:
            ssl_context = ssl.create_default_context(cafile=str(ca_file))
        self._urls = urls
        self._context = ssl_context
        self._token = Token(token, token_file)
        self._service = PerProcess(self._new_service)
        self._hooks = SafeHooks(hooks or Hooks())
        self._options: dict[str, Any] = {
            "deadline": deadline,
            "refill_timeout": refill_timeout,
            "max_age": max_age,
            "initial_size": initial_size,
        }
        self._sequences: dict[str, Sequence] = {}

    @classmethod
    def from_environment(cls, **options: Any) -> Client:
        """Makes a client from `ODOMETER_URL` (addresses, with commas between them),
        `ODOMETER_TOKEN`, `ODOMETER_TOKEN_FILE` and `ODOMETER_CA_FILE`. Options come first."""
        listed = os.environ.get("ODOMETER_URL") or DEFAULT_URL
        options.setdefault("endpoints", [url.strip() for url in listed.split(",") if url.strip()])
        if "token" not in options and "token_file" not in options:
            options["token"] = os.environ.get("ODOMETER_TOKEN") or None
            if options["token"] is None:
                options["token_file"] = os.environ.get("ODOMETER_TOKEN_FILE") or None
        if "ca_file" not in options and "ssl_context" not in options:
            options["ca_file"] = os.environ.get("ODOMETER_CA_FILE") or None
        return cls(**options)

    def sequence(
        self, name: str, *, kind: Kind | None = None, period: str | None = None
    ) -> Sequence:
        """Returns a sequence. The same name gives the same one, with the same numbers in memory.

        `kind` counts only without the right `look`: say `buffered`, or `unbuffered` for strict,
        period and time-ordered sequences. Numbers of a `period` are never in memory: each one is
        a call.
        """
        if period is not None:
            if kind == "buffered":
                raise ValueError("numbers of a period cannot be buffered")
            return self._new_sequence(name, kind, period)
        found = self._sequences.get(name)
        if found is None:
            found = self._sequences.setdefault(name, self._new_sequence(name, kind, None))
        if kind is not None:
            found.say(kind)
        return found

    def forget(self) -> None:
        """Drops all numbers in memory, and the connections.

        Call it after the machine was resumed from a snapshot, or the process from a checkpoint:
        otherwise two copies give the same numbers.
        """
        # First, so that no refill of those who wait uses a connection of the time before.
        self._service.get().forget()
        for sequence in tuple(self._sequences.values()):
            sequence.drop_all()

    def close(self) -> None:
        """Drops all numbers in memory, and closes the connections. Callers who wait get an error.
        """
        for sequence in tuple(self._sequences.values()):
            sequence.close()
        self._service.get().close_idle()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _new_service(self, before: Service | None) -> Service:
        if before is not None:
            before.let_go()
        return Service(Endpoints(self._urls), Transport(self._context), self._token)

    def _new_sequence(self, name: str, kind: Kind | None, period: str | None) -> Sequence:
        return Sequence(
            name, self._service, self._hooks, kind=kind, period=period, **self._options
        )


_DEFAULT = "default"
# The client of models. A dict, because it sets a value once in one step.
_clients: dict[str, Client] = {}


def default_client() -> Client:
    """Returns the client of the environment, which is made at the first call."""
    found = _clients.get(_DEFAULT)
    return found or _clients.setdefault(_DEFAULT, Client.from_environment())


def set_default_client(client: Client | None) -> None:
    """Makes this the client of `default=Default(…)` in models. `None`: that of the environment
    again."""
    if client is None:
        _clients.pop(_DEFAULT, None)
    else:
        _clients[_DEFAULT] = client


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(has_host) and "@" not in parts.netloc and not parts.query and not parts.fragment
