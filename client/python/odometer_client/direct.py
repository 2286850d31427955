"""Direct: calls for numbers that are not buffered."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from .backoff import pause_seconds
from .buffer import Item
from .definition import Paths, one_of, range_of
from .endpoints import PATIENT_SECONDS
from .errors import CallFailed, DeadlinePassed, OdometerError
from .fork import PerProcess
from .hooks import SafeHooks
from .service import Answer, Body, Service

_T = TypeVar("_T")
#: What a call gave, and how often `forget` was called before it.
_Given = tuple[_T, int]


class Direct:
    """Makes a call for a number or a range, and tries it again until a time."""

    def __init__(
        self,
        name: str,
        paths: Paths,
        service: PerProcess[Service],
        hooks: SafeHooks,
        *,
        timeout: float,
    ) -> None:
        self._name = name
        self._paths = paths
        self._service = service
        self._hooks = hooks
        self._timeout = timeout

    def one(self, until: float) -> Item:
        """Gets a number, in the thread of the caller."""
        return self._one(until)[0]

    def range(self, count: int, until: float) -> range:
        """Gets an unbroken range, in the thread of the caller."""
        return self._range(count, until)[0]

    async def aone(self, until: float) -> Item:
        """Gets a number. The event loop goes on meanwhile."""
        return await self._in_thread(partial(self._one, until), 1)

    async def arange(self, count: int, until: float) -> range_:
        """Gets an unbroken range. The event loop goes on meanwhile."""
        return await self._in_thread(partial(self._range, count, until), count)

    def _one(self, until: float) -> _Given[Item]:
        return self._call(self._paths.one(), one_of, 1, until)

    def _range(self, count: int, until: float) -> _Given[range_]:
        return self._call(self._paths.unbroken(count), partial(range_of, count=count), count, until)

    async def _in_thread(self, call: Callable[[], _Given[_T]], count: int) -> _T:
        def report_late(done: Future[_Given[_T]]) -> None:
            if not done.cancelled() and done.exception() is None:
                self._hooks.dropped(count, "late")

        # A span of the program finds its parent there.
        context = contextvars.copy_context()
        while True:
            service = self._service.get()
            called = service.threads.submit(lambda: context.run(call))
            try:
                value, n_forgets = await asyncio.wrap_future(called)
            except BaseException:
                # The call failed, or the caller is gone and the call goes on.
                called.add_done_callback(report_late)
                raise
            if service.n_forgets == n_forgets and self._service.get() is service:
                return value
            # `forget` or a fork came before the event loop went on with this coroutine.
            self._hooks.dropped(count, "forget")

    def _call(
        self, path: str, read: Callable[[Body], _T], count: int, until: float
    ) -> _Given[_T]:
        n_failures = 0
        last: CallFailed | None = None
        while time.monotonic() < until:
            service = self._service.get()
            n_forgets = service.n_forgets
            try:
                value = self._call_once(path, read, count, until).value
                if service.n_forgets == n_forgets and self._service.get() is service:
                    return value, n_forgets
                # Another copy of this process, or the parent of a fork, may have got it, too.
                self._hooks.dropped(count, "forget")
                continue
            except CallFailed as error:
                if not error.is_retryable:
                    raise
                last = error
            n_failures += 1
            is_sole = self._service.get().endpoints.is_sole
            pause = pause_seconds(n_failures, last.retry_after if is_sole else None)
            time.sleep(max(0.0, min(pause, until - time.monotonic())))
        raise too_late(self._name, last)

    def _call_once(
        self, path: str, read: Callable[[Body], _T], count: int, until: float
    ) -> Answer[_T]:
        began = time.monotonic()
        timeout = min(self._timeout, until - began)
        is_hurried = timeout < min(self._timeout, PATIENT_SECONDS)
        service = self._service.get()
        try:
            with self._hooks.span(self._name) as traceparent:
                answer = service.ask(
                    "POST", path, read, timeout, traceparent, is_hurried=is_hurried
                )
        except CallFailed as error:
            self._report(error.endpoint, error.outcome, began, 0)
            raise
        self._report(answer.endpoint, "ok", began, count)
        return answer

    def _report(self, endpoint: str, outcome: str, began: float, count: int) -> None:
        self._hooks.refill(self._name, endpoint, outcome, time.monotonic() - began, count)


# `Direct.range` hides the built-in name inside the class.
range_ = range


def too_late(name: str, last: OdometerError | None) -> DeadlinePassed:
    """Returns the error of a caller whose time is over. `last` is what failed last."""
    reason = "" if last is None else f": {last}"
    error = DeadlinePassed(f"no number of {name} came within the deadline{reason}")
    error.__cause__ = last
    return error
