"""Thread: starts work in the background."""

from __future__ import annotations

import _thread
from collections.abc import Callable

from .errors import OdometerError


def start(work: Callable[[], None]) -> None:
    """Runs this in a thread, for which the end of the program does not wait. Raises
    `OdometerError` if no thread is left, or the interpreter ends.

    It is one step: an exception of a signal handler leaves a `threading.Thread` half started.
    """
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError as error:
        raise OdometerError(f"no thread could be started: {error}") from error
