"""Fork: what each process has for itself, so that a child gives no number of its parent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")
_n_forks = 0


def _count_fork() -> None:
    global _n_forks
    _n_forks += 1


if hasattr(os, "register_at_fork"):
    # In a process namespace of its own, a child can have the process id of its parent.
    os.register_at_fork(after_in_child=_count_fork)


def process() -> tuple[int, int]:
    """Returns what differs between a process and the one that it was forked from.

    The process id also tells forks that C code makes, which run no hook of Python.
    """
    return os.getpid(), _n_forks


class PerProcess(Generic[_T]):
    """A value that each process makes for itself at its first use.

    A forked child uses nothing of its parent: threads that are not there any more may hold the
    locks, and both would give the same numbers.
    """

    def __init__(self, make: Callable[[_T | None], _T]) -> None:
        #: Makes the value of a process. A child gets the one of its parent, to let go of it.
        self._make = make
        self._values: dict[tuple[int, int], _T] = {}

    def get(self) -> _T:
        """Returns the value of this process."""
        here = process()
        value = self._values.get(here)
        return self._first(here) if value is None else value

    def _first(self, here: tuple[int, int]) -> _T:
        parents = [it for it in tuple(self._values.items()) if it[0] != here]
        made = self._make(parents[-1][1] if parents else None)
        # One step, so that threads that come at once get the same one.
        value = self._values.setdefault(here, made)
        for process_before, _ in parents:
            self._values.pop(process_before, None)
        return value
