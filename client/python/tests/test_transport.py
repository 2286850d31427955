"""Tests what becomes of replies that end too early."""

import socket
import threading
import unittest

from odometer_client.errors import Unreachable
from odometer_client.transport import Reply, Transport

BODY = b'{"count":1}'
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n" + BODY
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n" + BODY + b"\r\n0\r\n\r\n"


def called(reply: bytes) -> Reply:
    """Makes a call, to which a server sends these bytes before it closes the connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        transport = Transport()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            return transport.call(url, "POST", "/next", {}, 5.0)
        finally:
            thread.join()
            transport.close_idle()


class Cuts(unittest.TestCase):
    def test_a_reply_that_is_cut_anywhere_is_none(self) -> None:
        for n_bytes in range(len(WHOLE)):
            with self.subTest(n_bytes), self.assertRaises(Unreachable) as caught:
                called(WHOLE[:n_bytes])
            self.assertFalse(caught.exception.timed_out)

    def test_a_reply_in_chunks_that_is_cut_is_none(self) -> None:
        for n_bytes in range(CHUNKED.index(b"\r\n0\r\n")):
            with self.subTest(n_bytes), self.assertRaises(Unreachable):
                called(CHUNKED[:n_bytes])

    def test_a_whole_reply_is_read(self) -> None:
        for whole in (WHOLE, CHUNKED):
            self.assertEqual(called(whole).body, BODY)


if __name__ == "__main__":
    unittest.main()
