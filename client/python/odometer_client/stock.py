"""Stock: the numbers of one sequence, who waits for them, and the one refill in flight."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from .backoff import pause_seconds
from .buffer import Buffer, Item, Run
from .definition import Definition
from .errors import OdometerError
from .gate import Gate
from .hooks import SafeHooks
from .size import Size
from .waiter import Waiter

#: A refill that nobody waits for ends after so many failures. The next take starts another one.
MAX_ATTEMPTS_FOR_NOBODY = 10
#: A thread that has not begun after this time never will: it was interrupted at its start.
START_TIMEOUT_SECONDS = 1.0


class Flight:
    """A refill, from its start to its end. Only the stock's present flight changes the stock."""

    def __init__(self, now: float) -> None:
        self.created = now
        self.has_begun = False
        #: Why its numbers are dropped, once it is not the present flight any more.
        self.cause = "late"
        #: Ends its first pause.
        self.hurry = Gate()


class Stock:
    """All state of a sequence is here, under one lock, which is never held during a call.

    A thread can come back while it holds the lock: by a signal handler, or an object that is
    collected. It then gets another number, because the iterators of the buffer are in order after
    each step.
    """

    def __init__(
        self,
        hooks: SafeHooks,
        *,
        initial_size: int,
        max_age: float | None,
        definition: Definition | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hooks = hooks
        self._max_age = max_age
        self._clock = clock
        self.definition = definition
        #: Starts the thread of a flight.
        self.launch: Callable[[Flight], None] = lambda flight: None
        self._lock = threading.RLock()
        self._buffer = Buffer()
        self._size = Size(initial_size)
        # In the order of arrival.
        self._line: deque[Waiter] = deque()
        self._warming: list[Waiter] = []
        self._flight: Flight | None = None
        self._n_failures = 0
        self._not_before = 0.0
        self.last_error: OdometerError | None = None
        #: How often `forget` dropped the numbers. Another copy of this process may have them.
        self.n_forgets = 0

    @property
    def is_unbuffered(self) -> bool:
        """Each take must be a call. False while it is not known."""
        return self.definition is not None and not self.definition.is_buffered

    def take(self) -> Item | None:
        """Takes a number, if one is in memory, and starts a refill if it is time."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            item = self._pop(now)
            is_due = self._is_due(now)
        self._finish(is_due, n_old)
        return item

    def take_range(self, count: int) -> range | None:
        """Takes an unbroken range, if memory has one. If not, the rest of a block stays."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            values = None if self._line else self._buffer.take_range(count)
            if values is not None:
                self._size.rate.note(now, count)
            is_due = values is not None and self._is_due(now)
        self._finish(is_due, n_old)
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
            is_due = self._is_due(now)
        self._finish(is_due, n_old)
        return item

    def warm(self, waiter: Waiter) -> None:
        """Settles the waiter when its target is in memory, or if there is no buffer."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            if self.definition is not None and self._is_warm(waiter):
                waiter.settle()
            else:
                self._warming.append(waiter)
                self._hurry()
            is_due = self._is_due(now)
        self._finish(is_due, n_old)

    def keep_on(self) -> None:
        """Starts a refill for callers who wait, in place of one whose thread never began."""
        with self._lock:
            is_due = self._is_awaited and self._is_due(self._clock())
        self._finish(is_due, 0)

    def withdraw(self, waiter: Waiter) -> bool:
        """Takes a caller who gave up out of the line. Returns False if it is settled already.

        The refill goes on.
        """
        with self._lock:
            if waiter.is_settled:
                return False
            for line in (self._line, self._warming):
                with suppress(ValueError):
                    line.remove(waiter)
            return True

    def drop_all(self, cause: str, error: OdometerError | None = None) -> None:
        """Drops all numbers, and those of the refill in flight. Callers who wait get new ones, or
        the error."""
        with self._lock:
            now = self._clock()
            if cause == "forget":
                self.n_forgets += 1
            buffer, self._buffer = self._buffer, Buffer()
            if self._flight is not None:
                self._flight.cause = cause
                self._flight = None
            if error is not None:
                self._fail_waiters(error)
            is_due = self._is_awaited and self._is_due(now)
        self._finish(is_due, 0)
        self._hooks.dropped(buffer.left, cause)

    def readings(self) -> tuple[int, float]:
        """Returns how many numbers are left, and how many a second are taken."""
        with self._lock:
            now = self._clock()
            n_old = self._drop_old(now)
            found = self._buffer.left, self._size.rate.per_second(now)
        self._finish(False, n_old)
        return found

    # For the refill.

    def first_pause(self, flight: Flight) -> float:
        """Returns how long a new flight waits, because the one before it failed."""
        with self._lock:
            flight.has_begun = True
            if self._flight is not flight:
                return 0.0
            if self._is_awaited:
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
        with self._lock:
            now = self._clock()
            if self._flight is flight:
                self._buffer.add(runs, asked)
                self._size.note_refill(now - began)
                self._succeed(now)
                return
        self._hooks.dropped(sum(run.left for run in runs), flight.cause)

    def learned(
        self, flight: Flight, definition: Definition, runs: Sequence[Run], asked: float
    ) -> None:
        """Notes what the sequence is, and the numbers that were taken to learn it."""
        with self._lock:
            now = self._clock()
            self.definition = definition
            unused, cause = Buffer(), "late"
            if self._flight is not flight:
                unused.add(runs, asked)
                cause = flight.cause
                # The present flight has nothing to do if nothing is buffered.
                self._serve(now)
            else:
                self._buffer.add(runs, asked)
                self._succeed(now)
                if not definition.is_buffered:
                    # Kept for later they would be out of order, or of another period.
                    unused, self._buffer = self._buffer, unused
        self._hooks.dropped(unused.left, cause)

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
            if _is_retryable(error):
                if self._is_awaited or self._n_failures % MAX_ATTEMPTS_FOR_NOBODY:
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

    def _finish(self, is_due: bool, n_old: int) -> None:
        """Does what must not be done under the lock."""
        if is_due:
            self._start_flight()
        if n_old:
            self._hooks.dropped(n_old, "max_age")

    def _start_flight(self) -> None:
        now = self._clock()
        flight = Flight(now)
        try:
            with self._lock:
                if not self._is_due(now):
                    return
                self._flight = flight
            self.launch(flight)
        except OdometerError as error:
            self.last_error = error
            self.end(flight, error)
        except BaseException:
            # An exception of a signal handler is of this caller alone.
            self.end(flight)
            raise

    # All below are called under the lock.

    @property
    def _is_awaited(self) -> bool:
        return bool(self._line or self._warming)

    def _hurry(self) -> None:
        """Ends the pause after a refusal: its cause may be gone, and a caller waits."""
        is_final = self.last_error is not None and not _is_retryable(self.last_error)
        if is_final and self._flight is not None:
            self._flight.hurry.open()

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
                waiter.n_forgets = self.n_forgets
                waiter.settle(self._pop(now))
        waiting = []
        for waiter in self._warming:
            if self._is_warm(waiter):
                waiter.settle()
            elif not waiter.is_gone:
                waiting.append(waiter)
        self._warming = waiting

    def _is_warm(self, waiter: Waiter) -> bool:
        return self.is_unbuffered or self._buffer.left >= (waiter.target or 0)

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
        if self._is_awaited or not self._size.has_refilled:
            return True
        buffer = self._buffer
        current = buffer.current
        if current is None:
            return True
        if buffer.has_next:
            return False
        return buffer.left < self._size.low_water_mark(now, current.size)

    def _is_due(self, now: float) -> bool:
        """Whether a refill must start."""
        flight = self._flight
        if flight is not None:
            is_lost = not flight.has_begun and now - flight.created > START_TIMEOUT_SECONDS
            if not is_lost:
                return False
        return self._is_needed(now)


def _is_retryable(error: OdometerError) -> bool:
    return bool(getattr(error, "is_retryable", False))
