"""Driver: takes numbers as a test says, one step a line. Not in the wheel.

Start it with one argument, a JSON object of options. It prints `ready`, and one line for each
step that it reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import odometer_client.fork
from odometer_client import Client, Hooks, OdometerError, Sequence


class Recorder(Hooks):
    """Keeps what the hooks report. It has no lock, which another thread could hold at a fork."""

    def __init__(self) -> None:
        self.refills: deque[dict[str, Any]] = deque()
        self.waits: deque[float] = deque()
        self.drops: deque[dict[str, Any]] = deque()

    def refill(
        self, sequence: str, endpoint: str, outcome: str, seconds: float, count: int
    ) -> None:
        report = {"endpoint": endpoint, "outcome": outcome, "seconds": seconds, "count": count}
        self.refills.append(report)

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def dropped(self, count: int, cause: str) -> None:
        self.drops.append({"count": count, "cause": cause})

    def report(self) -> str:
        """Returns what was reported since the last time."""
        reports: dict[str, deque[Any]] = {
            "refills": self.refills,
            "waited": self.waits,
            "dropped": self.drops,
        }
        return json.dumps({word: drained(kept) for word, kept in reports.items()})


def drained(kept: deque[Any]) -> list[Any]:
    return [kept.popleft() for _ in range(len(kept))]


class Given:
    """Numbers in the order given, and the first error."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.error: str | None = None

    def take(self, count: int, take: Callable[[], int]) -> None:
        for _ in range(count):
            try:
                self.numbers.append(take())
            except OdometerError as error:
                self.fail(error)
                return

    def fail(self, error: BaseException) -> None:
        self.error = self.error or (error.code if isinstance(error, OdometerError) else repr(error))

    def __str__(self) -> str:
        shown = f"given {ranges(self.numbers)}"
        return shown if self.error is None else f"{shown} error {self.error}"


def ranges(numbers: Iterable[int]) -> str:
    joined: list[tuple[int, int]] = []
    for number in numbers:
        if joined and joined[-1][1] + 1 == number:
            joined[-1] = (joined[-1][0], number)
        else:
            joined.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in joined)


def in_threads(sequence: Sequence, n_threads: int, count: int) -> Given:
    parts = [Given() for _ in range(n_threads)]
    threads = [threading.Thread(target=it.take, args=(count, sequence.next)) for it in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return together(parts)


def together(parts: Iterable[Given]) -> Given:
    whole = Given()
    for part in parts:
        whole.numbers += part.numbers
        whole.error = whole.error or part.error
    return whole


def in_fork(sequence: Sequence, count: int) -> Given:
    reader, writer = os.pipe()
    child = os.fork()
    own = Given()
    if child == 0:
        try:
            own.take(count, sequence.next)
            with os.fdopen(writer, "w") as pipe:
                json.dump([own.numbers, own.error], pipe)
        finally:
            os._exit(0)
    os.close(writer)
    own.take(count, sequence.next)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    other = Given()
    other.numbers, other.error = json.loads(text) if text else ([], "child")
    return together([own, other])


async def at_once(sequence: Sequence, count: int) -> Given:
    given = Given()
    results = await asyncio.gather(
        *(sequence.anext() for _ in range(count)), return_exceptions=True
    )
    for result in results:
        if isinstance(result, BaseException):
            given.fail(result)
        else:
            given.numbers.append(result)
    return given


def unbroken(sequence: Sequence, count: int) -> str:
    try:
        found = sequence.range(count)
    except OdometerError as error:
        return f"given  error {error.code}"
    return f"given {found[0]}-{found[-1]}"


def ids(sequence: Sequence, count: int) -> str:
    words = ["ids"]
    try:
        for _ in range(count):
            words.append(sequence.next_id())
    except OdometerError as error:
        words += ["error", error.code]
    return " ".join(words)


def warm(sequence: Sequence, count: int) -> str:
    try:
        sequence.warm(count)
    except OdometerError as error:
        return f"error {error.code}"
    return "done"


def taken(sequence: Sequence, count: int, take: Callable[[], int]) -> Given:
    given = Given()
    given.take(count, take)
    return given


def forget(client: Client) -> str:
    client.forget()
    return "done"


def answer(client: Client, sequence: Sequence, recorder: Recorder, step: list[str]) -> str:
    word, numbers = step[0], [int(it) for it in step[1:]]
    steps: dict[str, Callable[..., object]] = {
        "take": lambda n: taken(sequence, n, sequence.take),
        "next": lambda n: taken(sequence, n, sequence.next),
        "async": lambda n: asyncio.run(at_once(sequence, n)),
        "range": lambda n: unbroken(sequence, n),
        "warm": lambda n: warm(sequence, n),
        "threads": lambda n_threads, n: in_threads(sequence, n_threads, n),
        "fork": lambda n: in_fork(sequence, n),
        "forget": lambda: forget(client),
        "ids": lambda n: ids(sequence, n),
        "readings": lambda: f"left {sequence.left} rate {sequence.rate:.1f}",
        "hooks": recorder.report,
    }
    return str(steps[word](*numbers)) if word in steps else "unsupported"


def main() -> None:
    options = json.loads(sys.argv[1])
    recorder = Recorder()
    max_age = options.get("max_age_ms")
    client = Client(
        options["endpoints"],
        token=options.get("token"),
        ca_file=options.get("ca_file"),
        deadline=options.get("deadline_ms", 2000) / 1000,
        refill_timeout=options.get("refill_timeout_ms", 7000) / 1000,
        max_age=None if max_age is None else max_age / 1000,
        initial_size=options.get("initial_size", 100),
        hooks=recorder,
    )
    sequence = client.sequence(options["sequence"], kind=options.get("kind"))
    if options.get("without_fork_hook"):
        # The control of a test: a child takes itself for its parent.
        odometer_client.fork.process = lambda: (0, 0)
    print("ready", flush=True)
    for line in sys.stdin:
        step = line.split()
        if step == ["exit"]:
            print("bye", flush=True)
            return
        print(answer(client, sequence, recorder, step or [""]), flush=True)


if __name__ == "__main__":
    main()
