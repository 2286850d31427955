"""Tests of whole calls, against a stub of the service."""

import asyncio
import gc
import json
import os
import threading
import time
import unittest
from collections.abc import Callable

import odometer_client.fork
from odometer_client import Client, DeadlinePassed, Empty, Hooks, Refused, Sequence, WouldBlock
from odometer_client.django import Sequence as DjangoSequence

from .stub import Reply, Stub, refusal


class Outcomes(Hooks):
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def refill(
        self, sequence: str, endpoint: str, outcome: str, seconds: float, count: int
    ) -> None:
        self.outcomes.append(outcome)


def once(reply: Reply, wanted: Callable[[str], bool]) -> Callable[[str], Reply | str]:
    """Answers the first call that is wanted."""
    left = [reply]
    return lambda call: left.pop() if left and wanted(call) else "go on"


def is_post(call: str) -> bool:
    return call.startswith("POST")


class ClientTest(unittest.TestCase):
    def setUp(self) -> None:
        self.stub = Stub()
        self.addCleanup(self.stub.close)
        self.hooks = Outcomes()
        self.client = Client(self.stub.url, hooks=self.hooks)
        self.addCleanup(self.client.close)
        self.orders = self.client.sequence("orders")

    def posts(self) -> list[str]:
        return [call for call in self.stub.calls if is_post(call)]

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 5
        while not condition():
            self.assertLess(time.monotonic(), deadline, "the condition never came")
            time.sleep(0.001)

    def test_a_program_calls_once_for_many_numbers(self) -> None:
        self.assertEqual([self.orders.next() for _ in range(80)], list(range(1, 81)))
        self.assertEqual(self.stub.calls, ["GET orders", "POST next?count=100&ids=false"])
        self.assertIn("traceparent", self.stub.headers[1])
        self.assertNotIn("Idempotency-Key", self.stub.headers[1])

    def test_take_never_waits(self) -> None:
        with self.assertRaises(Empty):
            self.orders.take()
        self.until(lambda: self.orders.left > 0)
        self.assertEqual(self.orders.take(), 1)

    def test_a_refused_size_is_asked_again_with_its_limit(self) -> None:
        for status, code in ((400, "invalid_count"), (409, "confirm_needed"), (429, "x")):
            self.stub.answer = once(refusal(status, code, limit="50"), is_post)
            self.orders.warm(60)
            self.assertEqual(self.posts()[1], "POST next?count=50&ids=false")
            self.stub.calls.clear()
            self.client.forget()
        self.assertEqual(self.hooks.outcomes, ["resized", "ok"] * 3)

    def test_a_size_is_asked_again_once(self) -> None:
        self.stub.answer = lambda call: (
            refusal(400, "invalid_count", limit="7") if is_post(call) else "go on"
        )
        with self.assertRaises(Refused) as caught:
            self.orders.next()
        self.assertEqual((caught.exception.code, len(self.posts())), ("invalid_count", 2))

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
        self.assertEqual(self.hooks.outcomes, ["connection", "ok"])

    def test_other_refusals_are_final(self) -> None:
        self.stub.answer = once(refusal(410, "sequence_retired"), is_post)
        with self.assertRaises(Refused) as caught:
            self.orders.next()
        self.assertEqual(caught.exception.code, "sequence_retired")
        self.assertEqual(self.orders.next(), 1)

    def test_a_deadline_ends_the_wait_and_not_the_refill(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)

        def hold(call: str) -> str:
            gate.wait(5)
            return "go on"

        self.stub.answer = hold
        client = Client(self.stub.url, deadline=0.05)
        self.addCleanup(client.close)
        orders = client.sequence("orders")
        with self.assertRaises(DeadlinePassed):
            orders.next()
        gate.set()
        self.until(lambda: orders.left == 100)
        self.assertEqual((orders.next(), len(self.posts())), (1, 1))

    def test_another_endpoint_is_called_if_one_fails(self) -> None:
        dead = Stub()
        dead.close()
        client = Client([dead.url, self.stub.url])
        self.addCleanup(client.close)
        for _ in range(5):
            self.assertGreater(client.sequence("orders").next(), 0)
            client.forget()

    def test_an_unknown_name_is_created_by_taking_its_first_number(self) -> None:
        unknown = refusal(404, "sequence_not_found")
        self.stub.answer = once(unknown, lambda call: call == "GET orders")
        self.assertEqual([self.orders.next() for _ in range(3)], [1, 2, 3])
        self.assertEqual(self.posts()[0], "POST next?count=1")
        self.assertTrue(all("traceparent" in it for it in self.stub.headers[1::2]))
        self.assertEqual(self.hooks.outcomes, ["ok", "ok"])

    def test_sequences_that_must_not_be_buffered_make_a_call_each(self) -> None:
        for change in ({"order": "strict"}, {"period": "day"}, {"kind": "snowflake"}):
            self.stub.definition = {**self.stub.definition, **change}
            sequence = self.client.sequence(f"orders-{change}")
            self.stub.calls.clear()
            sequence.next()
            sequence.take()
            self.assertEqual((self.posts(), sequence.left), (["POST next"] * 2, 0), change)

    def test_without_the_right_look_the_program_says_the_kind(self) -> None:
        self.stub.answer = lambda call: refusal(403, "forbidden") if "GET" in call else "go on"
        with self.assertRaises(Refused) as caught:
            self.orders.next()
        self.assertIn("kind='buffered'", str(caught.exception))
        self.assertEqual(self.client.sequence("a", kind="buffered").next_id(), "#1")
        self.client.sequence("b", kind="unbuffered").next()
        self.assertEqual(self.posts(), ["POST next?count=100", "POST next"])

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
                    self.orders.forget()

        threads = [threading.Thread(target=work, args=(own,)) for own in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [number for own in given for number in own]
        self.assertEqual((len(numbers), len(set(numbers))), (4200, 4200))

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
        async def run() -> int:
            tasks = [asyncio.ensure_future(self.orders.anext()) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return await tasks[2]

        self.assertLess(asyncio.run(run()), 4)

    def test_defaults_of_models_can_be_written_into_migrations(self) -> None:
        odometer_client.set_default_client(self.client)
        self.addCleanup(odometer_client.set_default_client, None)
        default = DjangoSequence("orders", printed=True)
        path, names, options = default.deconstruct()
        self.assertEqual(path, "odometer_client.django.Sequence")
        self.assertEqual(DjangoSequence(*names, **options), default)
        self.assertEqual((default(), DjangoSequence("orders")()), ("1", 2))

    def test_the_version_is_that_of_the_project(self) -> None:
        project = os.path.join(os.path.dirname(__file__), "..", "pyproject.toml")
        with open(project) as file:
            self.assertIn(f'version = "{odometer_client.__version__}"\n', file.read())


@unittest.skipUnless(hasattr(os, "fork"), "there is no fork here")
class ForkTest(unittest.TestCase):
    def setUp(self) -> None:
        self.stub = Stub()
        self.addCleanup(self.stub.close)
        self.client = Client(self.stub.url)
        self.addCleanup(self.client.close)
        self.orders = self.client.sequence("orders")
        self.orders.warm(100)

    def repeated(self) -> set[int]:
        """Returns the numbers that a child and its parent both got."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, json.dumps(taken(self.orders)).encode())
            os._exit(0)
        os.close(writer)
        own = taken(self.orders)
        with os.fdopen(reader) as pipe:
            others = json.load(pipe)
        os.waitpid(child, 0)
        self.assertEqual((len(own), len(others)), (20, 20))
        return set(own) & set(others)

    def test_a_forked_child_gets_numbers_of_its_own(self) -> None:
        lock: threading.Lock = self.orders._stock._lock
        held = threading.Event()
        done = threading.Event()

        def hold() -> None:
            with lock:
                held.set()
                done.wait(0.05)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        self.assertEqual(self.repeated(), set())
        done.set()
        thread.join()

    def test_a_sequence_whose_client_is_forgotten_is_as_safe(self) -> None:
        self.orders = Client(self.stub.url).sequence("orders")
        gc.collect()
        self.orders.warm(100)
        self.assertEqual(self.repeated(), set())

    def test_without_the_hook_numbers_repeat(self) -> None:
        members = list(odometer_client.fork._MEMBERS)
        self.addCleanup(odometer_client.fork._MEMBERS.update, members)
        odometer_client.fork._MEMBERS.clear()
        self.assertEqual(len(self.repeated()), 20)


def taken(orders: Sequence) -> list[int]:
    return [orders.next() for _ in range(20)]
