"""Tests of the token, of what replies mean, and of the replica that is called after them."""

import logging
import tempfile
import traceback
import unittest
from pathlib import Path
from typing import Any

from odometer_client import Client, InvalidReply, OdometerError, Refused, Unreachable
from odometer_client.definition import Numbers, numbers_of
from odometer_client.endpoints import Endpoints
from odometer_client.service import Answer, Service, Token, _value
from odometer_client.transport import Reply, Transport

from .stub import Stub, refusal
from .stub import Reply as StubReply

SECRET = "s3cret-token"


class TokenTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = Path(self.folder.name, "token")

    def test_space_around_a_token_is_no_part_of_it(self) -> None:
        self.file.write_text(f" {SECRET}\r\n")
        for token in (Token(f"{SECRET}\n"), Token(file=self.file), Token(SECRET)):
            self.assertEqual(token.read(), SECRET)
        self.assertIsNone(Token("").read())

    def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(self) -> None:
        for bad in (f"{SECRET}\nsecond", f"{SECRET} second", f"{SECRET}é", f"{SECRET}\udc80"):
            self.file.write_bytes(bad.encode("utf-8", "surrogatepass"))
            for options in ({"token": bad}, {"file": self.file}):
                with self.assertRaises(ValueError) as caught:
                    Token(**options)
                shown = "".join(traceback.format_exception(caught.exception))
                self.assertNotIn(SECRET, shown + repr(vars(caught.exception)))

    def test_a_file_without_a_token_is_refused_at_the_start(self) -> None:
        for bad in (b"", b"\n", b"\xff\xfe"):
            self.file.write_bytes(bad)
            with self.assertRaises(ValueError):
                Token(file=self.file)
        self.file.unlink()
        with self.assertRaises(OSError):
            Token(file=self.file)

    def test_while_a_file_is_replaced_the_last_token_counts(self) -> None:
        self.file.write_text("one")
        token = Token(file=self.file)
        for bad in (b"", b"\xff\xfe", b"one\ntwo"):
            self.file.write_bytes(bad)
            self.assertEqual(token.read(), "one")
        self.file.unlink()
        self.assertEqual(token.read(), "one")
        self.file.write_text("two")
        self.assertEqual(token.read(), "two")

    def test_no_call_and_no_log_shows_the_token(self) -> None:
        stub = Stub()
        self.addCleanup(stub.close)
        stub.answer = lambda call: refusal(401, "unauthenticated")
        with self.assertLogs(level=logging.DEBUG) as logs:
            logging.getLogger("odometer_client").debug("there is a log")
            with self.assertRaises(Refused) as caught:
                with Client(stub.url, token=f"{SECRET}\n", deadline=20.0) as client:
                    client.sequence("orders").next()
        self.assertEqual(stub.headers[0]["Authorization"], f"Bearer {SECRET}")
        shown = "".join(traceback.format_exception(caught.exception))
        self.assertNotIn(SECRET, shown + "".join(logs.output))


class AddressTest(unittest.TestCase):
    def test_an_address_with_a_password_is_refused_and_not_shown(self) -> None:
        for url in (
            "http://user:pa55@host",
            "http://:pa55@127.0.0.1:1",
            "http://user:pa55@host:port",
            "http://pa55@host?query",
            "ftp://user:pa55@host",
        ):
            with self.assertRaises(ValueError) as caught:
                Client(["http://host:8080", url])
            shown = "".join(traceback.format_exception(caught.exception))
            self.assertNotIn("pa55", shown)
            self.assertIn("endpoint 2", shown)

    def test_addresses_may_have_a_port_and_a_path(self) -> None:
        Client(["http://host", "https://[::1]:8443", "http://host:8080/prefix/"])


def replied(body: str, status: int = 200, retry_after: str | None = None) -> Reply:
    return Reply(status, body.encode(), True, retry_after, False)


def range_with(**changes: Any) -> dict[str, Any]:
    return {"first": "1", "last": "3", "step": 1, "count": 3, **changes}


