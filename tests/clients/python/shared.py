"""Numbers of a module: a process that imports it has numbers in memory, and can fork then."""

from __future__ import annotations

import os
import time

import odometer_client.fork
from odometer_client import Client

if os.environ.get("WITHOUT_FORK_CHECK"):
    # The control of a test: a child takes itself for its parent.
    odometer_client.fork.process = lambda: (0, 0)

#: The process that imported this.
MAKER = os.getpid()

orders = Client.from_environment(initial_size=2_000, deadline=30.0).sequence("orders")
orders.warm(2_000, 30.0)
first = orders.next()


def take(count: int) -> tuple[int, int, list[int]]:
    """Takes numbers in a process. Returns the process, the one that imported this module, and the
    numbers."""
    numbers = []
    for _ in range(count):
        numbers.append(orders.next())
        # So that other processes get work, too.
        time.sleep(0.005)
    return os.getpid(), MAKER, numbers


def show(process: int, numbers: list[int]) -> None:
    """Prints numbers for the test."""
    for number in numbers:
        print(process, number)
