"""Waiters: callers who found nothing, in a thread or in an event loop."""

from __future__ import annotations

import asyncio

from .buffer import Item
from .gate import Gate


class Waiter:
    """A caller who waits for a number, or until enough numbers are in memory.

    It is settled once, under the stock's lock.
    """

    def __init__(self, target: int | None = None) -> None:
        #: How many numbers must be in memory; `None` for a caller who wants one number.
        self.target = target
        self.is_settled = False
        self.item: Item | None = None
        self.error: BaseException | None = None
        #: How often `forget` had dropped numbers when its number came.
        self.n_forgets = 0

    def settle(self, item: Item | None = None, error: BaseException | None = None) -> None:
        """Ends the wait: with a number, with an error, or with neither."""
        self.item = item
        self.error = error
        self.is_settled = True
        self._wake()

    @property
    def is_gone(self) -> bool:
        """Nobody can be woken any more."""
        return False

    def _wake(self) -> None:
        raise NotImplementedError


class ThreadWaiter(Waiter):
    """A thread that waits."""

    def __init__(self, target: int | None = None) -> None:
        super().__init__(target)
        self._gate = Gate()

    def wait(self, seconds: float) -> None:
        """Waits until it is settled, or for this long."""
        self._gate.wait(seconds)

    def _wake(self) -> None:
        self._gate.open()


class LoopWaiter(Waiter):
    """A coroutine that waits. The loop of its thread goes on."""

    def __init__(self, target: int | None = None) -> None:
        super().__init__(target)
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_gone(self) -> bool:
        return self._loop.is_closed()

    async def wait(self, seconds: float) -> None:
        """Waits until it is settled, or for this long. May be cancelled."""
        await asyncio.wait([self._future], timeout=max(0.0, seconds))

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:
            pass  # The loop was closed meanwhile, and its coroutines with it.

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
