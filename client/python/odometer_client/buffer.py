"""Buffer: the numbers in memory, in runs. No I/O, no lock, no clock.

Iterators alone know which numbers are left, and nothing counts along with them. An iterator gives
a number and moves on in one step. So an exception that a signal handler raises in the middle of
a take costs a number at most, and a handler that takes numbers itself gets others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, repeat
from operator import length_hint

#: A number, and its printed form if the service printed it.
Item = tuple[int, "str | None"]


@dataclass(frozen=True, eq=False)
class Block:
    """What the runs of one refill have in common."""

    #: How many numbers it had at first.
    size: int
    #: When it was asked for.
    born: float


class Run:
    """Numbers at an even distance: first, first + step, …"""

    __slots__ = ("_step", "_values", "_items", "block")

    block: Block

    def __init__(
        self, first: int, step: int, count: int, ids: Sequence[str] | None = None
    ) -> None:
        self._step = step
        self._values = iter(range(first, first + count * step, step))
        printed: Iterable[str | None] = repeat(None) if ids is None else ids
        #: Takes from the values, which nothing else does.
        self._items: Iterator[Item] = zip(self._values, printed)

    @property
    def left(self) -> int:
        """How many numbers can be taken."""
        return length_hint(self._values)

    def take(self) -> Item | None:
        """Takes the first number."""
        return next(self._items, None)

    def take_range(self, count: int) -> range | None:
        """Takes the first numbers, if there are so many."""
        if self.left < count:
            return None
        items = list(islice(self._items, count))
        first = items[0][0] if items else 0
        values = range(first, first + count * self._step, self._step)
        # An object that takes numbers when it is collected may have come in between. Then the
        # numbers are a gap.
        is_unbroken = len(items) == count and items[-1][0] == values[-1]
        return values if is_unbroken else None


class Buffer:
    """The current block, the next one, and what a warm start added."""

    def __init__(self) -> None:
        # Each has numbers left. Copies are walked through, because a signal handler may take.
        self._runs: deque[Run] = deque()

    @property
    def left(self) -> int:
        """How many numbers can be taken."""
        left = 0
        for run in tuple(self._runs):
            left += run.left
        return left

    @property
    def current(self) -> Block | None:
        """The block of the next number."""
        runs = tuple(self._runs)
        return runs[0].block if runs else None

    @property
    def has_next(self) -> bool:
        """Whether another block is behind the current one."""
        runs = tuple(self._runs)
        return len(runs) > 1 and runs[0].block is not runs[-1].block

    def add(self, runs: Sequence[Run], born: float) -> None:
        """Adds a block behind the others. `born` is when it was asked for."""
        block = Block(sum(run.left for run in runs), born)
        for run in runs:
            run.block = block
        self._runs.extend(runs)

    def take(self) -> Item | None:
        """Takes the next number."""
        for run in tuple(self._runs):
            item = run.take()
            if not run.left:
                self._discard(run)
            if item is not None:
                return item
        return None

    def take_range(self, count: int) -> range | None:
        """Takes an unbroken range, of the first run that has so many. Nothing else moves."""
        for run in tuple(self._runs):
            values = run.take_range(count)
            if not run.left:
                self._discard(run)
            if values is not None:
                return values
        return None

    def drop_older(self, than: float) -> int:
        """Drops the blocks that were asked for before this time. Returns how many numbers."""
        dropped = 0
        for run in tuple(self._runs):
            if run.block.born >= than:
                break
            self._discard(run)
            dropped += run.left
        return dropped

    def _discard(self, run: Run) -> None:
        with suppress(ValueError):
            self._runs.remove(run)
