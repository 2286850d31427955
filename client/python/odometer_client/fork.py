"""Fork: a child must not give the numbers that its parent gives.

Each object that holds numbers, sockets or locks registers itself when it is made, so none can be
missed because the object that made it is gone.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Renewable(Protocol):
    """What a forked child must not use as its parent left it."""

    def renew_in_child(self) -> None:
        """Starts as if just made. Threads that are not there any more may hold the locks."""


_MEMBERS: weakref.WeakSet[Renewable] = weakref.WeakSet()
_lock = threading.Lock()


def register(member: Renewable) -> None:
    """Has the member renewed in each forked child, as long as it lives."""
    with _lock:
        _MEMBERS.add(member)


def _renew_all() -> None:
    global _lock
    _lock = threading.Lock()
    for member in list(_MEMBERS):
        member.renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
