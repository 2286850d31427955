"""Tests of calls for numbers that are not buffered."""

import asyncio
import contextvars
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from unittest import mock

from odometer_client import Client, DeadlinePassed, Hooks, Refused, Unreachable

from .case import StubCase, is_post
from .stub import Reply, Stub, refusal

MANY = 50


class DirectTest(StubCase):
    def test_sequences_that_must_not_be_buffered_make_a_call_each(self) -> None:
        for change in ({"order": "strict"}, {"period": "day"}, {"kind": "snowflake"}):
            self.stub.definition = {**self.stub.definition, **change}
            sequence = self.client.sequence(f"orders-{change}")
            self.stub.calls.clear()
            self.hooks.outcomes.clear()
            sequence.next()
            sequence.take()
            self.assertEqual((self.posts(), sequence.left), (["POST next"] * 2, 0), change)
            self.assertEqual((self.hooks.outcomes, self.hooks.counts[-1]), (["ok", "ok"], 1))

    def test_a_call_that_failed_is_told_and_made_again(self) -> None:
        self.stub.definition["order"] = "strict"
        replies: list[Reply | str] = [refusal(503, "refill_timeout"), None, "go on"]
        self.stub.answer = lambda call: replies.pop(0) if is_post(call) else "go on"
        self.assertEqual(self.orders.next(), 1)
        self.assertEqual(self.hooks.outcomes, ["refill_timeout", "connection", "ok"])

    def test_a_deadline_ends_the_calls(self) -> None:
        self.stub.answer = lambda call: refusal(503, "store_unavailable")
        orders = self.new_client(deadline=0.3).sequence("orders", period="p")
        with self.assertRaises(DeadlinePassed) as caught:
            orders.next()
        # The last call has little time, so it may get no reply.
        self.assertIsInstance(caught.exception.__cause__, (Refused, Unreachable))

    def test_a_number_that_comes_after_forget_is_not_given(self) -> None:
        for forget in (self.client.forget, self.orders.forget):
            self.hooks.drops.clear()
            orders = self.client.sequence("orders", period="p")
            forgets = [forget]

            def reply(call: str) -> str:
                if forgets:
                    forgets.pop()()
                return "go on"

            self.stub.answer = reply
            first = self.stub.next
            self.assertEqual(orders.next(), first + 1)
            forgets.append(forget)
            self.assertEqual(orders.range(5), range(first + 7, first + 12))
            self.assertEqual(self.hooks.drops, [(1, "forget"), (5, "forget")])

    def test_a_replica_that_hangs_is_left_by_hurried_callers(self) -> None:
        hung, gate = Stub(), threading.Event()
        self.addCleanup(hung.close)
        self.addCleanup(gate.set)
        hung.answer = lambda call: "go on" if gate.wait(20) else None
        client = Client([hung.url, self.stub.url], deadline=0.6)
        self.addCleanup(client.close)
        client._service.get().endpoints._current = 0
        orders = client.sequence("orders", period="p")
        given: list[int] = []

        def is_given() -> bool:
            with suppress(DeadlinePassed):
                given.append(orders.next())
            return bool(given)

        self.until(is_given)
        self.assertTrue(hung.calls)

    def test_each_number_of_a_period_is_one_call_and_keeps_no_object(self) -> None:
        kept = len(self.client._sequences)
        sequences = []
        for at in range(MANY):
            sequence = self.client.sequence("invoices", period=f"k{at}")
            self.assertEqual(sequence.next(), at + 1)
            sequences.append(weakref.ref(sequence))
        self.assertEqual(self.stub.calls, [f"POST next?period=k{at}" for at in range(MANY)])
        self.assertEqual(len(self.client._sequences), kept)
        del sequence
        gc.collect()
        self.assertEqual([it() for it in sequences], [None] * MANY)
        with self.assertRaises(ValueError):
            self.client.sequence("invoices", period="k", kind="buffered")

    def test_numbers_of_a_period_are_never_buffered_whatever_the_program_says(self) -> None:
        self.stub.period = "20261201"
        self.stub.answer = lambda call: refusal(403, "forbidden") if "GET" in call else "go on"
        orders = self.client.sequence("orders", kind="buffered")
        self.assertEqual([orders.next() for _ in range(3)], [1, 101, 102])
        self.assertEqual(self.posts(), ["POST next?count=100", "POST next", "POST next"])
        self.until(lambda: self.hooks.drops == [(99, "late")])
        self.assertEqual((orders.left, self.hooks.counts), (0, [100, 1, 1]))

    def test_a_range_that_memory_has_not_is_a_call(self) -> None:
        self.assertEqual(self.orders.range(30), range(1, 31))
        self.assertEqual(self.orders.range(20_000), range(31, 20_031))
        self.assertEqual(self.posts()[1], "POST blocks?size=20000")
        with self.assertRaises(ValueError):
            self.orders.range(0)

    def test_a_range_of_another_size_is_no_answer(self) -> None:
        short: dict[str, object] = {"first": "1", "last": "3", "count": 3, "step": 1}
        bodies: list[dict[str, object]] = [short, {"ranges": [short, short]}, {"ranges": []}]
        for body in bodies:
            reply: Reply = (200, body, {})
            self.stub.answer = lambda call: reply if is_post(call) else "go on"
            for count in (2, 4):
                with self.assertRaises(Exception) as caught:
                    self.orders.range(count)
                self.assertEqual(getattr(caught.exception, "code", ""), "invalid_reply")


