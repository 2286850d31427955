"""Buffer: the numbers in memory, in blocks of runs. No I/O, no lock, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

#: A number, and its printed form if the service printed it.
Item = tuple[int, "str | None"]


class Run:
    """Numbers at an even distance: first, first + step, …"""

    __slots__ = ("first", "step", "count", "ids")

    def __init__(
        self, first: int, step: int, count: int, ids: Sequence[str] | None = None
    ) -> None:
        self.first = first
        self.step = step
        self.count = count
        #: Printed forms, the last number's first, so that taking one is cheap.
        self.ids = None if ids is None else list(reversed(ids))

    def take(self) -> Item:
        """Takes the first number. There must be one."""
        value = self.first
        self.first += self.step
        self.count -= 1
        return value, None if self.ids is None else self.ids.pop()

    def take_range(self, count: int) -> range:
        """Takes the first numbers. There must be so many."""
        values = range(self.first, self.first + count * self.step, self.step)
        self.first += count * self.step
        self.count -= count
        if self.ids is not None:
            del self.ids[len(self.ids) - count :]
        return values


class Block:
    """The numbers of one refill, in the order of its reply."""

    __slots__ = ("runs", "size", "born")

    def __init__(self, runs: Sequence[Run], born: float) -> None:
        self.runs = deque(run for run in runs if run.count > 0)
        self.size = sum(run.count for run in self.runs)
        self.born = born


class Buffer:
    """The current block, the next one, and what a warm start added."""

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        #: How many numbers can be taken.
        self.left = 0

    @property
    def n_blocks(self) -> int:
        return len(self._blocks)

    @property
    def current_size(self) -> int:
        """Returns how many numbers the current block had at first."""
        return self._blocks[0].size if self._blocks else 0

    def add(self, runs: Sequence[Run], born: float) -> None:
        """Adds a block behind the others. `born` is when it was asked for."""
        block = Block(runs, born)
        if block.size:
            self._blocks.append(block)
            self.left += block.size

    def take(self) -> Item | None:
        """Takes the next number."""
        if not self.left:
            return None
        run = self._blocks[0].runs[0]
        item = run.take()
        self.left -= 1
        if not run.count:
            self._discard_empty()
        return item

    def take_range(self, count: int) -> range | None:
        """Takes an unbroken range, of the first run that has so many. Nothing else moves."""
        for block in self._blocks:
            for run in block.runs:
                if run.count >= count:
                    values = run.take_range(count)
                    self.left -= count
                    if not run.count:
                        self._discard_empty()
                    return values
        return None

    def drop_older(self, than: float) -> int:
        """Drops the blocks that were asked for before this time. Returns how many numbers."""
        before = self.left
        while self._blocks and self._blocks[0].born < than:
            self.left -= sum(run.count for run in self._blocks.popleft().runs)
        return before - self.left

    def _discard_empty(self) -> None:
        for block in self._blocks:
            if any(not run.count for run in block.runs):
                block.runs = deque(run for run in block.runs if run.count)
        if any(not block.runs for block in self._blocks):
            self._blocks = deque(block for block in self._blocks if block.runs)
