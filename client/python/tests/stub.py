"""A stub of the service, which answers as a test says."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

DEFINITION = {"kind": "block", "order": "relaxed", "period": "none", "format": "{value}"}
#: A status, a body, headers. `None` closes the connection without a reply.
Reply = tuple[int, Any, dict[str, str]] | None


def refusal(status: int, code: str, **more: Any) -> Reply:
    return status, {"status": status, "code": code, "detail": "The stub said so.", **more}, {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may close a connection before its reply."""


class Stub:
    """Gives the numbers 1, 2, 3 …, unless `answer` says something else first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next = 1
        self.step = 1
        #: What replies say, which is not in the definition.
        self.period: str | None = None
        self.definition: dict[str, Any] = dict(DEFINITION)
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        #: The ports from which the calls came: one for each connection.
        self.ports: list[int] = []
        #: Called with each call; it may answer instead of the stub.
        self.answer: Callable[[str], Reply | str] = lambda call: "go on"
        self.server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def reply(self, method: str, path: str, headers: dict[str, str], port: int) -> Reply:
        url = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        call = f"{method} {url.path.rsplit('/', 1)[-1]}" + (f"?{url.query}" if url.query else "")
        with self.lock:
            self.calls.append(call)
            self.headers.append(headers)
            self.ports.append(port)
        said = self.answer(call)
        if said != "go on":
            assert not isinstance(said, str)
            return said
        if method == "GET":
            return 200, {"sequence": "orders", "definition": self.definition}, {}
        count = int(query.get("count") or query.get("size") or 1)
        first, last = self.numbers(count)
        given = {"first": str(first), "last": str(last), "count": count, "step": self.step}
        whole: dict[str, Any] = {"sequence": "orders", "period": self.period}
        if "count" not in query and "size" not in query:
            return 200, {**whole, "value": str(first), "id": str(first)}, {}
        if "size" in query:
            return 200, {**whole, **given}, {}
        if "ids" not in query:
            whole["ids"] = [f"#{it}" for it in range(first, last + self.step, self.step)]
        return 200, {**whole, "count": count, "ranges": [given]}, {}

    def numbers(self, count: int) -> tuple[int, int]:
        with self.lock:
            first = self.next
            self.next += count * self.step
            return first, first + (count - 1) * self.step

    def _handler(stub) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                port = self.client_address[1]
                reply = stub.reply(self.command, self.path, dict(self.headers), port)
                if reply is None:
                    self.close_connection = True
                    return
                status, body, headers = reply
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
