"""Sequence: what a program calls to get numbers."""

from __future__ import annotations

import asyncio
import time

from .buffer import Item
from .definition import UNBUFFERED, Kind, Paths
from .direct import Direct, too_late
from .errors import Empty, OdometerError, WouldBlock
from .fork import PerProcess
from .hooks import SafeHooks
from .refill import Refill
from .service import Service
from .stock import START_TIMEOUT_SECONDS, Stock
from .waiter import LoopWaiter, ThreadWaiter, Waiter

# `Sequence.range` hides the built-in name inside the class.
range_ = range


class Sequence:
    """One sequence. `Client.sequence` makes it. Share it among threads and event loops.

    Values are whole numbers of 64 bits; ids are the printed form, by the sequence's format.
    In a signal handler, or when an object is collected, call only what never waits.
    """

    def __init__(
        self,
        name: str,
        service: PerProcess[Service],
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
        #: What the program said, in case that the definition must not be read.
        self.kind: Kind | None = kind
        self._service = service
        self._hooks = hooks
        self._has_period = period is not None
        self._deadline = deadline
        self._timeout = refill_timeout
        self._max_age = max_age
        self._initial_size = initial_size
        self._paths = Paths(name, period)
        self._direct = Direct(name, self._paths, service, hooks, timeout=refill_timeout)
        self._stock = PerProcess(self._new_stock)

    def __repr__(self) -> str:
        return f"<odometer_client.Sequence {self.name!r}>"

    @property
    def left(self) -> int:
        """How many numbers are in memory."""
        return self._stock.get().readings()[0]

    @property
    def rate(self) -> float:
        """How many numbers a second are taken, over the last 10 s."""
        return self._stock.get().readings()[1]

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
        stock, waiter = self._stock.get(), ThreadWaiter(count)
        try:
            stock.warm(waiter)
            self._wait_for(waiter, stock, until)
        except BaseException:
            stock.withdraw(waiter)
            raise

    def range(self, count: int) -> range:
        """Returns an unbroken range of numbers, from memory or else by one call."""
        values = self._range_in_memory(count)
        if values is not None:
            return values
        self._refuse_in_loop("arange()")
        return self._direct.range(count, time.monotonic() + self._deadline)

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
        stock, waiter = self._stock.get(), LoopWaiter(count)
        try:
            stock.warm(waiter)
            await self._await(waiter, stock, until)
        except BaseException:
            stock.withdraw(waiter)
            raise

    async def arange(self, count: int) -> range_:
        """As `range`. The event loop goes on meanwhile."""
        values = self._range_in_memory(count)
        if values is not None:
            return values
        return await self._direct.arange(count, time.monotonic() + self._deadline)

    def forget(self) -> None:
        """Drops all numbers in memory, after a snapshot or a checkpoint was resumed."""
        self._service.get().forget()
        self.drop_all()

    def drop_all(self) -> None:
        """Drops the numbers in memory, but not those that calls get meanwhile."""
        self._stock.get().drop_all("forget")

    def close(self) -> None:
        """Drops all numbers in memory. Callers who wait get an error."""
        self._stock.get().drop_all("close", OdometerError(f"{self.name} was closed"))

    def say(self, kind: Kind) -> None:
        """Notes what the program says about the sequence. Raises `ValueError` if it said another
        kind before."""
        if self.kind is not None and self.kind != kind:
            raise ValueError(f"{self.name} was said to be {self.kind}, and now {kind}")
        self.kind = kind

    def _new_stock(self, before: Stock | None) -> Stock:
        known = UNBUFFERED if self._has_period else None
        stock = Stock(
            self._hooks,
            initial_size=self._initial_size,
            max_age=self._max_age,
            # It never changes, so a child need not read it again.
            definition=known if before is None else before.definition,
        )
        refill = Refill(
            self.name,
            self._paths,
            lambda: self.kind,
            stock,
            self._service.get(),
            self._hooks,
            timeout=self._timeout,
        )
        stock.launch = refill.launch
        return stock

    # If a hook or a signal handler forks in the middle of a call, the child goes on with the stock
    # of its parent. The child drops a number that it gets from there, and begins again. No more is
    # promised: its wait may last up to the deadline, or for ever if a lock was held at the fork.

    def _take(self) -> Item:
        while True:
            stock = self._stock.get()
            item = self._take_from(stock)
            if self._stock.get() is stock:
                return item

    def _take_from(self, stock: Stock) -> Item:
        if not stock.is_unbuffered:
            item = stock.take()
            if item is not None:
                return item
            if not stock.is_unbuffered:
                raise Empty(f"no number of {self.name} is in memory") from stock.last_error
        self._refuse_in_loop("anext()")
        return self._direct.one(time.monotonic() + self._deadline)

    def _next(self) -> Item:
        until = time.monotonic() + self._deadline
        while True:
            stock = self._stock.get()
            item = self._next_from(stock, until)
            if self._stock.get() is stock:
                return item

    def _next_from(self, stock: Stock, until: float) -> Item:
        if not stock.is_unbuffered:
            item = stock.take()
            if item is not None:
                return item
            self._refuse_in_loop("anext()")
            item = self._take_or_wait(stock, until)
            if item is not None:
                return item
        self._refuse_in_loop("anext()")
        return self._direct.one(until)

    def _take_or_wait(self, stock: Stock, until: float) -> Item | None:
        waiter = ThreadWaiter()
        began = time.monotonic()
        try:
            item = stock.take_or_wait(waiter)
            if item is not None:
                return item
            try:
                return self._wait_for(waiter, stock, until)
            finally:
                self._hooks.waited(time.monotonic() - began)
        except BaseException:
            self._leave(stock, waiter)
            raise

    def _wait_for(self, waiter: ThreadWaiter, stock: Stock, until: float) -> Item | None:
        while not waiter.is_settled and (left := until - time.monotonic()) > 0:
            waiter.wait(min(left, START_TIMEOUT_SECONDS))
            stock.keep_on()
        return self._result(stock, waiter)

    async def _anext(self) -> Item:
        until = time.monotonic() + self._deadline
        while True:
            stock = self._stock.get()
            item = await self._anext_from(stock, until)
            if self._stock.get() is stock:
                return item

    async def _anext_from(self, stock: Stock, until: float) -> Item:
        if not stock.is_unbuffered:
            item = stock.take()
            if item is None:
                item = await self._take_or_await(stock, until)
            if item is not None:
                return item
        return await self._direct.aone(until)

    async def _take_or_await(self, stock: Stock, until: float) -> Item | None:
        waiter = LoopWaiter()
        began = time.monotonic()
        try:
            item = stock.take_or_wait(waiter)
            if item is not None:
                return item
            try:
                return await self._await(waiter, stock, until)
            finally:
                self._hooks.waited(time.monotonic() - began)
        except BaseException:
            self._leave(stock, waiter)
            raise

    async def _await(self, waiter: LoopWaiter, stock: Stock, until: float) -> Item | None:
        while not waiter.is_settled and (left := until - time.monotonic()) > 0:
            await waiter.wait(min(left, START_TIMEOUT_SECONDS))
            stock.keep_on()
        return self._result(stock, waiter)

    def _leave(self, stock: Stock, waiter: Waiter) -> None:
        """Of a caller who was interrupted or cancelled. A number that it got is a gap."""
        if not stock.withdraw(waiter) and waiter.item is not None:
            self._hooks.dropped(1, "late")

    def _result(self, stock: Stock, waiter: Waiter) -> Item | None:
        if stock.withdraw(waiter):
            raise too_late(self.name, stock.last_error)
        if waiter.error is not None:
            raise _of_this_caller(waiter.error) from waiter.error
        if waiter.item is not None and waiter.n_forgets != stock.n_forgets:
            # It came just before `forget`. The caller makes a call for another one.
            waiter.item = None
            self._hooks.dropped(1, "forget")
        return waiter.item

    def _refuse_in_loop(self, instead: str) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise WouldBlock(
            f"a number of {self.name} would have to be waited for, which blocks the event loop of "
            f"this thread: use `await {instead}`"
        ) from self._stock.get().last_error

    def _range_in_memory(self, count: int) -> range_ | None:
        if count < 1:
            raise ValueError(f"a range has 1 number at least, not {count}")
        stock = self._stock.get()
        values = None if stock.is_unbuffered else stock.take_range(count)
        return values if self._stock.get() is stock else None


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
