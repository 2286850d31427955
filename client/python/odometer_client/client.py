"""Client: the endpoints, how to call them, and the sequences of a program."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Sequence as Several
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from .definition import Kind
from .endpoints import Endpoints
from .fork import register
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
        for url in urls:
            _check(url)
        if initial_size < 1:
            raise ValueError(f"initial_size is 1 at least, not {initial_size}")
        if ca_file is not None and ssl_context is None:
            ssl_context = ssl.create_default_context(cafile=str(ca_file))
        self._service = Service(
            Endpoints(urls), Transport(ssl_context), Token(token, token_file)
        )
        self._hooks = SafeHooks(hooks or Hooks())
        self._options: dict[str, Any] = {
            "deadline": deadline,
            "refill_timeout": refill_timeout,
            "max_age": max_age,
            "initial_size": initial_size,
        }
        self._lock = threading.Lock()
        self._sequences: dict[tuple[str, str | None], Sequence] = {}
        register(self)

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
        period and time-ordered sequences. `period` is for sequences with periods.
        """
        with self._lock:
            found = self._sequences.get((name, period))
            if found is None:
                found = Sequence(
                    name, self._service, self._hooks, kind=kind, period=period, **self._options
                )
                self._sequences[name, period] = found
            return found

    def forget(self) -> None:
        """Drops all numbers in memory, and the connections.

        Call it after the machine was resumed from a snapshot, or the process from a checkpoint:
        otherwise two copies give the same numbers.
        """
        self._drop("forget")

    def close(self) -> None:
        """Drops all numbers in memory, and closes the connections."""
        self._drop("close")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _drop(self, cause: str) -> None:
        # First, so that no refill of those who wait uses a connection of the time before.
        self._service.close_idle()
        with self._lock:
            sequences = list(self._sequences.values())
        for sequence in sequences:
            sequence.drop(cause)

    def renew_in_child(self) -> None:
        """Replaces the lock: in a forked child another thread may hold it."""
        self._lock = threading.Lock()


class _Default:
    """The client of models."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.renew_in_child()
        register(self)

    def renew_in_child(self) -> None:
        self.lock = threading.Lock()


_DEFAULT = _Default()


def default_client() -> Client:
    """Returns the client of the environment, which is made at the first call."""
    with _DEFAULT.lock:
        if _DEFAULT.client is None:
            _DEFAULT.client = Client.from_environment()
        return _DEFAULT.client


def set_default_client(client: Client | None) -> None:
    """Makes this the client of `default=Sequence(…)` in models. `None`: that of the
    environment again."""
    with _DEFAULT.lock:
        _DEFAULT.client = client


def _check(url: str) -> None:
    parts = urlsplit(url)
    try:
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{url!r} is no address as http://host:8080")
