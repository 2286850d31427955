"""Stock: the numbers of one sequence, who waits for them, and the one refill in flight."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from .backoff import pause_seconds
from .buffer import Buffer, Item, Run
from .definition import Definition
from .errors import OdometerError
from .fork import register
from .hooks import SafeHooks
from .size import Size
from .waiter import Waiter

#: A refill that nobody waits for ends after so many failures. The next take starts another one.
MAX_ATTEMPTS_FOR_NOBODY = 10
#: A thread that has not begun after this time never will: it was interrupted at its start.
START_TIMEOUT_SECONDS = 5.0


class Flight:
    """A refill, from its start to its end. Only the stock's present flight changes the stock."""

    def __init__(self, now: float) -> None:
        self.created = now
        self.has_begun = False
        #: Ends its first pause.
        self.hurry = threading.Event()


class Stock:
    """All state of a sequence is here, under one lock, which is never held during a call."""

    def __init__(
        self,
        hooks: SafeHooks,
        *,
        initial_size: int,
        max_age: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hooks = hooks
        self._initial_size = initial_size
        self._max_age = max_age
        self._clock = clock
        self.definition: Definition | None = None
        #: Starts the thread of a flight.
        self.launch: Callable[[Flight], None] = lambda flight: None
        self.renew_in_child()
        register(self)

    def renew_in_child(self) -> None:
        """Starts with nothing, not even the lock: in a forked child another thread may hold it.

        The child's copies are no gaps, because the parent still has the numbers.
        """
        self._lock = threading.Lock()
        self._buffer = Buffer()
        self._size = Size(self._initial_size)
        # In the order of arrival.
        self._line: deque[Waiter] = deque()
        self._warming: list[Waiter] = []
        self._flight: Flight | None = None
        self._n_failures = 0
        self._not_before = 0.0
        self.last_error: OdometerError | None = None

    @property
    def is_unbuffered(self) -> bool:
        """Each take must be a call. False while it is not known."""
        return self.definition is not None and not self.definition.is_buffered

    def take(self) -> Item | None:
        """Takes a number, if one is in memory, and starts a refill if it is time."""
        with self._lock:
            now = self._clock()
            n_old = 0 if self._max_age is None else self._drop_old(now)
            item = self._pop(now)
            flight = self._needed_flight(now)
        if flight is not None or n_old:
            self._finish(flight, n_old)
        return item

    def take_range(self, count: int) -> range | None:
        """Takes an unbroken range, if memory has one. If not, the rest of a block stays."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            values = None if self._line else self._buffer.take_range(count)
            if values is not None:
                self._size.rate.note(now, count)
            flight = self._needed_flight(now) if values is not None else None
        self._finish(flight, n_old)
        return values

    def take_or_wait(self, waiter: Waiter) -> Item | None:
        """Takes a number, or lets the caller stand in line."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            item = None if self._line else self._pop(now)
            if item is None and not self.is_unbuffered:
                self._line.append(waiter)
            elif item is None:
                waiter.settle()
            if item is None:
                self._hurry()
            flight = self._needed_flight(now)
        self._finish(flight, n_old)
        return item

    def warm(self, waiter: Waiter) -> None:
        """Settles the waiter when its target is in memory, or when there is no buffer."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            self._warming.append(waiter)
            if self.definition is not None:
                self._serve(now)
            self._hurry()
            flight = self._needed_flight(now)
        self._finish(flight, n_old)

    def withdraw(self, waiter: Waiter) -> bool:
        """Takes a caller out of the line, who gave up. Returns False if it is settled already.

        The refill goes on.
        """
        with self._lock:
            if waiter.is_settled:
                return False
            if waiter in self._line:
                self._line.remove(waiter)
            if waiter in self._warming:
                self._warming.remove(waiter)
            return True

    def forget(self, cause: str) -> None:
        """Drops all numbers, and those of the refill in flight. Who waits gets new ones."""
        with self._lock:
            now = self._clock()
            dropped = self._buffer.left
            self._buffer = Buffer()
            self._flight = None
            flight = self._needed_flight(now) if self._line or self._warming else None
        self._finish(flight, 0)
        self._hooks.dropped(dropped, cause)

    def readings(self) -> tuple[int, float]:
        """Returns how many numbers are left, and how many a second are taken."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            found = self._buffer.left, self._size.rate.per_second(now)
        self._finish(None, n_old)
        return found

    # For the refill.

    def first_pause(self, flight: Flight) -> float:
        """Returns how long a new flight waits, because the one before it failed."""
        with self._lock:
            flight.has_begun = True
            if self._flight is not flight:
                return 0.0
            if self._line or self._warming:
                self._hurry()
            return max(0.0, self._not_before - self._clock())

    def wanted(self, flight: Flight) -> int | None:
        """Returns how many numbers to ask for. `None` ends the flight."""
        with self._lock:
            if self._flight is not flight:
                return None
            now = self._clock()
            if not self._is_needed(now):
                self._flight = None
                return None
            missing = max((it.target or 0 for it in self._warming), default=0)
            missing -= self._buffer.left
            return max(1, self._size.next_size(now), len(self._line), missing)

    def deliver(self, flight: Flight, runs: Sequence[Run], asked: float, began: float) -> None:
        """Adds what a flight got. It was asked for at `asked`; the refill began at `began`."""
        dropped = 0
        with self._lock:
            now = self._clock()
            if self._flight is flight:
                self._buffer.add(runs, asked)
                self._size.note_refill(now - began)
                self._succeed(now)
            else:
                dropped = sum(run.count for run in runs)
        self._hooks.dropped(dropped, "forget")

    def learned(self, flight: Flight, definition: Definition, runs: Sequence[Run]) -> None:
        """Notes what the sequence is, and the numbers that had to be taken to learn it."""
        dropped = 0
        with self._lock:
            now = self._clock()
            self.definition = definition
            if self._flight is flight:
                self._buffer.add(runs, now)
                self._succeed(now)
                if not definition.is_buffered:
                    # Kept for later it would be out of order, or of another period.
                    dropped, self._buffer = self._buffer.left, Buffer()
            else:
                dropped = sum(run.count for run in runs)
        self._hooks.dropped(dropped, "late")

    def failed(self, flight: Flight, error: OdometerError, *, is_sole: bool) -> float | None:
        """Notes a failed attempt. Returns how long to wait for the next one; `None` ends it."""
        with self._lock:
            if self._flight is not flight:
                return None
            self._n_failures += 1
            self.last_error = error
            after = getattr(error, "retry_after", None) if is_sole else None
            pause = pause_seconds(self._n_failures, after)
            self._not_before = self._clock() + pause
            is_awaited = bool(self._line or self._warming)
            if _is_retryable(error):
                if is_awaited or self._n_failures % MAX_ATTEMPTS_FOR_NOBODY:
                    return pause
            else:
                self._fail_waiters(error)
            self._flight = None
            return None

    def end(self, flight: Flight, error: BaseException | None = None) -> None:
        """Ends a flight, however it ended, so that the next one can start."""
        with self._lock:
            if self._flight is flight:
                self._flight = None
                if error is not None:
                    self._fail_waiters(error)

    # All below are called under the lock, but `_finish`.

    def _hurry(self) -> None:
        """After a refusal, who waits has a reason to ask again: the cause may be gone."""
        is_final = self.last_error is not None and not _is_retryable(self.last_error)
        if is_final and self._flight is not None:
            self._flight.hurry.set()

    def _pop(self, now: float) -> Item | None:
        item = self._buffer.take()
        if item is not None:
            self._size.rate.note(now)
        return item

    def _drop_old(self, now: float) -> int:
        if self._max_age is None:
            return 0
        return self._buffer.drop_older(now - self._max_age)

    def _succeed(self, now: float) -> None:
        self._n_failures = 0
        self._not_before = 0.0
        self.last_error = None
        self._serve(now)

    def _serve(self, now: float) -> None:
        while self._line and (self._buffer.left or self.is_unbuffered):
            waiter = self._line.popleft()
            if not waiter.is_gone:
                waiter.settle(self._pop(now))
        waiting = []
        for waiter in self._warming:
            if self.is_unbuffered or self._buffer.left >= (waiter.target or 0):
                waiter.settle()
            elif not waiter.is_gone:
                waiting.append(waiter)
        self._warming = waiting

    def _fail_waiters(self, error: BaseException) -> None:
        for waiter in (*self._line, *self._warming):
            waiter.settle(error=error)
        self._line.clear()
        self._warming = []

    def _is_needed(self, now: float) -> bool:
        definition = self.definition
        if definition is None:
            return True
        if not definition.is_buffered:
            return False
        if self._line or self._warming or not self._size.has_refilled:
            return True
        buffer = self._buffer
        if buffer.n_blocks > 1:
            return False
        left = buffer.left
        return not left or left < self._size.low_water_mark(now, buffer.current_size)

    def _needed_flight(self, now: float) -> Flight | None:
        flight = self._flight
        if flight is not None:
            is_lost = not flight.has_begun and now - flight.created > START_TIMEOUT_SECONDS
            if not is_lost:
                return None
        if not self._is_needed(now):
            return None
        self._flight = Flight(now)
        return self._flight

    def _finish(self, flight: Flight | None, n_old: int) -> None:
        """Does what must not be done under the lock."""
        if flight is not None:
            self.launch(flight)
        self._hooks.dropped(n_old, "max_age")


def _is_retryable(error: OdometerError) -> bool:
    return bool(getattr(error, "is_retryable", False))
