"""Tests of what a program is told, and of hooks that fail or take their time."""

import re
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

from odometer_client import Client, Hooks
from odometer_client.hooks import SafeHooks

from .case import StubCase
from .stub import Stub, refusal

TRACEPARENT = re.compile("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Failing(Hooks):
    """Each hook raises."""

    def refill(self, *report: object) -> None:
        raise ValueError("refill")

    def waited(self, seconds: float) -> None:
        raise ValueError("waited")

    def dropped(self, count: int, cause: str) -> None:
        raise ValueError("dropped")

    @contextmanager
    def span(self, sequence: str) -> Iterator[str]:
        raise ValueError("span")
        yield ""


class HooksTest(StubCase):
    def test_hooks_that_raise_are_logged_and_harm_nothing(self) -> None:
        client = Client(self.stub.url, hooks=Failing(), deadline=20.0)
        self.addCleanup(client.close)
        with self.assertLogs("odometer_client") as logs:
            self.assertEqual(client.sequence("orders").next(), 1)
            client.forget()
            self.assertEqual(client.sequence("orders").next(), 101)
            self.until(lambda: "".join(logs.output).count("ValueError: refill") == 2)
        for word in ("refill", "waited", "dropped", "span"):
            self.assertIn(f"ValueError: {word}", "".join(logs.output))

    def test_numbers_do_not_wait_for_hooks(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)

        class Slow(Hooks):
            def refill(self, *report: object) -> None:
                gate.wait(20)

        for status in (200, 410):
            if status == 410:
                self.stub.answer = lambda call: refusal(410, "sequence_retired")
            client = Client(self.stub.url, hooks=Slow(), deadline=10.0)
            self.addCleanup(client.close)
            try:
                client.sequence("orders").next()
                code = ""
            except Exception as error:
                code = getattr(error, "code", "")
            self.assertEqual(code, "" if status == 200 else "sequence_retired")
        self.assertFalse(gate.is_set())

    def test_a_hook_may_take_a_number(self) -> None:
        taken: list[int] = []

        class Taking(Hooks):
            def refill(self, *report: object) -> None:
                taken.append(orders.take())

        client = Client(self.stub.url, hooks=Taking(), deadline=20.0)
        self.addCleanup(client.close)
        orders = client.sequence("orders")
        number = orders.next()
        self.until(lambda: taken)
        self.assertEqual({number, *taken}, {1, 2})

    def test_a_call_has_the_trace_of_the_program(self) -> None:
        mine = f"00-{'a' * 32}-{'b' * 16}-01"
        for given, sent in ((mine, mine), ("", None), ("00\r\nX-Bad: 1", None), (None, None)):

            class Tracing(Hooks):
                @contextmanager
                def span(self, sequence: str) -> Iterator[str]:
                    yield given  # type: ignore[misc]

            stub = Stub()
            self.addCleanup(stub.close)
            with Client(stub.url, hooks=Tracing(), deadline=20.0) as client:
                if given is None:
                    with self.assertLogs("odometer_client"):
                        client.sequence("orders").next()
                else:
                    client.sequence("orders").next()
            header = stub.headers[-1]["traceparent"]
            self.assertRegex(header, TRACEPARENT)
            if sent is not None:
                self.assertEqual(header, sent)


class SpanTest(unittest.TestCase):
    def test_a_span_is_told_how_its_call_ended(self) -> None:
        ends: list[str] = []

        class Tracing(Hooks):
            @contextmanager
            def span(self, sequence: str) -> Iterator[str]:
                try:
                    yield f"00-{'a' * 32}-{'b' * 16}-01"
                    ends.append("ok")
                except ValueError as error:
                    ends.append(str(error))
                    raise

        hooks = SafeHooks(Tracing())
        with hooks.span("orders"):
            pass
        with self.assertRaises(ValueError), hooks.span("orders"):
            raise ValueError("it failed")
        self.assertEqual(ends, ["ok", "it failed"])
