"""Tests of who gets which number, and of the one refill in flight. No thread of the client runs:
the tests are the refill."""

import asyncio
import threading
import unittest

from odometer_client.buffer import Run
from odometer_client.definition import UNBUFFERED, Definition
from odometer_client.errors import OdometerError, Refused, Unreachable
from odometer_client.hooks import Hooks, SafeHooks
from odometer_client.stock import Flight, Stock
from odometer_client.waiter import LoopWaiter, ThreadWaiter

LOST = Unreachable("no reply", "http://a", timed_out=False)
GONE = Refused(status=410, code="sequence_retired", detail="It is.", endpoint="http://a")


class Drops(Hooks):
    def __init__(self) -> None:
        self.drops: list[tuple[int, str]] = []

    def dropped(self, count: int, cause: str) -> None:
        self.drops.append((count, cause))


class StockTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 1000.0
        self.hooks = Drops()
        self.stock = self.new_stock()

    def new_stock(self, max_age: float | None = None) -> Stock:
        self.flights: list[Flight] = []
        hooks = SafeHooks(self.hooks)
        stock = Stock(hooks, initial_size=100, max_age=max_age, clock=lambda: self.now)
        stock.definition = Definition(is_buffered=True, prints_values=True)
        stock.launch = self.flights.append
        return stock

    def deliver(self, first: int, count: int) -> None:
        flight = self.flights[-1]
        self.stock.first_pause(flight)
        self.assertIsNotNone(self.stock.wanted(flight))
        self.stock.deliver(flight, [Run(first, 1, count)], self.now, self.now)
        while self.stock.wanted(flight) is not None:
            self.fail("one reply was not enough")

    def wait(self) -> ThreadWaiter:
        waiter = ThreadWaiter()
        self.assertIsNone(self.stock.take_or_wait(waiter))
        return waiter

    def test_a_take_from_nothing_starts_one_refill(self) -> None:
        for _ in range(5):
            self.assertIsNone(self.stock.take())
        self.assertEqual(len(self.flights), 1)
        self.deliver(1, 100)
        self.assertEqual(self.stock.take(), (1, None))

    def test_a_prefetch_starts_below_twenty_per_cent_and_once(self) -> None:
        self.stock.take()
        self.deliver(1, 100)
        for _ in range(80):
            self.stock.take()
        self.assertEqual(len(self.flights), 1)
        self.stock.take()
        self.stock.take()
        self.assertEqual(len(self.flights), 2)

    def test_there_are_two_blocks_at_most(self) -> None:
        self.stock.take()
        self.deliver(1, 100)
        for _ in range(85):
            self.stock.take()
        self.deliver(101, 1)
        for _ in range(10):
            self.stock.take()
        self.assertEqual(len(self.flights), 2)

    def test_waiters_are_served_in_order_and_new_callers_do_not_overtake(self) -> None:
        waiters = [self.wait() for _ in range(3)]
        flight = self.flights[-1]
        self.stock.deliver(flight, [Run(1, 1, 2)], self.now, self.now)
        late = self.wait()
        self.stock.deliver(flight, [Run(3, 1, 9)], self.now, self.now)
        found = [waiter.item for waiter in (*waiters, late)]
        self.assertEqual(found, [(1, None), (2, None), (3, None), (4, None)])

    def test_giving_up_costs_nobody_a_number_and_ends_no_refill(self) -> None:
        first, second = self.wait(), self.wait()
        self.assertTrue(self.stock.withdraw(first))
        self.deliver(1, 100)
        self.assertFalse(self.stock.withdraw(second))
        self.assertEqual((first.item, second.item), (None, (1, None)))
        self.assertEqual(self.stock.take(), (2, None))

    def test_a_caller_whose_loop_is_closed_costs_no_number(self) -> None:
        async def begin() -> LoopWaiter:
            waiter = LoopWaiter()
            self.assertIsNone(self.stock.take_or_wait(waiter))
            return waiter

        gone = asyncio.run(begin())
        self.deliver(1, 100)
        self.assertEqual((gone.item, self.stock.take()), (None, (1, None)))

    def test_a_failed_refill_is_not_in_flight_any_more(self) -> None:
        self.stock.take()
        for failure in (GONE, OdometerError("a defect")):
            flight = self.flights[-1]
            self.assertIsNone(self.stock.failed(flight, failure, is_sole=True))
            self.stock.take()
            self.assertIsNot(self.flights[-1], flight)
        # However a thread ends: its flight ends with it.
        flight = self.flights[-1]
        self.stock.end(flight, ValueError("a defect"))
        self.stock.take()
        self.assertIsNot(self.flights[-1], flight)

    def test_without_its_end_a_flight_would_block_the_next_one(self) -> None:
        self.stock.take()
        flight = self.flights[-1]
        self.stock.first_pause(flight)
        self.now += 3600
        self.stock.take()
        self.assertEqual(len(self.flights), 1)

    def test_a_flight_whose_thread_never_began_is_replaced(self) -> None:
        waiter = self.wait()
        self.now += 0.9
        self.stock.keep_on()
        self.assertEqual(len(self.flights), 1)
        self.now += 0.2
        self.stock.keep_on()
        self.assertEqual(len(self.flights), 2)
        self.assertIsNone(self.stock.wanted(self.flights[0]))
        self.deliver(1, 100)
        self.assertEqual(waiter.item, (1, None))

    def test_an_interrupted_start_is_no_refill_in_flight(self) -> None:
        def interrupt(flight: Flight) -> None:
            self.flights.append(flight)
            raise KeyboardInterrupt

        self.stock.launch = interrupt
        with self.assertRaises(KeyboardInterrupt):
            self.stock.take()
        self.stock.launch = self.flights.append
        waiter = self.wait()
        self.assertEqual(len(self.flights), 2)
        self.assertIsNone(self.stock.wanted(self.flights[0]))
        self.deliver(1, 100)
        self.assertEqual(waiter.item, (1, None))

    def test_a_thread_that_cannot_start_is_an_error_of_those_who_wait(self) -> None:
        def fail(flight: Flight) -> None:
            raise OdometerError("no thread")

        self.stock.launch = fail
        waiter = self.wait()
        self.assertIsInstance(waiter.error, OdometerError)
        self.assertIs(self.stock.last_error, waiter.error)
        self.stock.launch = self.flights.append
        self.stock.take()
        self.assertEqual(len(self.flights), 1)

    def test_a_thread_that_comes_back_into_a_take_gets_another_number(self) -> None:
        self.stock.take()
        self.deliver(1, 100)
        nested: list[int] = []

        def clock() -> float:
            # Called under the lock. A signal handler can run there, too.
            self.stock._clock = lambda: self.now
            item = self.stock.take()
            nested.extend(item[:1] if item else ())
            return self.now

        def take() -> None:
            self.stock._clock = clock
            item = self.stock.take()
            nested.extend(item[:1] if item else ())

        # A deadlock must not hang the tests.
        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        thread.join(10)
        self.assertEqual(nested, [1, 2])

    def test_a_refill_is_tried_again_and_ends_if_nobody_waits(self) -> None:
        self.stock.take()
        flight = self.flights[-1]
        pauses = [self.stock.failed(flight, LOST, is_sole=True) for _ in range(10)]
        self.assertNotIn(None, pauses[:9])
        self.assertIsNone(pauses[9])
        waiter = self.wait()
        flight = self.flights[-1]
        pauses = [self.stock.failed(flight, LOST, is_sole=True) for _ in range(25)]
        self.assertNotIn(None, pauses)
        self.assertFalse(waiter.is_settled)

    def test_after_a_refusal_a_caller_who_waits_ends_the_pause(self) -> None:
        for failure, hurries in ((GONE, True), (LOST, False)):
            self.stock = self.new_stock()
            self.stock.take()
            for _ in range(10):
                self.stock.failed(self.flights[-1], failure, is_sole=True)
            self.stock.take()
            flight = self.flights[-1]
            self.assertFalse(flight.hurry.is_open)
            self.wait()
            self.assertEqual(flight.hurry.is_open, hurries)

    def test_a_refusal_reaches_all_who_wait(self) -> None:
        waiters = [self.wait() for _ in range(3)]
        self.stock.failed(self.flights[-1], GONE, is_sole=True)
        self.assertEqual([it.error for it in waiters], [GONE] * 3)

    def test_what_was_on_its_way_is_dropped_by_forget(self) -> None:
        waiter = self.wait()
        flight = self.flights[-1]
        self.stock.drop_all("forget")
        self.stock.deliver(flight, [Run(1, 1, 100)], self.now, self.now)
        self.assertFalse(waiter.is_settled)
        self.assertEqual(self.hooks.drops, [(100, "forget")])
        self.deliver(101, 100)
        self.assertEqual(waiter.item, (101, None))
        self.stock.drop_all("forget")
        self.assertEqual(self.hooks.drops[-1], (99, "forget"))

    def test_those_who_wait_make_calls_if_a_flight_that_was_dropped_learns_it(self) -> None:
        self.stock.definition = None
        waiter, warming = self.wait(), ThreadWaiter(10)
        self.stock.warm(warming)
        dropped = self.flights[-1]
        self.stock.drop_all("forget")
        # The present flight is still in its pause.
        self.stock.learned(dropped, UNBUFFERED, [Run(1, 1, 1)], self.now)
        self.assertTrue(waiter.is_settled and warming.is_settled)
        self.assertEqual((waiter.item, waiter.error), (None, None))
        self.assertEqual(self.hooks.drops, [(1, "forget")])
        self.assertIsNone(self.stock.wanted(self.flights[-1]))
        self.assertIsNone(self.stock._flight)

    def test_closing_is_an_error_of_those_who_wait_and_no_reason_to_refill(self) -> None:
        waiter = self.wait()
        warming = ThreadWaiter(10)
        self.stock.warm(warming)
        flight = self.flights[-1]
        self.stock.drop_all("close", OdometerError("closed"))
        self.assertEqual([str(it.error) for it in (waiter, warming)], ["closed"] * 2)
        self.assertEqual(len(self.flights), 1)
        self.stock.deliver(flight, [Run(1, 1, 100)], self.now, self.now)
        self.assertEqual(self.hooks.drops, [(100, "close")])

    def test_old_numbers_are_dropped(self) -> None:
        self.stock = self.new_stock(max_age=10.0)
        self.stock.take()
        self.deliver(1, 100)
        self.now += 9.9
        self.assertEqual(self.stock.take(), (1, None))
        self.now += 0.2
        self.assertIsNone(self.stock.take())
        self.assertEqual(self.hooks.drops, [(99, "max_age")])

    def test_numbers_that_were_taken_to_learn_are_as_old_as_their_call(self) -> None:
        self.stock = self.new_stock(max_age=10.0)
        self.stock.definition = None
        self.stock.take()
        asked, flight = self.now, self.flights[-1]
        self.now += 10.1
        buffered = Definition(is_buffered=True, prints_values=True)
        self.stock.learned(flight, buffered, [Run(1, 1, 1)], asked)
        self.assertIsNone(self.stock.take())
        self.assertEqual(self.hooks.drops, [(1, "max_age")])

    def test_what_was_taken_to_learn_is_of_those_who_wait_and_else_a_gap(self) -> None:
        self.stock.definition = None
        waiters = [self.wait() for _ in range(2)]
        flight = self.flights[-1]
        self.stock.learned(flight, UNBUFFERED, [Run(1, 1, 1)], self.now)
        self.assertEqual([it.item for it in waiters], [(1, None), None])
        self.assertEqual((self.hooks.drops, self.stock.readings()[0]), ([], 0))
        self.stock.definition = None
        self.stock.take()
        self.stock.learned(self.flights[-1], UNBUFFERED, [Run(2, 1, 3)], self.now)
        self.assertEqual((self.hooks.drops, self.stock.readings()[0]), ([(3, "late")], 0))

    def test_a_warm_start_waits_for_its_count(self) -> None:
        waiter = ThreadWaiter(250)
        self.stock.warm(waiter)
        flight = self.flights[-1]
        self.assertEqual(self.stock.wanted(flight), 250)
        self.stock.deliver(flight, [Run(1, 1, 200)], self.now, self.now)
        self.assertFalse(waiter.is_settled)
        self.assertEqual(self.stock.wanted(flight), 50)
        self.deliver(201, 50)
        self.assertTrue(waiter.is_settled)
