"""Tests of numbers from memory, against a stub of the service."""

import _thread
import asyncio
import threading
from typing import Any
from unittest import mock

from odometer_client import Client, DeadlinePassed, Empty, OdometerError, Refused, WouldBlock
from odometer_client.definition import UNBUFFERED
from odometer_client.stock import Flight
from odometer_client.waiter import Waiter

from .case import StubCase, is_post, once
from .stub import Reply, Stub, refusal


class ClientTest(StubCase):
    def test_a_program_calls_once_for_many_numbers(self) -> None:
        self.assertEqual([self.orders.next() for _ in range(60)], list(range(1, 61)))
        self.assertEqual(self.stub.calls, ["GET orders", "POST next?count=100&ids=false"])
        self.assertIn("traceparent", self.stub.headers[1])
        self.assertNotIn("Idempotency-Key", self.stub.headers[1])

    def test_take_never_waits(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.stub.answer = lambda call: "go on" if gate.wait(20) else None
        for _ in range(100):
            with self.assertRaises(Empty):
                self.orders.take()
        gate.set()
        self.until(lambda: self.orders.left > 0)
        self.assertEqual(self.orders.take(), 1)

    def test_a_refused_size_is_asked_again_with_its_limit(self) -> None:
        for status, code in ((400, "invalid_count"), (409, "confirm_needed"), (429, "x")):
            self.stub.answer = once(refusal(status, code, limit="50"), is_post)
            self.orders.warm(60)
            self.assertEqual(self.posts()[1], "POST next?count=50&ids=false")
            self.stub.calls.clear()
            self.client.forget()
        self.until(lambda: self.hooks.outcomes == ["resized", "ok"] * 3)

    def test_a_size_is_asked_again_once(self) -> None:
        self.stub.answer = lambda call: (
            refusal(400, "invalid_count", limit="7") if is_post(call) else "go on"
        )
        with self.assertRaises(Refused) as caught:
            self.orders.next()
        self.assertEqual((caught.exception.code, len(self.posts())), ("invalid_count", 2))

    def test_the_last_numbers_are_asked_for_one_at_a_time(self) -> None:
        def few(call: str) -> Reply | str:
            is_large = is_post(call) and "count=1&" not in call
            return refusal(409, "sequence_exhausted") if is_large else "go on"

        self.stub.answer = few
        self.assertEqual([self.orders.next() for _ in range(3)], [1, 2, 3])

    def test_without_the_right_block_it_stays_with_next(self) -> None:
        self.stub.answer = lambda call: refusal(403, "forbidden") if "blocks" in call else "go on"
        self.orders.warm(25_000)
        batch = "POST next?count=10000&ids=false"
        last = "POST next?count=5000&ids=false"
        self.assertEqual(self.posts(), ["POST blocks?size=25000", batch, batch, last])

    def test_while_the_database_is_away_it_takes_batches(self) -> None:
        away = refusal(503, "store_unavailable")
        self.stub.answer = lambda call: away if "blocks" in call else "go on"
        self.orders.warm(11_000)
        batches = ["POST next?count=10000&ids=false", "POST next?count=1000&ids=false"]
        self.assertEqual(self.posts(), ["POST blocks?size=11000", *batches])

    def test_a_lost_reply_is_a_gap_and_never_repeats(self) -> None:
        def lose(call: str) -> Reply | str:
            if is_post(call) and len(self.posts()) == 1:
                self.stub.numbers(100)
                return None
            return "go on"

        self.stub.answer = lose
        self.assertEqual(self.orders.next(), 101)
        self.until(lambda: self.hooks.outcomes == ["connection", "ok"])

    def test_other_refusals_are_final(self) -> None:
        self.stub.answer = once(refusal(410, "sequence_retired"), is_post)
        with self.assertRaises(Refused) as caught:
            self.orders.next()
        self.assertEqual(caught.exception.code, "sequence_retired")
        self.assertEqual(self.orders.next(), 1)

    def test_each_caller_gets_an_error_of_its_own(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)
        gone = refusal(410, "sequence_retired")
        self.stub.answer = lambda call: gone if gate.wait(20) else None
        errors: list[Exception] = []

        def wait() -> None:
            try:
                self.orders.next()
            except Refused as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        self.until(lambda: len(self.orders._stock.get()._line) == 2)
        gate.set()
        for thread in threads:
            thread.join()
        self.assertEqual((len(errors), len(set(map(id, errors)))), (2, 2))
        self.assertEqual(len(set(map(str, errors))), 1)

    def test_an_answer_that_makes_no_sense_is_final(self) -> None:
        nonsense: Reply = (200, {"first": "1", "last": "9", "step": 1, "count": 3}, {})
        self.stub.answer = once(nonsense, is_post)
        with self.assertRaises(OdometerError) as caught:
            self.orders.next()
        self.assertEqual(caught.exception.code, "invalid_reply")
        self.assertEqual(self.orders.next(), 1)

    def test_a_defect_in_a_refill_is_an_error_of_those_who_wait(self) -> None:
        with mock.patch.object(self.client._service.get(), "ask", side_effect=KeyError("defect")):
            with self.assertLogs("odometer_client"), self.assertRaises(OdometerError) as caught:
                self.orders.next()
        self.assertIn("defect", str(caught.exception))
        self.assertEqual(self.orders.next(), 1)

    def test_a_thread_that_cannot_start_is_an_error_of_those_who_wait(self) -> None:
        none = RuntimeError("can't start new thread")
        with mock.patch.object(_thread, "start_new_thread", side_effect=none):
            with self.assertRaises(OdometerError) as caught:
                self.orders.next()
        self.assertIn("can't start new thread", str(caught.exception))
        self.assertEqual(self.orders.next(), 1)

    def test_a_deadline_ends_the_wait_and_not_the_refill(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)

        def hold(call: str) -> str:
            gate.wait(20)
            return "go on"

        self.stub.answer = hold
        orders = self.new_client(deadline=0.05).sequence("orders")
        with self.assertRaises(DeadlinePassed):
            orders.next()
        gate.set()
        self.until(lambda: orders.left == 100)
        self.assertEqual((orders.next(), len(self.posts())), (1, 1))

    def test_another_endpoint_is_called_if_one_fails(self) -> None:
        dead = Stub()
        dead.close()
        client = Client([dead.url, self.stub.url], hooks=self.hooks, deadline=20.0)
        self.addCleanup(client.close)
        endpoints = client._service.get().endpoints
        endpoints._current = 0
        self.assertEqual(client.sequence("orders", kind="buffered").next(), 1)
        self.assertEqual(endpoints._current, 1)
        self.until(lambda: self.hooks.outcomes == ["connection", "ok"])

    def test_a_refill_that_finds_no_buffer_asks_for_nothing(self) -> None:
        self.orders.next()
        self.client.forget()
        stock = self.orders._stock.get()
        wanted = stock.wanted

        def learned_meanwhile(flight: Flight) -> int | None:
            size = wanted(flight)
            if size is not None:
                # By a refill that was dropped.
                stock.definition = UNBUFFERED
            return size

        with mock.patch.object(stock, "wanted", learned_meanwhile):
            self.assertIsNone(stock.take())
            self.until(lambda: stock._flight is None)
        self.assertEqual(len(self.posts()), 1)

    def test_an_unknown_name_is_created_by_taking_its_first_number(self) -> None:
        unknown = refusal(404, "sequence_not_found")
        self.stub.answer = once(unknown, lambda call: call == "GET orders")
        self.assertEqual([self.orders.next() for _ in range(3)], [1, 2, 3])
        self.assertEqual(self.posts()[0], "POST next?count=1")
        self.assertTrue(all("traceparent" in it for it in self.stub.headers[1::2]))
        self.until(lambda: self.hooks.outcomes == ["ok", "ok"])

    def test_a_first_number_whose_kind_stays_unknown_is_a_gap(self) -> None:
        def unknown(call: str) -> Reply | str:
            if is_post(call):
                return "go on"
            return refusal(403, "forbidden") if self.posts() else refusal(404, "sequence_not_found")

        self.stub.answer = unknown
        with self.assertRaises(Refused):
            self.orders.next()
        self.until(lambda: self.hooks.drops == [(1, "late")])

    def test_a_shared_name_has_the_definition_of_its_sequence(self) -> None:
        def shared(call: str) -> Reply | str:
            return refusal(404, "sequence_not_found") if call == "GET alias" else "go on"

        self.stub.answer = shared
        self.assertEqual(self.client.sequence("alias").next(), 1)
        self.assertIn("GET orders", self.stub.calls)

    def test_without_the_right_look_the_program_says_the_kind(self) -> None:
        self.stub.answer = lambda call: refusal(403, "forbidden") if "GET" in call else "go on"
        with self.assertRaises(Refused) as caught:
            self.orders.next()
        self.assertIn("kind='buffered'", str(caught.exception))
        self.assertEqual(self.client.sequence("a", kind="buffered").next_id(), "#1")
        self.client.sequence("b", kind="unbuffered").next()
        self.assertEqual(self.posts(), ["POST next?count=100", "POST next"])

    def test_a_kind_that_is_said_later_counts(self) -> None:
        self.stub.answer = lambda call: refusal(403, "forbidden") if "GET" in call else "go on"
        with self.assertRaises(Refused):
            self.orders.next()
        self.assertIs(self.client.sequence("orders", kind="buffered"), self.orders)
        self.assertEqual(self.orders.next(), 1)
        self.client.sequence("orders", kind="buffered")
        with self.assertRaises(ValueError):
            self.client.sequence("orders", kind="unbuffered")

    def test_printed_ids_come_from_the_service(self) -> None:
        self.stub.definition["format"] = "#{value}"
        self.assertEqual((self.orders.next_id(), self.orders.next()), ("#1", 2))
        self.assertEqual(self.posts(), ["POST next?count=100"])

    def test_a_range_is_unbroken_and_loses_nothing(self) -> None:
        self.stub.step = 7
        self.orders.warm(100)
        self.assertEqual(list(self.orders.range(3)), [1, 8, 15])
        far = self.orders.range(500)
        self.assertEqual((far[0], len(far), far.step), (701, 500, 7))
        self.assertEqual(self.posts()[-1], "POST next?count=500&contiguous=true&ids=false")
        self.assertEqual(self.orders.next(), 22)

    def test_threads_never_get_a_number_twice(self) -> None:
        given: list[list[int]] = [[] for _ in range(8)]

        def work(own: list[int]) -> None:
            for at in range(500):
                own.append(self.orders.next())
                if at % 100 == 0:
                    own.extend(self.orders.range(5))

        threads = [threading.Thread(target=work, args=(own,)) for own in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [number for own in given for number in own]
        self.assertEqual((len(numbers), len(set(numbers))), (4200, 4200))

    def test_forget_drops_numbers_and_connections(self) -> None:
        self.orders.warm(100)
        self.client.forget()
        self.assertEqual(self.orders.next(), 101)
        self.assertEqual(len(set(self.stub.ports)), 2)
        self.assertEqual(self.hooks.drops, [(100, "forget")])

    def test_those_who_wait_when_a_client_is_closed_get_an_error(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.stub.answer = lambda call: "go on" if gate.wait(20) else None
        errors: list[OdometerError] = []

        def wait() -> None:
            try:
                self.orders.next()
            except OdometerError as error:
                errors.append(error)

        stock = self.orders._stock.get()
        thread = threading.Thread(target=wait)
        thread.start()
        self.until(lambda: self.stub.calls and stock._line)
        self.client.close()
        thread.join()
        self.assertEqual([str(error) for error in errors], ["orders was closed"])
        self.assertIsNone(stock._flight)
        gate.set()
        self.until(lambda: stock.definition)
        self.assertEqual(self.posts(), [])


class ForgetTest(StubCase):
    """`forget` comes after a caller got a number, and before the caller goes on."""

    def setUp(self) -> None:
        super().setUp()
        stock: Any = self.orders._stock.get()
        withdraw = stock.withdraw

        def wait_for_caller(call: str) -> str:
            if not is_post(call):
                self.until(lambda: stock._line)
            return "go on"

        def forgotten(waiter: Waiter) -> object:
            stock.withdraw = withdraw
            self.client.forget()
            return withdraw(waiter)

        self.stub.answer = wait_for_caller
        stock.withdraw = forgotten

    def test_a_thread_gets_another_number(self) -> None:
        self.assertEqual(self.orders.next(), 101)
        self.assertEqual(self.hooks.drops, [(99, "forget"), (1, "forget")])

    def test_a_coroutine_gets_another_number(self) -> None:
        self.assertEqual(asyncio.run(self.orders.anext()), 101)
        self.assertEqual(self.hooks.drops, [(99, "forget"), (1, "forget")])


class LoopTest(StubCase):
    def test_an_event_loop_is_never_blocked(self) -> None:
        async def run() -> list[int]:
            with self.assertRaises(WouldBlock):
                self.orders.next()
            numbers = await asyncio.gather(*(self.orders.anext() for _ in range(150)))
            await self.orders.awarm(50)
            return [*numbers, self.orders.next(), *await self.orders.arange(2)]

        numbers = asyncio.run(run())
        self.assertEqual(numbers, list(range(1, 154)))

    def test_a_cancelled_caller_takes_no_number_of_another_one(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.stub.answer = lambda call: "go on" if gate.wait(20) else None

        async def run() -> list[int]:
            tasks = [asyncio.ensure_future(self.orders.anext()) for _ in range(3)]
            while len(self.orders._stock.get()._line) < 3:
                await asyncio.sleep(0.001)
            tasks[0].cancel()
            await asyncio.sleep(0)
            gate.set()
            with self.assertRaises(asyncio.CancelledError):
                await tasks[0]
            return [await task for task in tasks[1:]]

        self.assertEqual(asyncio.run(run()), [1, 2])
