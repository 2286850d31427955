"""Gate: what one thread waits for, until another one opens it."""

from __future__ import annotations

import _thread


class Gate:
    """Closed until it is opened. One thread waits.

    Each step with its lock is one step in C. A signal handler can raise in the middle of
    `threading.Event`, and a lock of the event stays held. The thread that sets the event then
    waits for ever.
    """

    def __init__(self) -> None:
        self.is_open = False
        # Held while the gate is closed.
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def open(self) -> None:
        """Lets the thread go on. May be called again."""
        self.is_open = True
        try:
            self._lock.release()
        except RuntimeError:
            pass  # It was open.

    def wait(self, seconds: float) -> None:
        """Waits until it is open, or for this long."""
        if not self.is_open:
            self._lock.acquire(timeout=max(0.0, seconds))
