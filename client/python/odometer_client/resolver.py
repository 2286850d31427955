"""Resolver: looks the names of replicas up, within a time."""

from __future__ import annotations

import concurrent.futures
import socket
import time
from functools import partial
from typing import Any

from .thread import start

#: A family, a kind, a protocol, a canonical name and an address, as `socket.getaddrinfo` says.
Address = tuple[int, int, int, str, Any]


class Resolver:
    """Looks up in threads that a call can leave, because nothing else ends a look-up that hangs."""

    def __init__(self) -> None:
        # The last look-up of each name. Calls share one that is under way.
        self._lookups: dict[str, concurrent.futures.Future[list[Address]]] = {}

    def addresses(self, host: str, port: int, until: float) -> list[Address]:
        """Returns the addresses of a host. Raises `OSError` if there are none in time."""
        try:
            return _look_up(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        key = f"{host} {port}"
        lookup = self._lookups.get(key)
        if lookup is None or lookup.done():
            lookup = concurrent.futures.Future()
            start(partial(_fulfil, lookup, host, port))
            self._lookups[key] = lookup
        try:
            return lookup.result(max(0.0, until - time.monotonic()))
        except concurrent.futures.TimeoutError as error:
            raise TimeoutError(f"{host} was not found in time") from error


def _fulfil(lookup: concurrent.futures.Future[list[Address]], host: str, port: int) -> None:
    try:
        lookup.set_result(_look_up(host, port, 0))
    except BaseException as error:
        lookup.set_exception(error)


def _look_up(host: str, port: int, flags: int) -> list[Address]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except UnicodeError as error:
        raise OSError(f"{host} is no name of a host") from error
