"""Tests of what threads wait for, if a signal handler raises at any step of theirs."""

import sys
import threading
import unittest
from collections.abc import Callable
from types import FrameType
from typing import Any

from odometer_client.gate import Gate
from odometer_client.resolver import _Lookup
from odometer_client.waiter import ThreadWaiter

#: What takes longer waits for ever.
LIMIT_SECONDS = 20.0


class Interrupted(Exception):
    """As a signal handler raises it."""


def is_interrupted(step: int, call: Callable[[], object]) -> bool:
    """Makes a call, and raises at one of its steps. Returns whether it has so many steps."""
    n_steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal n_steps
        frame.f_trace_opcodes = True
        n_steps += 1
        if n_steps > step:
            raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    except TimeoutError:
        pass
    finally:
        sys.settrace(before)
    return False


class InterruptedTest(unittest.TestCase):
    def goes_on(self, call: Callable[[], object]) -> None:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(LIMIT_SECONDS)
        self.assertFalse(thread.is_alive(), "it waits for ever")

    def at_each_step(self, attempt: Callable[[int], bool]) -> None:
        n_steps = 0
        while attempt(n_steps):
            n_steps += 1
        self.assertGreater(n_steps, 5, "vacuous")

    def test_a_caller_who_is_interrupted_holds_nobody_up(self) -> None:
        def attempt(step: int) -> bool:
            waiter = ThreadWaiter()
            is_cut = is_interrupted(step, lambda: waiter.wait(0.0))
            # Done under the lock of the sequence.
            self.goes_on(waiter.settle)
            self.goes_on(lambda: waiter.wait(LIMIT_SECONDS * 2))
            return is_cut

        self.at_each_step(attempt)

    def test_a_gate_whose_opening_is_interrupted_can_be_opened(self) -> None:
        def attempt(step: int) -> bool:
            gate = Gate()
            is_cut = is_interrupted(step, gate.open)
            self.goes_on(gate.open)
            self.goes_on(lambda: gate.wait(LIMIT_SECONDS * 2))
            return is_cut

        self.at_each_step(attempt)

    def test_a_look_up_whose_caller_is_interrupted_reaches_the_others(self) -> None:
        def attempt(step: int) -> bool:
            lookup = _Lookup("127.0.0.1")
            is_cut = is_interrupted(step, lambda: lookup.result(0.0))
            self.goes_on(lambda: lookup.run(80))
            self.assertEqual({it[4] for it in lookup.result(0.0)}, {("127.0.0.1", 80)})
            return is_cut

        self.at_each_step(attempt)


class GateTest(unittest.TestCase):
    def test_a_closed_gate_is_waited_for_and_an_open_one_is_not(self) -> None:
        gate = Gate()
        gate.wait(0.0)
        gate.wait(-1.0)
        self.assertFalse(gate.is_open)
        thread = threading.Thread(target=gate.wait, args=(LIMIT_SECONDS * 2,), daemon=True)
        thread.start()
        thread.join(0.01)
        self.assertTrue(thread.is_alive())
        gate.open()
        thread.join(LIMIT_SECONDS)
        self.assertFalse(thread.is_alive())
        gate.open()
        for _ in range(3):
            gate.wait(LIMIT_SECONDS * 2)
        self.assertTrue(gate.is_open)