class DirectLoopTest(StubCase):
    def setUp(self) -> None:
        super().setUp()
        self.stub.definition["order"] = "strict"
        self.orders.next()
        self.gate = threading.Event()
        self.addCleanup(self.gate.set)

    def hold(self, call: str) -> str:
        self.gate.wait(20)
        return "go on"

    def test_numbers_for_a_caller_who_is_gone_are_told(self) -> None:
        self.stub.answer = self.hold

        async def run() -> None:
            tasks = [
                asyncio.ensure_future(self.orders.arange(MANY)),
                asyncio.ensure_future(self.orders.anext()),
            ]
            while len(self.posts()) < 3:
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.gate.set()

        asyncio.run(run())
        self.until(lambda: len(self.hooks.drops) == 2)
        self.assertEqual(sorted(self.hooks.drops), [(1, "late"), (MANY, "late")])

    def test_a_number_that_comes_just_before_forget_is_not_given(self) -> None:
        threads = self.client._service.get().threads
        submit = threads.submit
        calls: list[Future[object]] = []

        def kept(call: Callable[[], object]) -> Future[object]:
            calls.append(submit(call))
            return calls[-1]

        async def run() -> int:
            task = asyncio.ensure_future(self.orders.anext())
            await asyncio.sleep(0)
            # The event loop is busy until the number is there.
            self.until(lambda: calls[0].done())
            self.client.forget()
            return await task

        with mock.patch.object(threads, "submit", kept):
            self.assertEqual(asyncio.run(run()), 3)
        self.assertEqual((len(calls), self.hooks.drops), (2, [(1, "forget")]))

    def test_what_a_program_does_in_threads_holds_no_call_up(self) -> None:
        async def run() -> int:
            loop = asyncio.get_running_loop()
            busy = ThreadPoolExecutor(1)
            loop.set_default_executor(busy)
            busy.submit(self.gate.wait, 20)
            number = await self.orders.anext()
            self.gate.set()
            return number

        self.assertEqual(asyncio.run(run()), 2)

    def test_a_span_finds_the_context_of_its_coroutine(self) -> None:
        here = contextvars.ContextVar("here", default="nowhere")
        found: list[str] = []

        class Tracing(Hooks):
            @contextmanager
            def span(self, sequence: str) -> Iterator[str]:
                found.append(here.get())
                yield ""

        orders = self.new_client(hooks=Tracing()).sequence("orders", period="p")

        async def run() -> None:
            here.set("in a task")
            await orders.anext()
            await orders.arange(2)

        asyncio.run(run())
        self.assertEqual(found, ["in a task"] * 2)

    def test_the_event_loop_goes_on_while_calls_are_made(self) -> None:
        self.stub.answer = self.hold

        async def run() -> list[int]:
            tasks = [asyncio.ensure_future(self.orders.anext()) for _ in range(5)]
            while len(self.posts()) < 6:
                await asyncio.sleep(0.001)
            self.gate.set()
            return sorted(await asyncio.gather(*tasks))

        began = time.monotonic()
        self.assertEqual(asyncio.run(run()), list(range(2, 7)))
        self.assertLess(time.monotonic() - began, 20)
