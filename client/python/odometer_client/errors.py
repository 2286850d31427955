"""The errors of the client: what happened, and a word for it in `code`."""

from __future__ import annotations

RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})


class OdometerError(Exception):
    """Any failure of this client. `code` is a word for programs."""

    code = "client"


class Empty(OdometerError):
    """No number is in memory. A refill is on its way."""

    code = "empty"


class WouldBlock(Empty):
    """The call would have to wait, and so would stop the event loop of this thread."""


class DeadlinePassed(OdometerError):
    """No number came within the deadline. The refill goes on. `__cause__` is its last failure."""

    code = "deadline"


class CallFailed(OdometerError):
    """One call to one replica gave no numbers."""

    def __init__(self, message: str, endpoint: str) -> None:
        super().__init__(message)
        self.endpoint = endpoint

    @property
    def outcome(self) -> str:
        """What hooks are told."""
        return self.code

    @property
    def is_retryable(self) -> bool:
        return False

    @property
    def retry_after(self) -> float | None:
        """In seconds, if the service said so."""
        return None


class Unreachable(CallFailed):
    """A replica gave no reply. Numbers that were on their way are a gap."""

    code = "unreachable"

    def __init__(self, message: str, endpoint: str, *, timed_out: bool) -> None:
        super().__init__(message, endpoint)
        self.timed_out = timed_out

    @property
    def outcome(self) -> str:
        return "timeout" if self.timed_out else "connection"

    @property
    def is_retryable(self) -> bool:
        return True


class InvalidReply(CallFailed):
    """A replica answered with something that is no answer of Odometer."""

    code = "invalid_reply"


class Refused(CallFailed):
    """The service refused a call. `code` is the service's, from its closed list."""

    def __init__(
        self,
        *,
        status: int,
        code: str,
        detail: str,
        endpoint: str,
        limit: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{endpoint} answered {status} {code}: {detail}", endpoint)
        self.status = status
        self.code = code
        self.detail = detail
        #: How many numbers the call could have now, if its size was refused.
        self.limit = limit
        self._retry_after = retry_after

    def with_advice(self, advice: str) -> Refused:
        """Returns the same refusal, with a sentence about what to do."""
        return Refused(
            status=self.status,
            code=self.code,
            detail=f"{self.detail} {advice}",
            endpoint=self.endpoint,
            limit=self.limit,
            retry_after=self._retry_after,
        )

    @property
    def is_foreign(self) -> bool:
        """Whether this is no answer about a sequence: another service may be at the address."""
        return self.code == "route_not_found" or self.code.startswith("http_")

    @property
    def is_retryable(self) -> bool:
        return self.status in RETRYABLE_STATUSES

    @property
    def retry_after(self) -> float | None:
        return self._retry_after
