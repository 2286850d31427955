"""Tests of forked processes: a child gives no number of its parent, and waits for no lock of it."""

import asyncio
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest import mock

import odometer_client.fork
from odometer_client import Client, Empty, Sequence
from odometer_client.fork import PerProcess

from .case import StubCase
from .stub import Stub

N_EACH = 20
#: A child that does not answer in this time hangs.
LIMIT_SECONDS = 20.0


#: Takes numbers in a process that C code forks, so that no hook of Python runs in the child. The
#: parent has one thread: a lock of the interpreter that another one holds would stop the child.
FORK_BY_C = """
import ctypes, json, os, sys, time
from odometer_client import Client

orders = Client(sys.argv[1], deadline=20.0).sequence("orders")
orders.warm(100)
while len(sys._current_frames()) > 1:
    time.sleep(0.001)
reader, writer = os.pipe()
child = ctypes.PyDLL(None).fork()
own = [orders.take() for _ in range(20)] if child else [orders.next() for _ in range(20)]
if not child:
    os.write(writer, json.dumps(own).encode())
    os._exit(0)
print(json.dumps([own, json.loads(os.read(reader, 65536))]))
"""


class Child:
    """A forked process that does one thing, and tells what came of it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._reader, writer = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            try:
                os.write(writer, json.dumps(work()).encode())
            finally:
                os._exit(0)
        os.close(writer)

    def result(self) -> Any:
        """Returns what came of it. Raises `TimeoutError` if nothing came in time."""
        try:
            if not select.select([self._reader], [], [], LIMIT_SECONDS)[0]:
                raise TimeoutError("the child hangs")
            text = os.read(self._reader, 65536)
        finally:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            os.close(self._reader)
        return json.loads(text)


@contextmanager
def held(*locks: Any) -> Iterator[None]:
    """Holds locks in another thread."""
    are_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            are_held.set()
            is_over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    are_held.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def taken(orders: Sequence, count: int = N_EACH) -> list[int]:
    return [orders.next() for _ in range(count)]


@unittest.skipUnless(hasattr(os, "fork"), "there is no fork here")
class ForkTest(StubCase):
    def setUp(self) -> None:
        super().setUp()
        self.orders.warm(100)

    def repeated(self, orders: Sequence) -> int:
        """Returns how many numbers a child and its parent both got."""
        child = Child(lambda: taken(orders))
        own = taken(orders)
        others = child.result()
        self.assertEqual((len(own), len(others)), (N_EACH, N_EACH))
        return len(set(own) & set(others))

    def test_a_forked_child_gets_numbers_of_its_own(self) -> None:
        self.assertEqual(self.repeated(self.orders), 0)

    def test_a_child_that_c_code_forks_gets_numbers_of_its_own(self) -> None:
        command = [sys.executable, "-c", FORK_BY_C, self.stub.url]
        said = subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS, check=True)
        own, others = json.loads(said.stdout)
        self.assertEqual((len(own), len(others)), (N_EACH, N_EACH))
        self.assertEqual(set(own) & set(others), set())

    def test_a_child_with_the_process_id_of_its_parent_gets_numbers_of_its_own(self) -> None:
        with mock.patch.object(os, "getpid", return_value=1):
            orders = self.new_client().sequence("orders")
            orders.warm(100)
            self.assertEqual(self.repeated(orders), 0)

    def test_a_child_that_takes_itself_for_its_parent_repeats_its_numbers(self) -> None:
        with mock.patch.object(odometer_client.fork, "process", return_value=(0, 0)):
            orders = self.new_client().sequence("orders")
            orders.warm(100)
            self.assertEqual(self.repeated(orders), N_EACH)

    def test_a_grandchild_gets_numbers_of_its_own(self) -> None:
        def work() -> list[list[int]]:
            own = taken(self.orders, 5)
            child = Child(lambda: taken(self.orders, 5))
            return [own, taken(self.orders, 5), child.result()]

        child = Child(work)
        numbers = [*taken(self.orders, 5), *(it for each in child.result() for it in each)]
        self.assertEqual((len(numbers), len(set(numbers))), (20, 20))

    def test_a_sequence_whose_client_is_gone_is_as_safe(self) -> None:
        orders = Client(self.stub.url, deadline=20.0).sequence("orders")
        self.addCleanup(lambda: orders._service.get().close_idle())
        gc.collect()
        orders.warm(100)
        self.assertEqual(self.repeated(orders), 0)

    def test_a_child_waits_for_no_lock_that_a_thread_held_at_the_fork(self) -> None:
        stock, service = self.orders._stock.get(), self.client._service.get()
        with held(stock._lock, service.endpoints._lock):
            child = Child(lambda: [*taken(self.orders, 150), *self.orders.range(500)])
        own = taken(self.orders)
        others = child.result()
        self.assertEqual((len(others), len(set(own) & set(others))), (650, 0))

    def test_a_child_does_not_wait_for_the_refill_of_its_parent(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)
        process = os.getpid()
        self.stub.answer = lambda call: "go on" if gate.wait(20) else None
        for _ in range(90):
            self.orders.next()
        self.until(lambda: len(self.posts()) == 2)
        self.assertEqual(os.getpid(), process)
        other = Stub()
        self.addCleanup(other.close)
        self.client._urls[:] = [other.url]
        child = Child(lambda: taken(self.orders))
        self.assertEqual(child.result(), list(range(1, N_EACH + 1)))

    def test_a_child_does_not_read_the_definition_again(self) -> None:
        Child(lambda: taken(self.orders)).result()
        self.assertEqual(self.stub.calls.count("GET orders"), 1)

    def test_threads_of_a_child_share_its_numbers(self) -> None:
        def work() -> list[int]:
            parts: list[list[int]] = [[] for _ in range(4)]
            threads = [
                threading.Thread(target=lambda own=own: own.extend(taken(self.orders)))
                for own in parts
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return [number for part in parts for number in part]

        numbers = Child(work).result()
        self.assertEqual((len(numbers), len(set(numbers))), (4 * N_EACH, 4 * N_EACH))

    @unittest.skipUnless(os.path.isdir("/proc/self/fd"), "sockets cannot be listed here")
    def test_a_child_has_no_socket_of_its_parent(self) -> None:
        for forgets in (False, True):
            # One connection is idle, and one is in use at the fork.
            gate = threading.Event()
            self.addCleanup(gate.set)
            n_calls = len(self.stub.calls)
            self.stub.answer = lambda call: "go on" if gate.wait(20) else None
            thread = threading.Thread(target=self.orders.range, args=(500,))
            thread.start()
            self.until(lambda: len(self.stub.calls) > n_calls)
            self.stub.answer = lambda call: "go on"
            self.orders.range(600)
            if forgets:
                self.client.forget()
            mine = {
                os.readlink(f"/proc/self/fd/{cast(Any, it.sock)._socket.fileno()}")
                for it in self.client._service.get()._transport._open
                if it.sock is not None
            }
            self.assertEqual(len(mine), 1 if forgets else 2)

            def work() -> list[str]:
                self.orders.next()
                return [link for link in sockets() if link in mine]

            self.assertEqual(Child(work).result(), [], forgets)
            gate.set()
            thread.join()


def sockets() -> list[str]:
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            pass
    return links


class ForkInACallTest(StubCase):
    """A hook or a signal handler forks in the middle of a call. This test goes on as the child."""

    def setUp(self) -> None:
        super().setUp()
        process = mock.patch.object(odometer_client.fork, "process", return_value=(1, 0))
        self.process = process.start()
        self.addCleanup(process.stop)

    def fork(self) -> None:
        self.process.return_value = (self.process.return_value[0] + 1, 0)

    def forked_in_a_take(self) -> tuple[Sequence, int]:
        """Returns a sequence whose next call forks, and the first number that is not in memory."""
        orders = self.new_client().sequence("orders")
        orders.warm(100)
        stock = orders._stock.get()
        # The refill looks at the clock, too.
        self.until(lambda: stock._flight is None)

        def clock() -> float:
            stock._clock = time.monotonic
            self.fork()
            return time.monotonic()

        stock._clock = clock
        return orders, self.stub.next

    def test_a_child_does_not_give_what_was_taken_from_memory(self) -> None:
        orders, first = self.forked_in_a_take()
        self.assertEqual(orders.next(), first)
        orders, first = self.forked_in_a_take()
        self.assertEqual(orders.range(5), range(first, first + 5))
        orders, first = self.forked_in_a_take()
        self.assertEqual(asyncio.run(orders.anext()), first)
        orders, first = self.forked_in_a_take()
        with self.assertRaises(Empty):
            orders.take()

    def test_a_child_does_not_give_the_reply_to_a_call_of_its_parent(self) -> None:
        orders = self.new_client().sequence("orders", period="p")
        forks = [self.fork]

        def reply(call: str) -> str:
            if forks:
                forks.pop()()
            return "go on"

        self.stub.answer = reply
        self.assertGreater(orders.next(), 1)
        forks.append(self.fork)
        first = self.stub.next
        self.assertEqual(orders.range(5), range(first + 5, first + 10))


class PerProcessTest(unittest.TestCase):
    def test_threads_that_come_at_once_get_the_same_value(self) -> None:
        gate = threading.Barrier(8)

        def make(before: object) -> object:
            gate.wait(20)
            return object()

        value = PerProcess(make)
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(value.get())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(found), len(set(map(id, found)))), (8, 1))

    def test_the_value_of_the_process_before_is_let_go_and_no_other(self) -> None:
        given: list[str | None] = []

        def make(before: str | None) -> str:
            given.append(before)
            return f"value {len(given)}"

        value = PerProcess(make)
        for process in ((1, 0), (1, 0), (2, 0), (2, 1)):
            with mock.patch.object(odometer_client.fork, "process", return_value=process):
                value.get()
        self.assertEqual(given, [None, "value 1", "value 2"])
        self.assertEqual(list(value._values.values()), ["value 3"])

    def test_a_thread_that_comes_late_lets_go_of_nothing(self) -> None:
        given: list[object] = []

        def make(before: object) -> object:
            given.append(before)
            return object()

        value = PerProcess(make)
        first = value.get()
        self.assertIs(value._first(odometer_client.fork.process()), first)
        self.assertEqual(given, [None, None])
