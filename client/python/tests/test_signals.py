"""Tests of signals whose handlers raise, as time limits of tasks do, or take numbers themselves."""

import faulthandler
import logging
import os
import random
import signal
import sys
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any
from unittest import mock

from odometer_client import Client, Empty, Sequence
from odometer_client.waiter import Waiter

from .case import StubCase

#: How long signals come.
SECONDS = 1.0
#: A thread that stands still for so long never goes on.
LIMIT_SECONDS = 20.0


class TimeLimit(Exception):
    """As the time limit of a task raises it."""


class Watch:
    """Ends the process if nothing moves: a deadlock ends by nothing else."""

    def __init__(self, progress: Callable[[], int]) -> None:
        self._progress = progress
        self._is_over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        last = -1
        while not self._is_over.wait(LIMIT_SECONDS):
            now = self._progress()
            if now == last:
                faulthandler.dump_traceback()
                os._exit(1)
            last = now

    def end(self) -> None:
        self._is_over.set()


@unittest.skipUnless(hasattr(signal, "setitimer"), "there are no timers here")
class SignalTest(StubCase):
    def setUp(self) -> None:
        super().setUp()
        before = signal.signal(signal.SIGALRM, self.handle)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        # What the standard library says about exceptions while it closes a socket.
        said = mock.patch.object(sys, "unraisablehook", id)
        said.start()
        self.addCleanup(said.stop)
        warnings.simplefilter("ignore", ResourceWarning)
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        self.given: list[int] = []
        #: How many times the handler still acts.
        self.n_left = 0
        self.act: Callable[[], object] = self.raise_limit

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.n_left > 0:
            self.n_left -= 1
            self.act()

    def raise_limit(self) -> None:
        raise TimeLimit

    def under_signals(self, call: Callable[[], int]) -> int:
        """Repeats a call until the time is over. Returns how many times the handler raised."""
        n_raised = 0
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            try:
                self.repeat_until_signal(call, until)
            except TimeLimit:
                n_raised += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        return n_raised

    def repeat_until_signal(self, call: Callable[[], int], until: float) -> None:
        try:
            # The second one comes while the first one is handled.
            self.n_left = random.choice((1, 2))
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 5e-4), 1e-4)
            while self.n_left and time.monotonic() < until:
                with suppress(Empty):
                    self.given.append(call())
        finally:
            self.n_left = 0

    def check(self, orders: Sequence) -> None:
        """The sequence goes on, and gave no number twice and none that is not its own."""
        self.given += [orders.next() for _ in range(150)]
        self.assertEqual(len(set(self.given)), len(self.given))
        self.assertGreater(min(self.given), 0)
        self.assertLess(max(self.given), self.stub.next)

    def test_a_handler_that_raises_repeats_no_number_and_stops_nothing(self) -> None:
        self.orders.next()
        calls: list[Callable[[Sequence], int]] = [
            Sequence.take,
            Sequence.next,
            lambda orders: orders.range(2)[0],
        ]
        for call in calls:
            n_raised = self.under_signals(lambda: call(self.orders))
            self.assertGreater(n_raised, 10, "vacuous")
            self.check(self.orders)

    def test_a_call_that_is_interrupted_leaves_no_replica_unasked(self) -> None:
        client = Client([self.stub.url] * 2, deadline=20.0)
        self.addCleanup(client.close)
        orders = client.sequence("orders", period="p")
        n_raised = self.under_signals(orders.next)
        self.assertGreater(n_raised, 10, "vacuous")
        self.check(orders)

    def test_a_handler_that_takes_a_number_gets_another_one(self) -> None:
        orders = self.new_client(initial_size=10_000).sequence("orders")
        orders.warm(10_000)
        nested: list[int] = []

        def take() -> None:
            with suppress(Empty):
                nested.append(orders.take())

        self.act = take
        watch = Watch(lambda: len(self.given))
        self.under_signals(orders.take)
        watch.end()
        self.assertGreater(len(nested), 10, "vacuous")
        self.given += nested
        self.check(orders)

    def test_a_caller_who_is_interrupted_does_not_stay_in_line(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.stub.answer = lambda call: "go on" if gate.wait(20) else None
        stock = self.orders._stock.get()

        def limit() -> None:
            if stock._line or stock._warming:
                raise TimeLimit
            self.n_left = 1
            signal.setitimer(signal.ITIMER_REAL, 0.01)

        self.act = limit
        calls: list[Callable[[], object]] = [self.orders.next, lambda: self.orders.warm(10)]
        for call in calls:
            self.n_left = 1
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            with self.assertRaises(TimeLimit):
                call()
            self.n_left = 0
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.assertEqual((list(stock._line), stock._warming), ([], []))
        gate.set()
        self.assertEqual(self.orders.next(), 1)

    def test_a_number_for_a_caller_who_is_interrupted_is_told(self) -> None:
        stock: Any = self.orders._stock.get()
        withdraw = stock.withdraw

        def interrupted(waiter: Waiter) -> bool:
            stock.withdraw = withdraw
            raise TimeLimit

        stock.withdraw = interrupted
        with self.assertRaises(TimeLimit):
            self.orders.next()
        self.assertEqual(self.hooks.drops, [(1, "late")])
