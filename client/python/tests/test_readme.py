"""Runs the examples of the README."""

import ast
import asyncio
import inspect
import re
import tempfile
from pathlib import Path
from typing import Any

from .case import StubCase

README = Path(__file__).parent.parent / "README.md"
CLIENT = 'Client(["http://a:8080", "http://b:8080"], token_file="/run/secrets/odometer")'


class ReadmeTest(StubCase):
    def test_the_examples_give_numbers(self) -> None:
        examples = re.findall("```python\n(.*?)```", README.read_text(), re.DOTALL)
        first, in_loop = (it for it in examples if "orders." in it)
        self.assertIn(CLIENT, first)
        with tempfile.TemporaryDirectory() as folder:
            token = Path(folder, "token")
            token.write_text("s3cret")
            client = f"Client({self.stub.url!r}, token_file={str(token)!r}, deadline=20.0)"
            names: dict[str, Any] = {}
            run(first.replace(CLIENT, client), names)
            self.addCleanup(names["client"].close)
            # Before it: three numbers, and fifty without a gap.
            self.assertEqual(names["orders"].next(), 54)
            run(in_loop, names)
            # Before it: one number. Fifty without a gap are not left in the first block.
            self.assertEqual(names["orders"].next(), 56)
        self.assertEqual(self.stub.headers[0]["Authorization"], "Bearer s3cret")


def run(example: str, names: dict[str, Any]) -> None:
    code = compile(example, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        asyncio.run(result)
