"""Definition: whether a sequence may be buffered, and how its numbers are asked for and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from .buffer import Item, Run
from .errors import InvalidReply, OdometerError, Refused
from .service import Answer, Service

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
        self, name: str, said: Kind | None, take_first: Callable[[], Answer]
    ) -> None:
        self._name = name
        self._said = said
        #: Asks for one number and its printed form.
        self._take_first = take_first
        #: Numbers that came before the definition could be read. Whoever takes them clears it.
        self.taken: list[Run] = []

    def learn(self, service: Service, timeout: float) -> Definition:
        """Reads the definition. A name that was never seen is created by taking its first
        number, which is in `taken` then."""
        try:
            answer = self._read(service, timeout)
            return _definition(answer)
        except Refused as refusal:
            if refusal.status != 403:
                raise
            if self._said is None:
                raise refusal.with_advice(_SAY_THE_KIND) from refusal
            return Definition(self._said == "buffered", prints_values=False)

    def _read(self, service: Service, timeout: float) -> Answer:
        try:
            return service.ask("GET", path_of(self._name), timeout)
        except Refused as refusal:
            if refusal.code != "sequence_not_found" or self.taken:
                raise
        taken = self._take_first()
        self.taken = numbers_of(taken, with_ids=True)
        # A template may share another sequence's numbers: then that one has the definition.
        shared = taken.body.get("sequence")
        if isinstance(shared, str):
            self._name = shared
        return service.ask("GET", path_of(self._name), timeout)


def _definition(answer: Answer) -> Definition:
    given = answer.body.get("definition")
    if not isinstance(given, Mapping):
        raise InvalidReply(f"{answer.endpoint} gave no definition", answer.endpoint)
    fields = (given.get("kind"), given.get("order"), given.get("period"))
    is_buffered = fields == ("block", "relaxed", "none")
    return Definition(is_buffered, prints_values=given.get("format") == "{value}")


def numbers_of(answer: Answer, *, with_ids: bool) -> list[Run]:
    """Reads a batch or a block. There is at least one number."""
    body = answer.body
    ranges = body.get("ranges", [body])
    ids = body.get("ids") if with_ids else None
    runs: list[Run] = []
    try:
        at = 0
        for each in ranges:
            first, last = int(each["first"]), int(each["last"])
            step, count = int(each["step"]), int(each["count"])
            if count < 1 or last != first + (count - 1) * step or step == 0:
                raise ValueError(f"{first} to {last} by {step} are not {count}")
            if min(first, last) < _LOWEST or max(first, last) > _HIGHEST:
                raise ValueError(f"{first} to {last} are beyond 64 bits")
            printed = None if ids is None else [str(it) for it in ids[at : at + count]]
            if printed is not None and len(printed) != count:
                raise ValueError("there are fewer ids than numbers")
            at += count
            runs.append(Run(first, step, count, printed))
        if not runs or (with_ids and ids is None):
            raise ValueError("numbers or ids are missing")
    except (LookupError, TypeError, ValueError) as error:
        what = f"{answer.endpoint} gave numbers that cannot be read: {error}"
        raise InvalidReply(what, answer.endpoint) from error
    return runs


def one_of(answer: Answer) -> Item:
    """Reads the reply to a call for one number."""
    try:
        return int(answer.body["value"]), str(answer.body["id"])
    except (LookupError, TypeError, ValueError) as error:
        what = f"{answer.endpoint} gave no number"
        raise InvalidReply(what, answer.endpoint) from error


def check_no_period(answer: Answer) -> None:
    """Refuses to buffer the numbers of a period, which are wrong in the next one."""
    if answer.body.get("period") is not None:
        raise OdometerError(
            f"the sequence {answer.body.get('sequence')} has periods, so its numbers cannot be "
            "buffered: give kind='unbuffered'"
        )
