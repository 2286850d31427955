"""Resolver: looks the names of replicas up, within a time."""

from __future__ import annotations

import socket
import time
from collections import deque
from functools import partial
from typing import Any

from .gate import Gate
from .thread import start

#: A family, a kind, a protocol, a canonical name and an address, as `socket.getaddrinfo` says.
Address = tuple[int, int, int, str, Any]


class Resolver:
    """Looks up in threads that a call can leave, because nothing else ends a look-up that hangs."""

    def __init__(self) -> None:
        # The last look-up of each name. Calls share one that is under way.
        self._lookups: dict[str, _Lookup] = {}

    def addresses(self, host: str, port: int, until: float) -> list[Address]:
        """Returns the addresses of a host. Raises `OSError` if there are none in time."""
        try:
            return _look_up(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        key = f"{host} {port}"
        lookup = self._lookups.get(key)
        if lookup is None or lookup.found is not None:
            lookup = _Lookup(host)
            start(partial(lookup.run, port))
            self._lookups[key] = lookup
        return lookup.result(until - time.monotonic())


class _Lookup:
    """One look-up, and who waits for it."""

    def __init__(self, host: str) -> None:
        self._host = host
        #: `None` while it is under way.
        self.found: list[Address] | OSError | None = None
        # Each caller has one of its own, so that an interrupted caller holds no other one up.
        self._gates: deque[Gate] = deque()

    def run(self, port: int) -> None:
        """Looks the host up."""
        try:
            self.found = _look_up(self._host, port, 0)
        except OSError as error:
            self.found = error
        except BaseException as error:
            self.found = OSError(repr(error))
        while self._gates:
            self._gates.popleft().open()

    def result(self, seconds: float) -> list[Address]:
        """Waits for the addresses, at most for this long."""
        gate = Gate()
        # Before the look at `found`, so that its opening is not missed.
        self._gates.append(gate)
        if self.found is None:
            gate.wait(seconds)
        found = self.found
        if found is None:
            raise TimeoutError(f"{self._host} was not found in time")
        if isinstance(found, OSError):
            # Each raise adds to the traceback of an error that several callers share.
            raise OSError(str(found)) from found
        return found


def _look_up(host: str, port: int, flags: int) -> list[Address]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except UnicodeError as error:
        raise OSError(f"{host} is no name of a host") from error