class ReadingTest(unittest.TestCase):
    def read(self, body: dict[str, Any], *, with_ids: bool = False) -> Numbers:
        return _value(replied("{}"), "http://a", lambda _: numbers_of(body, with_ids=with_ids))

    def test_numbers_that_contradict_themselves_are_no_reply(self) -> None:
        big = 10**5000
        bodies: list[dict[str, Any]] = [
            {},
            {"ranges": []},
            {"ranges": 7},
            {"ranges": [7]},
            range_with(last="4"),
            range_with(count=0, last="0"),
            range_with(step=0, last="1"),
            range_with(count=1.5),
            range_with(count=float("inf")),
            range_with(count=float("nan")),
            range_with(first=None),
            range_with(first="9" * 5000),
            range_with(first=str(2**63 - 2), last=str(2**63)),
            range_with(first=str(-(2**63) - 1), last=str(-(2**63) + 1)),
            range_with(step=big, last=1 + 2 * big),
        ]
        for at, body in enumerate(bodies):
            with self.subTest(at), self.assertRaises(InvalidReply):
                self.read(body)
        for ids in (None, ["1", "2"], 7):
            with self.subTest(ids=ids), self.assertRaises(InvalidReply):
                self.read(range_with(ids=ids), with_ids=True)
        good = range_with(ids=["1", "2", "3"])
        self.assertEqual(self.read(good, with_ids=True).count, 3)

    def test_what_is_no_object_is_no_reply(self) -> None:
        for text in ("", "[]", "7", "<html>", "[" * 200_000, '{"a":' * 200_000, "9" * 5000):
            with self.subTest(text[:9]), self.assertRaises(InvalidReply):
                _value(replied(text), "http://a", lambda body: body)

    def test_half_a_reply_is_no_reply(self) -> None:
        half = Reply(200, b'{"first":', False, None, True)
        with self.assertRaises(Unreachable):
            _value(half, "http://a", lambda body: body)
        whole = Reply(200, b'{"first":"1"}', False, None, True)
        self.assertEqual(_value(whole, "http://a", lambda body: body["first"]), "1")

    def refused(self, reply: Reply) -> Refused:
        with self.assertRaises(Refused) as caught:
            _value(reply, "http://a", lambda body: body)
        return caught.exception

    def test_a_wait_or_a_limit_that_is_no_count_says_nothing(self) -> None:
        for text in ("nan", "inf", "-1", "1e9", "Wed, 21 Oct 2026 07:28:00 GMT", "9" * 5000, ""):
            self.assertIsNone(self.refused(replied("{}", 503, text)).retry_after, text[:9])
        self.assertEqual(self.refused(replied("{}", 503, "7")).retry_after, 7)
        for limit in ('"nan"', "7", '"-7"', '"٧"', f'"{"9" * 5000}"', "null", "[]"):
            refused = self.refused(replied(f'{{"limit":{limit}}}', 400))
            self.assertIsNone(refused.limit, limit[:9])
        self.assertEqual(self.refused(replied('{"limit":"7"}', 400)).limit, 7)

    def test_a_refusal_without_a_body_has_its_status(self) -> None:
        cut = Reply(401, b"", False, None, True)
        refused = self.refused(cut)
        self.assertEqual((refused.status, refused.code), (401, "http_401"))


class MovesTest(unittest.TestCase):
    """Which of two replicas is called after a reply of the first one."""

    def setUp(self) -> None:
        self.stubs = [Stub(), Stub()]
        for stub in self.stubs:
            self.addCleanup(stub.close)
        urls = [stub.url for stub in self.stubs]
        endpoints = Endpoints(urls, uniform=lambda low, high: low)
        self.service = Service(endpoints, Transport(), Token())
        self.addCleanup(self.service.close_idle)

    def ask(self) -> Answer[object]:
        return self.service.ask("POST", "/v1/sequences/orders/next", lambda body: body["id"], 10.0)

    def next_after(self, reply: StubReply, *, is_given: bool = False) -> int:
        self.setUp()
        self.stubs[0].answer = lambda call: reply
        if is_given:
            self.ask()
        else:
            with self.assertRaises(OdometerError):
                self.ask()
        self.stubs[0].answer = lambda call: "go on"
        return [stub.url for stub in self.stubs].index(self.ask().endpoint)

    def test_a_replica_that_is_no_odometer_is_left(self) -> None:
        replies: list[StubReply] = [
            (200, {"hello": "world"}, {}),
            (200, [], {}),
            refusal(404, "route_not_found"),
            (404, {}, {}),
            (401, {"error": "another service"}, {}),
        ]
        for reply in replies:
            with self.subTest(reply):
                self.assertEqual(self.next_after(reply), 1)

    def test_a_replica_that_closes_its_connection_is_left(self) -> None:
        close = {"Connection": "close"}
        given = (200, {"id": "1"}, close)
        self.assertEqual(self.next_after(given, is_given=True), 1)
        self.assertEqual(self.next_after((410, {"code": "sequence_retired"}, close)), 1)

    def test_a_replica_that_refuses_a_call_is_kept(self) -> None:
        for reply in (
            refusal(410, "sequence_retired"),
            refusal(404, "sequence_not_found"),
            refusal(429, "rate_limited", limit="7"),
        ):
            with self.subTest(reply):
                self.assertEqual(self.next_after(reply), 0)

    def test_a_replica_that_cannot_serve_now_is_left(self) -> None:
        replies: list[StubReply] = [
            refusal(503, "store_unavailable"),
            refusal(429, "rate_limited"),
            (502, {}, {}),
            None,
        ]
        for reply in replies:
            with self.subTest(reply):
                self.assertEqual(self.next_after(reply), 1)

    def test_a_wrong_address_is_final_for_one_caller_alone(self) -> None:
        def elsewhere(call: str) -> StubReply:
            return 200, {}, {}

        self.stubs[0].answer = elsewhere
        client = Client([stub.url for stub in self.stubs], deadline=20.0)
        self.addCleanup(client.close)
        client._service.get().endpoints._current = 0
        orders = client.sequence("orders")
        with self.assertRaises(InvalidReply):
            orders.next()
        self.assertEqual(orders.next(), 1)
