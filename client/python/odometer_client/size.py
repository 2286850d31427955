"""Size: how fast numbers are taken, how many to ask for, and when. No I/O."""

from __future__ import annotations

from collections import deque

#: The rate is measured over the last seconds, so many at most.
WINDOW_SECONDS = 10.0
#: A refill lasts this long at the present rate.
REFILL_SECONDS = 10.0
#: So many of the last refills say how long the next one may take.
N_DURATIONS = 16
#: A prefetch starts when less than this part of the block is left.
LOW_PART = 0.2


class Rate:
    """Numbers taken a second, of the last seconds."""

    def __init__(self) -> None:
        # Pairs of the start of a span and how many were taken in it.
        self._spans: deque[list[float]] = deque()
        self._count = 0

    def note(self, now: float, count: int = 1) -> None:
        """Counts numbers that are taken now."""
        self._count += count
        spans = self._spans
        if spans and now - spans[-1][0] < WINDOW_SECONDS / 10:
            spans[-1][1] += count
            return
        spans.append([now, count])
        self._forget_old(now)

    def per_second(self, now: float) -> float:
        """Returns the rate. One number alone says nothing about a rate, so it is 0 then."""
        spans = self._spans
        if spans and now - spans[0][0] > WINDOW_SECONDS:
            self._forget_old(now)
        if not spans:
            return 0.0
        return max(0, self._count - 1) / max(1.0, now - spans[0][0])

    def _forget_old(self, now: float) -> None:
        while self._spans and now - self._spans[0][0] > WINDOW_SECONDS:
            self._count -= int(self._spans.popleft()[1])


class Size:
    """Decides the size of refills, and the low-water mark."""

    def __init__(self, initial: int) -> None:
        self.rate = Rate()
        self._initial = initial
        self._durations: deque[float] = deque(maxlen=N_DURATIONS)
        self._slowest = 0.0
        #: Whether a refill succeeded.
        self.has_refilled = False

    def note_refill(self, seconds: float) -> None:
        """A refill of this duration succeeded."""
        self._durations.append(seconds)
        self._slowest = max(self._durations)
        self.has_refilled = True

    def next_size(self, now: float) -> int:
        """Returns how many numbers the next refill asks for."""
        if not self.has_refilled:
            return self._initial
        return max(1, int(self.rate.per_second(now) * REFILL_SECONDS))

    def low_water_mark(self, now: float, block_size: int) -> float:
        """Returns how many numbers must be left, or a prefetch starts."""
        return max(block_size * LOW_PART, self.rate.per_second(now) * 2 * self._slowest)
