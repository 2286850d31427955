"""An application whose module takes numbers before gunicorn forks its workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import shared


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """Answers with the process and its numbers, and with those of the process that imported this.
    """
    process, maker, numbers = shared.take(2)
    body = f"{process} {maker} {shared.first} {numbers[0]} {numbers[1]}\n".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
