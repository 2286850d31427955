"""Endpoints: which replica to call next, by how the calls before went. No I/O."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MIN_REST_SECONDS = 1.0
MAX_REST_SECONDS = 30.0
#: A rest is longer by up to this part of it, so that clients do not come back together.
REST_JITTER = 0.25
#: An endpoint that is silent for this long has failed.
PATIENT_SECONDS = 1.0
#: After this time another call may probe: the caller of the one before was interrupted.
PROBE_SECONDS = 30.0


@dataclass(frozen=True)
class Turn:
    """One call to one endpoint. Tell `Endpoints` how it ended."""

    index: int
    url: str
    started: float
    is_probe: bool


class _Health:
    """How one endpoint does."""

    def __init__(self) -> None:
        self.n_failures = 0
        self.failed_at = 0.0
        self.rests_until = 0.0
        self.probed_until = 0.0
        #: When the first of a row of hurried calls began that got no reply.
        self.silent_since: float | None = None


class Endpoints:
    """Begins at a random endpoint, and stays with it until it fails."""

    def __init__(
        self,
        urls: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._urls = tuple(urls)
        self._clock = clock
        self._uniform = uniform
        # A signal handler may call while its thread is in here.
        self._lock = threading.RLock()
        self._health = [_Health() for _ in self._urls]
        count = len(self._urls)
        self._current = min(int(self._uniform(0, count)), count - 1)

    @property
    def is_sole(self) -> bool:
        return len(self._urls) == 1

    def choose(self) -> Turn:
        """Returns whom to call now."""
        with self._lock:
            now = self._clock()
            index = self._pick(now)
            health = self._health[index]
            is_probe = health.n_failures > 0
            if is_probe:
                health.probed_until = now + PROBE_SECONDS
            self._current = index
            return Turn(index, self._urls[index], now, is_probe)

    def succeeded(self, turn: Turn) -> None:
        """The endpoint answered, be it with a refusal of the call."""
        with self._lock:
            health = self._health[turn.index]
            # A call from before the last failure proves nothing about the time after it.
            if turn.is_probe or turn.started >= health.failed_at:
                self._health[turn.index] = _Health()

    def failed(self, turn: Turn) -> None:
        """The endpoint gave no reply, or said that it cannot serve now: it rests."""
        with self._lock:
            health, now = self._health[turn.index], self._clock()
            self._end_probe(turn)
            health.silent_since = None
            # Calls in flight at the same time fail together, and count once.
            if health.n_failures == 0 or turn.started >= health.failed_at:
                health.n_failures += 1
                health.failed_at = now
                rest = min(MAX_REST_SECONDS, MIN_REST_SECONDS * 2.0 ** (health.n_failures - 1))
                health.rests_until = now + rest * (1 + self._uniform(0, REST_JITTER))
            self._leave(turn.index)

    def hurried(self, turn: Turn) -> None:
        """A call that had little time got no reply. A row of them is one failure."""
        with self._lock:
            health = self._health[turn.index]
            if health.silent_since is None:
                health.silent_since = turn.started
            if self._clock() - health.silent_since >= PATIENT_SECONDS:
                self.failed(turn)
            else:
                self.abandoned(turn)

    def moved_on(self, turn: Turn) -> None:
        """The endpoint works, but the next call goes to another one."""
        with self._lock:
            self._end_probe(turn)
            self._leave(turn.index)

    def abandoned(self, turn: Turn) -> None:
        """The call ended without saying anything about the endpoint."""
        with self._lock:
            self._end_probe(turn)

    def _end_probe(self, turn: Turn) -> None:
        if turn.is_probe:
            self._health[turn.index].probed_until = 0.0

    def _leave(self, index: int) -> None:
        if self._current == index:
            self._current = (index + 1) % len(self._urls)

    def _pick(self, now: float) -> int:
        count = len(self._urls)
        for offset in range(count):
            index = (self._current + offset) % count
            health = self._health[index]
            if now >= max(health.rests_until, health.probed_until):
                return index
        # All rest: the one that has rested longest, and rather one that nobody probes.
        return min(range(count), key=lambda index: self._eagerness(index, now))

    def _eagerness(self, index: int, now: float) -> tuple[bool, float]:
        health = self._health[index]
        return health.probed_until > now, health.failed_at
