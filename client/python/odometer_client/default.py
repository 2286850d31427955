"""Default: a callable that gives a model its next number."""

from __future__ import annotations

import asyncio

from .client import default_client
from .definition import Kind


class Default:
    """Gives the next number of a sequence, of the default client.

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

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Default):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _key(self) -> tuple[str, bool, str | None]:
        return self.name, self.printed, self.kind
