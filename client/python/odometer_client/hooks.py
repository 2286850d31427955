"""Hooks: what the client tells your program about its work."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("odometer_client")
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Hooks:
    """Subclass it, and give an instance to `Client(hooks=…)`.

    The methods are called in the thread that does the work, never while a lock is held. An
    exception in `refill`, `waited` or `dropped` is logged, and harms nothing.
    """

    def refill(
        self, sequence: str, endpoint: str, outcome: str, seconds: float, count: int
    ) -> None:
        """A call for numbers ended. Its numbers are in memory already.

        The next refill waits until this method returns. So do little here, and never call what
        waits for a number, such as `next`.

        `outcome` is `ok`, `resized` (the size was refused, and a smaller one was given),
        `timeout`, `connection`, or the code of the service. `count` is 0 unless it succeeded.
        """

    def waited(self, seconds: float) -> None:
        """A caller found nothing in memory, and waited this long."""

    def dropped(self, count: int, cause: str) -> None:
        """Numbers are gaps now: by `max_age`, `forget`, `close`, or `late` (no caller was left)."""

    @contextmanager
    def span(self, sequence: str) -> Iterator[str]:
        """Surrounds a refill, and yields its `traceparent` header (W3C Trace Context).

        By default each refill has a trace of its own, which is not sampled. Override it to open
        a span `odometer.refill` of your tracer.
        """
        yield _traceparent()


class SafeHooks:
    """Calls the hooks of a program, and survives their exceptions."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def refill(
        self, sequence: str, endpoint: str, outcome: str, seconds: float, count: int
    ) -> None:
        self._call(lambda: self._hooks.refill(sequence, endpoint, outcome, seconds, count))

    def waited(self, seconds: float) -> None:
        self._call(lambda: self._hooks.waited(seconds))

    def dropped(self, count: int, cause: str) -> None:
        if count > 0:
            self._call(lambda: self._hooks.dropped(count, cause))

    @contextmanager
    def span(self, sequence: str) -> Iterator[str]:
        """Yields a header even if the program's span fails."""
        try:
            span = self._hooks.span(sequence)
            header = span.__enter__()
            if not _TRACEPARENT.fullmatch(header):
                header = _traceparent()
        except Exception:
            _LOG.exception("a span of odometer_client could not begin")
            yield _traceparent()
            return
        try:
            yield header
        except BaseException:
            cause = sys.exc_info()
            self._call(lambda: span.__exit__(*cause))
            raise
        self._call(lambda: span.__exit__(None, None, None))

    @staticmethod
    def _call(hook: Callable[[], object]) -> None:
        try:
            hook()
        except Exception:
            _LOG.exception("a hook of odometer_client failed")


def _traceparent() -> str:
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-00"
