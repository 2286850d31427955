"""Size: how fast numbers are taken, how many to ask for, and when. No I/O."""

from __future__ import annotations

from collections import deque

#: The rate is measured over the last seconds, so many at most.
WINDOW_SECONDS = 10.0
#: The distance of two samples at least.
SAMPLE_SECONDS = 1.0
#: A refill lasts this long at the present rate.
REFILL_SECONDS = 10.0
#: So many of the last refills say how long the next one may take.
N_DURATIONS = 16
#: A prefetch starts when less than this part of the block is left.
LOW_PART = 0.2


class Rate:
    """Numbers taken a second, of the last seconds."""

    def __init__(self) -> None:
        self._n_taken = 0
        # Times, and how many numbers had been taken before. Replaced, never changed.
        self._samples: list[tuple[float, int]] = []

    def note(self, now: float, count: int = 1) -> None:
        """Counts numbers that are taken now."""
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples = [*self._recent(now), (now, self._n_taken)]
        self._n_taken += count

    def per_second(self, now: float) -> float:
        """Returns the rate. One number alone says nothing about a rate, so it is 0 then."""
        samples = self._samples
        if samples and now - samples[0][0] > WINDOW_SECONDS:
            samples = self._samples = self._recent(now)
        if not samples:
            return 0.0
        began, n_before = samples[0]
        return max(0, self._n_taken - n_before - 1) / max(1.0, now - began)

    def _recent(self, now: float) -> list[tuple[float, int]]:
        return [sample for sample in self._samples if now - sample[0] <= WINDOW_SECONDS]


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
        of_block = block_size * LOW_PART
        of_rate = self.rate.per_second(now) * 2 * self._slowest
        return of_block if of_block > of_rate else of_rate
