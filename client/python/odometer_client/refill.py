"""Refill: a thread that gets numbers until enough are there, and then ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from .definition import (
    MAX_COUNT,
    UNBUFFERED,
    Definition,
    Kind,
    Learner,
    Numbers,
    Paths,
    numbers_of,
)
from .errors import CallFailed, OdometerError, Refused
from .hooks import SafeHooks
from .service import Answer, Service
from .stock import Flight, Stock
from .thread import start

_LOG = logging.getLogger("odometer_client")
_SIZE_CODES = frozenset({"invalid_count", "confirm_needed"})

#: What hooks are told of a call: endpoint, outcome, seconds, and how many numbers came.
Report = tuple[str, str, float, int]


class Refill:
    """Fills one sequence's stock. At most one thread does so at a time."""

    def __init__(
        self,
        name: str,
        paths: Paths,
        said: Callable[[], Kind | None],
        stock: Stock,
        service: Service,
        hooks: SafeHooks,
        *,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._paths = paths
        self._said = said
        self._stock = stock
        self._service = service
        self._hooks = hooks
        self._timeout = timeout
        self._clock = clock
        self._may_reserve = True

    def launch(self, flight: Flight) -> None:
        """Starts a thread. Raises `OdometerError` if that cannot be done."""
        start(partial(self._run, flight))

    def _run(self, flight: Flight) -> None:
        failure: BaseException | None = None
        try:
            self._fill(flight)
        except BaseException as error:
            failure = error
            _LOG.exception("a refill of %s failed", self._name)
        finally:
            self._stock.end(flight, failure)

    def _fill(self, flight: Flight) -> None:
        flight.hurry.wait(self._stock.first_pause(flight))
        pause: float | None = None
        began: float | None = None
        reports: list[Report] = []
        # Of this flight alone: a flight that was forgotten may still learn.
        take_first = partial(self._take_first, reports)
        learner = Learner(self._name, self._said(), take_first)
        while True:
            time.sleep(pause or 0.0)
            size = self._stock.wanted(flight)
            if size is None:
                break
            began = self._clock() if began is None else began
            has_failed, pause = pause is not None, None
            error: OdometerError | None = None
            try:
                definition = self._stock.definition
                if definition is None:
                    self._learn(flight, learner, reports)
                elif definition.is_buffered:
                    self._fetch(flight, definition, size, has_failed, began, reports)
                    began = None
                # Else the next look ends this flight.
            except OdometerError as failure:
                error = failure
                is_sole = self._service.endpoints.is_sole
                pause = self._stock.failed(flight, failure, is_sole=is_sole)
            # The last step, because hooks are the program's, and may take their time.
            while reports:
                self._hooks.refill(self._name, *reports.pop(0))
            if error is not None and pause is None:
                break
        self._hooks.dropped(sum(run.left for run in learner.taken), "late")

    def _learn(self, flight: Flight, learner: Learner, reports: list[Report]) -> None:
        began = self._clock()
        try:
            definition = learner.learn(self._service, self._timeout)
        except CallFailed as error:
            reports.append(self._report(error.endpoint, error.outcome, began, 0))
            raise
        runs, learner.taken = learner.taken, []
        self._stock.learned(flight, definition, runs, began)

    def _take_first(self, reports: list[Report]) -> Answer[Numbers]:
        """Gets the first number of a name that is not known yet."""
        began = self._clock()
        with self._hooks.span(self._name) as traceparent:
            answer = self._ask(1, True, traceparent)
        reports.append(self._report(answer.endpoint, "ok", began, 1))
        return answer

    def _fetch(
        self,
        flight: Flight,
        definition: Definition,
        size: int,
        has_failed: bool,
        began: float,
        reports: list[Report],
    ) -> None:
        """Gets numbers with one call, or with another one if the size was refused.

        If the call before failed, the database may be away, and then `next` still has numbers.
        """
        asked = self._clock()
        with_ids = not definition.prints_values
        if size > MAX_COUNT and (with_ids or has_failed or not self._may_reserve):
            size = MAX_COUNT
        outcome = "ok"
        reasons: set[str] = set()
        with self._hooks.span(self._name) as traceparent:
            while True:
                try:
                    answer = self._ask(size, with_ids, traceparent)
                    break
                except CallFailed as error:
                    reason, smaller = self._smaller(error, size)
                    if smaller is None or reason in reasons:
                        reports.append(self._report(error.endpoint, error.outcome, asked, 0))
                        raise
                    reasons.add(reason)
                    size, outcome = smaller, "resized"
            numbers = answer.value
            reports.append(self._report(answer.endpoint, outcome, asked, numbers.count))
            if numbers.has_period:
                # The program said another kind.
                self._stock.learned(flight, UNBUFFERED, numbers.runs, asked)
            else:
                self._stock.deliver(flight, numbers.runs, asked, began)

    def _ask(self, size: int, with_ids: bool, traceparent: str) -> Answer[Numbers]:
        if size > MAX_COUNT:
            path = self._paths.block(size)
        else:
            path = self._paths.batch(size, with_ids=with_ids)
        read = partial(numbers_of, with_ids=with_ids)
        return self._service.ask("POST", path, read, self._timeout, traceparent)

    def _smaller(self, error: CallFailed, size: int) -> tuple[str, int | None]:
        """Returns why a smaller size may succeed, and which."""
        if not isinstance(error, Refused):
            return "", None
        if error.status == 403 and size > MAX_COUNT:
            self._may_reserve = False
            return "right", MAX_COUNT
        if error.status == 429 or error.code in _SIZE_CODES:
            limit = error.limit or 0
            return "limit", limit if 1 <= limit < size else None
        if error.code == "sequence_exhausted" and size > 1:
            # The last numbers are issued one at a time.
            return "end", 1
        return "", None

    def _report(self, endpoint: str, outcome: str, began: float, count: int) -> Report:
        return endpoint, outcome, self._clock() - began, count
