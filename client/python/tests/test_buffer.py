"""Tests of the numbers in memory."""

import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from odometer_client.buffer import Buffer, Item, Run


class Interruption(BaseException):
    """As a signal handler raises it."""


@contextmanager
def at_step(n: int, act: Callable[[], object]) -> Iterator[None]:
    """Acts before step `n` of the interpreter in the buffer, as a signal handler does."""
    n_left = [n]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith("buffer.py"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            n_left[0] -= 1
            if n_left[0] == -1:
                act()
        return trace

    before = sys.gettrace()
    # Python 3.12 looks for such a frame when the tracing begins.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def interrupt() -> None:
    raise Interruption


def filled() -> tuple[Buffer, set[int]]:
    """Returns two blocks, of runs with one number and more, and their numbers."""
    buffer = Buffer()
    buffer.add([Run(1, 1, 1), Run(11, 1, 2)], born=0)
    buffer.add([Run(21, 2, 3)], born=1)
    return buffer, {1, 11, 12, 21, 23, 25}


def taken(buffer: Buffer) -> list[Item]:
    items: list[Item] = []
    while (item := buffer.take()) is not None:
        items.append(item)
    return items


class BufferTest(unittest.TestCase):
    def test_numbers_come_in_the_order_of_their_replies(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 2), Run(11, 1, 1)], born=0)
        buffer.add([Run(5, 1, 2)], born=1)
        self.assertEqual([value for value, _ in taken(buffer)], [1, 2, 11, 5, 6])
        self.assertIsNone(buffer.take())

    def test_steps_and_the_highest_numbers_are_counted_right(self) -> None:
        buffer = Buffer()
        highest = 2**63 - 1
        buffer.add([Run(highest - 14, 7, 3), Run(3, -1, 3)], born=0)
        self.assertEqual(buffer.left, 6)
        values = [value for value, _ in taken(buffer)]
        self.assertEqual(values, [highest - 14, highest - 7, highest, 3, 2, 1])

    def test_each_number_has_its_printed_form(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 4, ["a", "b", "c", "d"]), Run(9, 1, 1, ["e"])], born=0)
        self.assertEqual(buffer.take(), (1, "a"))
        self.assertEqual(buffer.take_range(2), range(2, 4))
        self.assertEqual(taken(buffer), [(4, "d"), (9, "e")])

    def test_a_range_that_does_not_fit_takes_nothing(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 5)], born=0)
        buffer.add([Run(6, 1, 5)], born=0)
        self.assertIsNone(buffer.take_range(6))
        self.assertEqual(buffer.left, 10)

    def test_a_range_leaves_the_rest_of_a_smaller_run(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 2, 3), Run(101, 2, 8)], born=0)
        self.assertEqual(list(buffer.take_range(4) or ()), [101, 103, 105, 107])
        self.assertEqual(buffer.take_range(3), range(1, 7, 2))
        self.assertEqual([value for value, _ in taken(buffer)], [109, 111, 113, 115])

    def test_no_number_is_taken_twice_whatever_the_calls(self) -> None:
        buffer = Buffer()
        seen: list[int] = []
        for at in range(50):
            buffer.add([Run(at * 100, 1, 7), Run(at * 100 + 50, 3, 9)], born=at)
            for n in (3, 8, 1, 5):
                seen += buffer.take_range(n) or ()
            seen += [item[0] for item in (buffer.take(), buffer.take()) if item]
        seen += [value for value, _ in taken(buffer)]
        self.assertEqual(len(seen), 50 * 16)
        self.assertEqual(len(set(seen)), len(seen))

    def test_a_used_block_is_not_the_current_one(self) -> None:
        buffer, _ = filled()
        for _ in range(3):
            self.assertTrue(buffer.has_next)
            buffer.take()
        self.assertFalse(buffer.has_next)
        current = buffer.current
        self.assertEqual((current and current.size, buffer.left), (3, 3))

    def test_old_blocks_are_dropped_and_counted(self) -> None:
        buffer = Buffer()
        buffer.add([Run(1, 1, 5)], born=10)
        buffer.add([Run(6, 1, 5)], born=20)
        buffer.take()
        self.assertEqual(buffer.drop_older(10), 0)
        self.assertEqual(buffer.drop_older(11), 4)
        self.assertEqual((buffer.left, buffer.take()), (5, (6, None)))


class InterruptedBufferTest(unittest.TestCase):
    """A signal handler runs between any two steps of the interpreter."""

    calls: tuple[Callable[[Buffer], object], ...] = (
        Buffer.take,
        lambda buffer: buffer.take_range(2),
        lambda buffer: buffer.take_range(1),
        lambda buffer: buffer.drop_older(0.5),
    )

    def test_an_exception_anywhere_repeats_no_number_and_invents_none(self) -> None:
        for at, call in enumerate(self.calls):
            n_interrupted = 0
            for step in range(10_000):
                buffer, numbers = filled()
                try:
                    with at_step(step, interrupt):
                        call(buffer)
                    break
                except Interruption:
                    n_interrupted += 1
                left = buffer.left
                given = [value for value, _ in taken(buffer)]
                self.assertEqual(left, len(given), (at, step))
                self.assertEqual(sorted(set(given)), sorted(given), (at, step))
                self.assertLessEqual(set(given), numbers, (at, step))
            self.assertGreater(n_interrupted, 10)

    def test_a_handler_that_takes_numbers_gets_others(self) -> None:
        for at, call in enumerate(self.calls):
            n_steps = 0
            for step in range(10_000):
                buffer, numbers = filled()
                given: list[int] = []

                def take() -> None:
                    item = buffer.take()
                    given.extend(item[:1] if item else ())

                with at_step(step, take):
                    result: Any = call(buffer)
                if not given:
                    break
                n_steps += 1
                if isinstance(result, range):
                    given += result
                elif isinstance(result, tuple):
                    given.append(result[0])
                given += [value for value, _ in taken(buffer)]
                self.assertEqual(sorted(set(given)), sorted(given), (at, step))
                self.assertLessEqual(set(given), numbers, (at, step))
            self.assertGreater(n_steps, 10)
