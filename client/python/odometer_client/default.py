"""Default: a callable that gives a model its next number."""

from __future__ import annotations

import asyncio
from typing import Any

from .client import default_client
from .definition import Kind


class Default:
    """Gives the next number of a sequence, of the default client.

    - Django: `id = models.BigIntegerField(primary_key=True, default=Default("orders"))`.
    - SQLAlchemy: `mapped_column(BigInteger, primary_key=True, default=Default("orders"))`.

    In the thread of an event loop it takes a number from memory, and raises `Empty` if there is
    none: call `await default_client().sequence(name).awarm(n)` first.
    """

    def __init__(self, name: str, *, printed: bool = False, kind: Kind | None = None) -> None:
        self.name = name
        #: Gives ids, which are strings, instead of values.
        self.printed = printed
        self.kind: Kind | None = kind

    def __call__(self) -> int | str:
        sequence = default_client().sequence(self.name, kind=self.kind)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return sequence.next_id() if self.printed else sequence.next()
        return sequence.take_id() if self.printed else sequence.take()

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Says how a migration of Django makes it again."""
        options: dict[str, Any] = {}
        if self.printed:
            options["printed"] = True
        if self.kind is not None:
            options["kind"] = self.kind
        return "odometer_client.Default", [self.name], options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Default) and self.deconstruct() == other.deconstruct()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Default({self.name!r})"
