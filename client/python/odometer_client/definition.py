"""Definition: whether a sequence may be buffered, and how its numbers are asked for and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from .buffer import Item, Run
from .errors import Refused
from .service import Answer, Body, Service

Kind = Literal["buffered", "unbuffered"]

#: The most numbers that one call of `next` gives.
MAX_COUNT = 10_000
_SAY_THE_KIND = (
    "Without the right `look`, say the kind: kind='buffered', or kind='unbuffered' for strict, "
    "period and time-ordered sequences."
)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Definition:
    """What a client must know of a sequence. It never changes."""

    is_buffered: bool
    #: Whether a printed number is its bare value. If not, or not known, the service prints.
    prints_values: bool


#: Each number is a call.
UNBUFFERED = Definition(is_buffered=False, prints_values=False)


@dataclass(frozen=True)
class Numbers:
    """The numbers of one reply, of which there is at least one."""

    runs: list[Run]
    #: A template may share another sequence's numbers: then it is that sequence.
    sequence: str | None
    #: Numbers of a period are wrong in the next one, so they must not be buffered.
    has_period: bool

    @property
    def count(self) -> int:
        """How many are left."""
        return sum(run.left for run in self.runs)


class Paths:
    """The paths of a sequence's calls."""

    def __init__(self, name: str, period: str | None) -> None:
        self._base = path_of(name)
        self._period = "" if period is None else f"period={quote(period, safe='')}"

    def one(self) -> str:
        return f"{self._base}/next" + (f"?{self._period}" if self._period else "")

    def batch(self, count: int, *, with_ids: bool) -> str:
        return self._with_period(f"next?count={count}" + ("" if with_ids else "&ids=false"))

    def unbroken(self, count: int) -> str:
        if count > MAX_COUNT:
            return self.block(count)
        return self._with_period(f"next?count={count}&contiguous=true&ids=false")

    def block(self, size: int) -> str:
        return self._with_period(f"blocks?size={size}")

    def _with_period(self, call: str) -> str:
        return f"{self._base}/{call}" + (f"&{self._period}" if self._period else "")


def path_of(name: str) -> str:
    return f"/v1/sequences/{quote(name, safe=':')}"


class Learner:
    """Finds out what a sequence is. Call `learn` again after a failure that can be retried."""

    def __init__(
        self, name: str, said: Kind | None, take_first: Callable[[], Answer[Numbers]]
    ) -> None:
        self._name = name
        self._said = said
        #: Asks for one number and its printed form.
        self._take_first = take_first
        #: Numbers that came before the definition could be read. To take them, clear it.
        self.taken: list[Run] = []

    def learn(self, service: Service, timeout: float) -> Definition:
        """Reads the definition. A name that was never seen is created by taking its first
        number, which is in `taken` then."""
        try:
            return self._read(service, timeout)
        except Refused as refusal:
            if refusal.status != 403:
                raise
            if self._said is None:
                raise refusal.with_advice(_SAY_THE_KIND) from refusal
            return Definition(self._said == "buffered", prints_values=False)

    def _read(self, service: Service, timeout: float) -> Definition:
        try:
            return service.ask("GET", path_of(self._name), definition_of, timeout).value
        except Refused as refusal:
            if refusal.code != "sequence_not_found" or self.taken:
                raise
        taken = self._take_first().value
        self.taken = taken.runs
        self._name = taken.sequence or self._name
        return service.ask("GET", path_of(self._name), definition_of, timeout).value


# These read what a reply has. If it is no reply of Odometer, any error of reading will do.


def definition_of(body: Body) -> Definition:
    """Reads a definition."""
    given = body["definition"]
    if not isinstance(given, Mapping):
        raise TypeError("the definition is no object")
    fields = (given.get("kind"), given.get("order"), given.get("period"))
    is_buffered = fields == ("block", "relaxed", "none")
    return Definition(is_buffered, prints_values=given.get("format") == "{value}")


def numbers_of(body: Body, *, with_ids: bool) -> Numbers:
    """Reads a batch or a block."""
    ids = body["ids"] if with_ids else ()
    runs: list[Run] = []
    at = 0
    for each in body.get("ranges", [body]):
        first, last = _number(each["first"]), _number(each["last"])
        step, count = _whole(each["step"]), _whole(each["count"])
        if count < 1 or step == 0 or last != first + (count - 1) * step:
            raise ValueError(f"{first} to {last} by {step} are not {count}")
        printed = [str(it) for it in ids[at : at + count]] if with_ids else None
        if printed is not None and len(printed) != count:
            raise ValueError("there are fewer ids than numbers")
        at += count
        runs.append(Run(first, step, count, printed))
    if not runs:
        raise ValueError("there is no number")
    sequence = body.get("sequence")
    has_period = body.get("period") is not None
    return Numbers(runs, sequence if isinstance(sequence, str) else None, has_period)


def range_of(body: Body, *, count: int) -> range:
    """Reads so many unbroken numbers."""
    runs = numbers_of(body, with_ids=False).runs
    values = runs[0].take_range(count) if len(runs) == 1 else None
    if values is None or runs[0].left:
        raise ValueError(f"these are not {count} unbroken numbers")
    return values


def one_of(body: Body) -> Item:
    """Reads the reply to a call for one number."""
    return _number(body["value"]), str(body["id"])


def _number(value: object) -> int:
    number = _whole(value)
    if not _LOWEST <= number <= _HIGHEST:
        raise ValueError(f"{number} is beyond 64 bits")
    return number


def _whole(value: object) -> int:
    if not isinstance(value, (str, int)):
        raise TypeError(f"{value!r} is no whole number")
    return int(value)
