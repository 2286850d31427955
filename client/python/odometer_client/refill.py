"""Refill: a thread that gets numbers until enough are there, and then ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from .buffer import Run
from .definition import MAX_COUNT, Definition, Kind, Learner, Paths, check_no_period, numbers_of
from .errors import CallFailed, OdometerError, Refused
from .hooks import SafeHooks
from .service import Answer, Service
from .stock import Flight, Stock

_LOG = logging.getLogger("odometer_client")
_SIZE_CODES = frozenset({"invalid_count", "confirm_needed"})


class Refill:
    """Fills one sequence's stock. At most one thread does so at a time."""

    def __init__(
        self,
        name: str,
        paths: Paths,
        said: Kind | None,
        stock: Stock,
        service: Service,
        hooks: SafeHooks,
        *,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._paths = paths
        self._said: Kind | None = said
        self._stock = stock
        self._service = service
        self._hooks = hooks
        self._timeout = timeout
        self._clock = clock
        self._may_reserve = True

    def launch(self, flight: Flight) -> None:
        """Starts a thread. It is a daemon: the end of the program does not wait for it."""
        title = f"odometer-refill-{self._name}"
        thread = threading.Thread(target=self._run, args=(flight,), name=title, daemon=True)
        try:
            thread.start()
        except (RuntimeError, OSError, MemoryError) as error:
            # No thread is left, or the interpreter ends.
            _LOG.warning("no thread could be started for a refill of %s: %s", self._name, error)
            self._stock.end(flight, OdometerError(f"no thread could be started: {error}"))
        except BaseException:
            self._stock.end(flight)
            raise

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
        # Of this flight alone: a flight that was forgotten may still learn.
        learner = Learner(self._name, self._said, self._take_first)
        pause: float | None = None
        began: float | None = None
        while True:
            time.sleep(pause or 0.0)
            size = self._stock.wanted(flight)
            if size is None:
                return
            asked = self._clock()
            began = asked if began is None else began
            try:
                definition = self._stock.definition
                if definition is None:
                    self._learn(flight, learner)
                else:
                    runs = self._fetch(definition, size, has_failed=pause is not None)
                    self._stock.deliver(flight, runs, asked, began)
                    began = None
                pause = None
            except OdometerError as error:
                is_sole = self._service.endpoints.is_sole
                pause = self._stock.failed(flight, error, is_sole=is_sole)
                if pause is None:
                    return

    def _learn(self, flight: Flight, learner: Learner) -> None:
        began = self._clock()
        try:
            definition = learner.learn(self._service, self._timeout)
        except CallFailed as error:
            self._report(error.endpoint, error.outcome, began, 0)
            raise
        runs, learner.taken = learner.taken, []
        self._stock.learned(flight, definition, runs)

    def _take_first(self) -> Answer:
        """Gets the first number of a name that is not known yet."""
        began = self._clock()
        with self._hooks.span(self._name) as traceparent:
            answer = self._ask(1, True, traceparent)
        self._report(answer.endpoint, "ok", began, 1)
        return answer

    def _fetch(self, definition: Definition, size: int, *, has_failed: bool) -> list[Run]:
        """Gets numbers with one call, or with another one if the size was refused.

        If the call before failed, the database may be away, and then `next` still has numbers.
        """
        began = self._clock()
        with_ids = not definition.prints_values
        if size > MAX_COUNT and (with_ids or has_failed or not self._may_reserve):
            size = MAX_COUNT
        outcome = "ok"
        reasons: set[str] = set()
        with self._hooks.span(self._name) as traceparent:
            while True:
                try:
                    answer = self._ask(size, with_ids, traceparent)
                    check_no_period(answer)
                    runs = numbers_of(answer, with_ids=with_ids)
                    break
                except CallFailed as error:
                    reason, smaller = self._smaller(error, size)
                    if smaller is None or reason in reasons:
                        self._report(error.endpoint, error.outcome, began, 0)
                        raise
                    reasons.add(reason)
                    size, outcome = smaller, "resized"
        self._report(answer.endpoint, outcome, began, sum(run.count for run in runs))
        return runs

    def _ask(self, size: int, with_ids: bool, traceparent: str) -> Answer:
        if size > MAX_COUNT:
            path = self._paths.block(size)
        else:
            path = self._paths.batch(size, with_ids=with_ids)
        return self._service.ask("POST", path, self._timeout, traceparent)

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

    def _report(self, endpoint: str, outcome: str, began: float, count: int) -> None:
        self._hooks.refill(self._name, endpoint, outcome, self._clock() - began, count)
