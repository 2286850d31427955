"""Backoff: how long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

MIN_CEILING_SECONDS = 0.05
MAX_CEILING_SECONDS = 2.0
MAX_RETRY_AFTER_SECONDS = 60.0


def pause_seconds(
    n_failures: int,
    retry_after: float | None,
    uniform: Callable[[float, float], float] = random.uniform,
) -> float:
    """Returns the wait after so many failures in a row: full jitter, 50 ms doubling to 2 s.

    `retry_after` is what the service asked for, if no other replica can be asked meanwhile.
    """
    doublings = max(0, min(n_failures - 1, 16))
    ceiling = min(MAX_CEILING_SECONDS, MIN_CEILING_SECONDS * 2.0**doublings)
    asked = min(max(retry_after or 0.0, 0.0), MAX_RETRY_AFTER_SECONDS)
    return asked + uniform(0, ceiling)
