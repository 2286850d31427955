"""Tests of one call over HTTP: its connection, its time, and replies that end too early."""

import socket
import threading
import time
import unittest
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from odometer_client import transport
from odometer_client.errors import InvalidReply, Unreachable
from odometer_client.transport import Reply, Transport

from .stub import Stub

BODY = b'{"count":1}'
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n" + BODY
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n" + BODY + b"\r\n0\r\n\r\n"
#: The end of the connection is the end of the body.
ENDLESS = b"HTTP/1.1 401 Unauthorized\r\nconnection: close\r\n\r\n" + BODY


def called(reply: bytes, timeout: float = 10.0, between: float = 0.0) -> Reply:
    """Makes a call, to which a server sends these bytes before it closes the connection, with
    a time between two of them."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            try:
                for at in range(len(reply)) if between else ():
                    connection.sendall(reply[at : at + 1])
                    time.sleep(between)
                connection.sendall(b"" if between else reply)
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        sender = Transport()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            return sender.call(url, "POST", "/next", {}, timeout)
        finally:
            sender.close_idle()
            thread.join()


class RepliesTest(unittest.TestCase):
    def test_a_reply_that_is_cut_anywhere_is_none(self) -> None:
        for n_bytes in range(len(WHOLE)):
            with self.subTest(n_bytes):
                try:
                    self.assertFalse(called(WHOLE[:n_bytes]).is_whole)
                except Unreachable as error:
                    self.assertFalse(error.timed_out)

    def test_a_reply_in_chunks_that_is_cut_is_none(self) -> None:
        for n_bytes in range(CHUNKED.index(b"\r\n0\r\n")):
            with self.subTest(n_bytes):
                try:
                    self.assertFalse(called(CHUNKED[:n_bytes]).is_whole)
                except Unreachable:
                    pass

    def test_a_whole_reply_is_read(self) -> None:
        for whole in (WHOLE, CHUNKED):
            reply = called(whole)
            self.assertEqual((reply.body, reply.is_whole), (BODY, True))

    def test_a_body_that_ends_with_its_connection_is_read(self) -> None:
        reply = called(ENDLESS)
        self.assertEqual((reply.status, reply.body, reply.is_last), (401, BODY, True))
        self.assertFalse(reply.is_whole)

    def test_a_reply_whose_bytes_come_slowly_is_late(self) -> None:
        began = time.monotonic()
        with self.assertRaises(Unreachable) as caught:
            called(WHOLE, timeout=0.3, between=0.05)
        self.assertTrue(caught.exception.timed_out)
        self.assertLess(time.monotonic() - began, len(WHOLE) * 0.05)

    def test_a_reply_that_is_too_large_is_not_read(self) -> None:
        for whole in (WHOLE, CHUNKED, ENDLESS):
            with mock.patch.object(transport, "MAX_REPLY_BYTES", len(BODY) - 1):
                with self.assertRaises(InvalidReply):
                    called(whole)


class ConnectionsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.stub = Stub()
        self.addCleanup(self.stub.close)
        self.transport = Transport()
        self.addCleanup(self.transport.close_idle)

    def call(self) -> None:
        self.transport.call(self.stub.url, "GET", "/v1/sequences/orders", {}, 10.0)

    def n_connections(self) -> int:
        return len(set(self.stub.ports))

    def test_a_connection_is_used_again(self) -> None:
        for _ in range(3):
            self.call()
        self.assertEqual(self.n_connections(), 1)

    def test_a_connection_that_was_idle_for_long_is_not_used_again(self) -> None:
        self.call()
        with mock.patch.object(transport, "MAX_IDLE_SECONDS", 0.0):
            self.call()
        self.assertEqual(self.n_connections(), 2)

    def test_closed_connections_are_not_used_again(self) -> None:
        self.call()
        self.transport.close_idle()
        self.call()
        self.assertEqual(self.n_connections(), 2)

    def test_a_connection_in_use_while_all_are_closed_is_not_kept(self) -> None:
        used: list[Any] = []

        def close(call: str) -> str:
            self.stub.answer = lambda call: "go on"
            used.extend(self.transport._open)
            self.transport.close_idle()
            return "go on"

        self.stub.answer = close
        self.call()
        self.assertEqual([it.sock for it in used], [None])
        self.call()
        self.assertEqual(self.n_connections(), 2)

    def test_idle_connections_are_bounded(self) -> None:
        gate = threading.Barrier(5)

        def wait(call: str) -> str:
            gate.wait(10)
            return "go on"

        self.stub.answer = wait
        with mock.patch.object(transport, "MAX_IDLE_CONNECTIONS", 2):
            threads = [threading.Thread(target=self.call) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len(self.transport._idle[self.stub.url]), 2)

    def test_a_host_without_a_port_has_the_port_of_its_scheme(self) -> None:
        for url, host, port in (
            ("http://[::1]", "::1", 80),
            ("https://[::1]", "::1", 443),
            ("http://[::1]:8080", "::1", 8080),
            ("http://127.0.0.1", "127.0.0.1", 80),
        ):
            connection = self.transport._new(urlsplit(url), 0.0)
            self.assertEqual((connection.host, connection.port), (host, port), url)

    def test_a_handshake_has_the_time_of_the_call(self) -> None:
        timeouts: list[float | None] = []

        def wrap(plain: socket.socket, server_hostname: str) -> socket.socket:
            timeouts.append(plain.gettimeout())
            return plain

        sender = Transport(mock.Mock(wrap_socket=wrap))
        self.addCleanup(sender.close_idle)
        url = self.stub.url.replace("http:", "https:")
        sender.call(url, "GET", "/v1/sequences/orders", {}, 100.0)
        self.assertGreater(timeouts[0] or 0.0, 50.0)

    def test_a_name_may_have_an_address_in_both_families(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            free = listener.getsockname()[1]
        url = self.stub.url.replace("127.0.0.1", "localhost")
        port = self.stub.server.server_port
        with resolved([("127.0.0.1", free), ("127.0.0.1", port)]):
            self.transport.call(url, "GET", "/v1/sequences/orders", {}, 10.0)
        self.assertEqual(self.n_connections(), 1)


def resolved(addresses: list[tuple[str, int]], wait: Callable[[], object] = lambda: None) -> Any:
    """Looks every name up as these addresses."""
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *, type: int, flags: int) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return real(host, port, type=type, flags=flags)
        wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", it) for it in addresses]

    return mock.patch.object(socket, "getaddrinfo", look_up)


class DeadlineTest(unittest.TestCase):
    """A call ends in its time, whatever its host does."""

    def late(self, timeout: float) -> float:
        began = time.monotonic()
        with self.assertRaises(Unreachable) as caught:
            Transport().call("http://name.example:80", "POST", "/next", {}, timeout)
        self.assertTrue(caught.exception.timed_out)
        return time.monotonic() - began

    def test_many_addresses_that_hang_have_one_time_together(self) -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(hanging(stack))
            stack.enter_context(resolved([listener.getsockname()] * 60))
            stack.enter_context(mock.patch.object(transport, "CONNECT_TIMEOUT_SECONDS", 0.1))
            self.assertLess(self.late(0.3), 3.0)

    def test_the_next_address_is_tried_after_one_that_hangs(self) -> None:
        stub = Stub()
        self.addCleanup(stub.close)
        with ExitStack() as stack:
            listener = stack.enter_context(hanging(stack))
            addresses = [listener.getsockname(), ("127.0.0.1", stub.server.server_port)]
            stack.enter_context(resolved(addresses))
            stack.enter_context(mock.patch.object(transport, "CONNECT_TIMEOUT_SECONDS", 0.1))
            sender = Transport()
            reply = sender.call("http://name.example", "GET", "/v1/sequences/a", {}, 10.0)
            sender.close_idle()
        self.assertEqual(reply.status, 200)

    def test_a_look_up_that_hangs_has_the_time_of_the_call(self) -> None:
        gate = threading.Event()
        self.addCleanup(gate.set)
        with resolved([], lambda: gate.wait(20)):
            self.assertLess(self.late(0.2), 10.0)

    def test_calls_share_a_look_up_that_hangs(self) -> None:
        gate, n_lookups = threading.Event(), []
        self.addCleanup(gate.set)

        def wait() -> None:
            n_lookups.append(1)
            gate.wait(20)

        sender = Transport()
        with resolved([], wait):
            for _ in range(3):
                with self.assertRaises(Unreachable):
                    sender.call("http://name.example:80", "POST", "/next", {}, 0.05)
        self.assertEqual(len(n_lookups), 1)

    def test_each_connection_looks_its_name_up(self) -> None:
        stub, n_lookups = Stub(), []
        self.addCleanup(stub.close)
        sender = Transport()
        with resolved([("127.0.0.1", stub.server.server_port)], lambda: n_lookups.append(1)):
            for _ in range(2):
                sender.call("http://name.example", "GET", "/v1/sequences/orders", {}, 10.0)
                sender.close_idle()
        self.assertEqual(len(n_lookups), 2)


def hanging(stack: ExitStack) -> socket.socket:
    """Returns a listener that accepts nothing more, so that a connect hangs."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    for _ in range(3):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    return listener
