"""A test with a stub of the service, and a client of it."""

import time
import unittest
from collections.abc import Callable

from odometer_client import Client, Hooks, Sequence

from .stub import Reply, Stub


class Recorder(Hooks):
    """Keeps what hooks are told."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.counts: list[int] = []
        self.drops: list[tuple[int, str]] = []

    def refill(
        self, sequence: str, endpoint: str, outcome: str, seconds: float, count: int
    ) -> None:
        self.outcomes.append(outcome)
        self.counts.append(count)

    def dropped(self, count: int, cause: str) -> None:
        self.drops.append((count, cause))


class StubCase(unittest.TestCase):
    def setUp(self) -> None:
        self.stub = Stub()
        self.addCleanup(self.stub.close)
        self.hooks = Recorder()
        self.client = self.new_client()
        self.orders: Sequence = self.client.sequence("orders")

    def new_client(self, **options: object) -> Client:
        # A busy machine may be slow.
        given: dict[str, object] = {"hooks": self.hooks, "deadline": 20.0, **options}
        client = Client(self.stub.url, **given)  # type: ignore[arg-type]
        self.addCleanup(client.close)
        return client

    def posts(self) -> list[str]:
        return [call for call in self.stub.calls if is_post(call)]

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), deadline, "the condition never came")
            time.sleep(0.001)


def once(reply: Reply, wanted: Callable[[str], bool]) -> Callable[[str], Reply | str]:
    """Answers the first call that is wanted."""
    left = [reply]
    return lambda call: left.pop() if left and wanted(call) else "go on"


def is_post(call: str) -> bool:
    return call.startswith("POST")
