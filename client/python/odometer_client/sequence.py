"""Sequence: what a program calls to get numbers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

from .backoff import pause_seconds
from .buffer import Item
from .definition import Kind, Paths, numbers_of, one_of
from .errors import (
    CallFailed,
    DeadlinePassed,
    Empty,
    InvalidReply,
    OdometerError,
    WouldBlock,
)
from .hooks import SafeHooks
from .refill import Refill
from .service import Answer, Service
from .stock import Stock
from .waiter import LoopWaiter, ThreadWaiter, Waiter

#: If a caller has less time than this, a replica that does not answer may still be healthy.
PATIENT_SECONDS = 1.0

_T = TypeVar("_T")
# `Sequence.range` hides the built-in name inside the class.
range_ = range


class Sequence:
    """One sequence. `Client.sequence` makes it. Share it among threads and event loops.

    Values are whole numbers of 64 bits; ids are the printed form, by the sequence's format.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        hooks: SafeHooks,
        *,
        kind: Kind | None,
        period: str | None,
        deadline: float,
        refill_timeout: float,
        max_age: float | None,
        initial_size: int,
    ) -> None:
        self.name = name
        self._service = service
        self._hooks = hooks
        self._deadline = deadline
        self._timeout = refill_timeout
        self._paths = Paths(name, period)
        self._stock = Stock(hooks, initial_size=initial_size, max_age=max_age)
        self._refill = Refill(
            name, self._paths, kind, self._stock, service, hooks, timeout=refill_timeout
        )
        self._stock.launch = self._refill.launch

    def __repr__(self) -> str:
        return f"<odometer_client.Sequence {self.name!r}>"

    @property
    def left(self) -> int:
        """How many numbers are in memory."""
        return self._stock.readings()[0]

    @property
    def rate(self) -> float:
        """How many numbers a second are taken, over the last 10 s."""
        return self._stock.readings()[1]

    # Calls that never wait.

    def take(self) -> int:
        """Returns the next number from memory. Never waits.

        Raises `Empty` if there is none, and starts a refill. Numbers of strict, period and
        time-ordered sequences are never in memory, so for them this makes a call.
        """
        return self._take()[0]

    def take_id(self) -> str:
        """As `take`, in printed form."""
        return _printed(self._take())

    # Calls that wait, for threads.

    def next(self) -> int:
        """Returns the next number. Waits for it, at most as long as the client's deadline.

        Raises `DeadlinePassed`, or `Refused` if the service refuses the sequence. In the thread
        of an event loop it raises `WouldBlock` if it had to wait.
        """
        return self._next()[0]

    def next_id(self) -> str:
        """As `next`, in printed form."""
        return _printed(self._next())

    def warm(self, count: int, timeout: float | None = None) -> None:
        """Waits until so many numbers are in memory, at most `timeout` (the deadline) seconds.

        Call it when your program starts. Unbuffered sequences are only looked up.
        """
        self._refuse_in_loop("awarm()")
        until = time.monotonic() + (self._deadline if timeout is None else timeout)
        waiter = ThreadWaiter(count)
        self._stock.warm(waiter)
        try:
            waiter.wait(until - time.monotonic())
        finally:
            gave_up = self._stock.withdraw(waiter)
        self._result(waiter, gave_up)

    def range(self, count: int) -> range:
        """Returns an unbroken range of numbers, from memory or else by one call."""
        values = self._range_in_memory(count)
        if values is not None:
            return values
        self._refuse_in_loop("arange()")
        return self._call_range(count, time.monotonic() + self._deadline)

    # The same for event loops.

    async def anext(self) -> int:
        """As `next`. The event loop goes on meanwhile."""
        return (await self._anext())[0]

    async def anext_id(self) -> str:
        """As `next_id`. The event loop goes on meanwhile."""
        return _printed(await self._anext())

    async def awarm(self, count: int, timeout: float | None = None) -> None:
        """As `warm`. The event loop goes on meanwhile."""
        until = time.monotonic() + (self._deadline if timeout is None else timeout)
        waiter = LoopWaiter(count)
        self._stock.warm(waiter)
        try:
            await waiter.wait(until - time.monotonic())
        finally:
            gave_up = self._stock.withdraw(waiter)
        self._result(waiter, gave_up)

    async def arange(self, count: int) -> range_:
        """As `range`. The event loop goes on meanwhile."""
        values = self._range_in_memory(count)
        if values is not None:
            return values
        until = time.monotonic() + self._deadline
        return await _in_thread(partial(self._call_range, count, until))

    def forget(self) -> None:
        """Drops all numbers in memory, after a snapshot or a checkpoint was resumed."""
        self._stock.forget("forget")

    def drop(self, cause: str) -> None:
        """Drops all numbers in memory, and tells the hooks why."""
        self._stock.forget(cause)

    def _take(self) -> Item:
        if not self._stock.is_unbuffered:
            item = self._stock.take()
            if item is not None:
                return item
            if not self._stock.is_unbuffered:
                raise Empty(f"no number of {self.name} is in memory") from self._stock.last_error
        self._refuse_in_loop("anext()")
        return self._call_one(time.monotonic() + self._deadline)

    def _next(self) -> Item:
        until = time.monotonic() + self._deadline
        if not self._stock.is_unbuffered:
            item = self._stock.take()
            if item is not None:
                return item
            self._refuse_in_loop("anext()")
            waiter = ThreadWaiter()
            item = self._stock.take_or_wait(waiter)
            if item is None:
                item = self._wait(waiter, until)
            if item is not None:
                return item
        self._refuse_in_loop("anext()")
        return self._call_one(until)

    def _wait(self, waiter: ThreadWaiter, until: float) -> Item | None:
        began = time.monotonic()
        try:
            waiter.wait(until - began)
        except BaseException:
            self._leave(waiter)
            raise
        gave_up = self._stock.withdraw(waiter)
        self._hooks.waited(time.monotonic() - began)
        return self._result(waiter, gave_up)

    async def _anext(self) -> Item:
        until = time.monotonic() + self._deadline
        if not self._stock.is_unbuffered:
            item = self._stock.take()
            if item is not None:
                return item
            waiter = LoopWaiter()
            item = self._stock.take_or_wait(waiter)
            if item is None:
                item = await self._await(waiter, until)
            if item is not None:
                return item
        return await _in_thread(partial(self._call_one, until))

    async def _await(self, waiter: LoopWaiter, until: float) -> Item | None:
        began = time.monotonic()
        try:
            await waiter.wait(until - began)
        except BaseException:
            self._leave(waiter)
            raise
        gave_up = self._stock.withdraw(waiter)
        self._hooks.waited(time.monotonic() - began)
        return self._result(waiter, gave_up)

    def _leave(self, waiter: Waiter) -> None:
        """Of a caller who was interrupted or cancelled. A number that it got is a gap."""
        if not self._stock.withdraw(waiter) and waiter.item is not None:
            self._hooks.dropped(1, "late")

    def _result(self, waiter: Waiter, gave_up: bool) -> Item | None:
        if gave_up:
            raise self._too_late(self._stock.last_error)
        if waiter.error is not None:
            raise _of_this_caller(waiter.error) from waiter.error
        return waiter.item

    def _too_late(self, last: OdometerError | None) -> DeadlinePassed:
        reason = "" if last is None else f": {last}"
        error = DeadlinePassed(f"no number of {self.name} came within the deadline{reason}")
        error.__cause__ = last
        return error

    def _refuse_in_loop(self, instead: str) -> None:
        if _is_in_loop():
            self._refuse(instead)

    def _refuse(self, instead: str) -> NoReturn:
        raise WouldBlock(
            f"a number of {self.name} would have to be waited for, which blocks the event loop of "
            f"this thread: use `await {instead}`"
        ) from self._stock.last_error

    def _range_in_memory(self, count: int) -> range_ | None:
        if count < 1:
            raise ValueError(f"a range has 1 number at least, not {count}")
        return None if self._stock.is_unbuffered else self._stock.take_range(count)

    # Calls without a buffer, in the thread of the caller.

    def _call_one(self, until: float) -> Item:
        return one_of(self._call(self._paths.one(), 1, until))

    def _call_range(self, count: int, until: float) -> range_:
        answer = self._call(self._paths.unbroken(count), count, until)
        runs = numbers_of(answer, with_ids=False)
        if len(runs) != 1 or runs[0].count != count:
            what = f"{answer.endpoint} gave another range than {count} unbroken numbers"
            raise InvalidReply(what, answer.endpoint)
        return runs[0].take_range(count)

    def _call(self, path: str, count: int, until: float) -> Answer:
        n_failures = 0
        while True:
            try:
                return self._call_once(path, count, until)
            except CallFailed as error:
                if not error.is_retryable:
                    raise
                n_failures += 1
                is_sole = self._service.endpoints.is_sole
                pause = pause_seconds(n_failures, error.retry_after if is_sole else None)
                left = until - time.monotonic()
                time.sleep(max(0.0, min(pause, left)))
                if pause >= left:
                    raise self._too_late(error) from error

    def _call_once(self, path: str, count: int, until: float) -> Answer:
        began = time.monotonic()
        timeout = min(self._timeout, until - began)
        endpoint, outcome, n_given = "", "", 0
        try:
            with self._hooks.span(self.name) as traceparent:
                answer = self._service.ask(
                    "POST",
                    path,
                    timeout,
                    traceparent,
                    is_hasty=timeout < min(self._timeout, PATIENT_SECONDS),
                )
            endpoint, outcome, n_given = answer.endpoint, "ok", count
            return answer
        except CallFailed as error:
            endpoint, outcome = error.endpoint, error.outcome
            raise
        finally:
            if outcome:
                seconds = time.monotonic() - began
                self._hooks.refill(self.name, endpoint, outcome, seconds, n_given)


def _printed(item: Item) -> str:
    return str(item[0]) if item[1] is None else item[1]


def _of_this_caller(error: BaseException) -> BaseException:
    """Returns an error of this caller's own: each raise would add to the traceback of one that
    several callers share."""
    if not isinstance(error, OdometerError):
        return OdometerError(str(error))
    own = error.__class__.__new__(error.__class__)
    own.args = error.args
    own.__dict__.update(error.__dict__)
    return own


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _in_thread(call: Callable[[], _T]) -> _T:
    return await asyncio.to_thread(call)
