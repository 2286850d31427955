"""When a call that fits the description may be refused all the same."""

import schemathesis

# What depends on the sequence, which no schema knows.
STATE = {
    "sequence_not_found",
    "sequence_exhausted",
    "immutable_field",
    "confirm_needed",
    "not_for_kind",
    "lease_lost",
    "sequence_retired",
    "period_removed",
    "already_exists",
    "version_mismatch",
    "rate_limited",
}
# A rule between fields, or between a field and the sequence.
RULES = {
    "takeNumbers": {"invalid_period"},
    "reserveBlock": {"invalid_count", "invalid_period"},
    "parseNumber": {"invalid_id"},
    "explainNumber": {"invalid_id", "invalid_period"},
    "getSequence": {"invalid_period"},
    "getLiveSequence": {"invalid_period"},
    "defineSequence": {"invalid_definition"},
    # A floor above the last number of the sequence.
    "advanceSequence": {"invalid_body", "invalid_period"},
    # A time outside of the lease, a token with `force`, or neither; a body with `force`.
    "returnWorker": {"invalid_parameter", "invalid_body"},
    # All worker ids of the pool are taken.
    "leaseWorker": {"no_worker_id"},
}


def allowed(operation, case):
    headers = {name.lower() for name in case.headers or {}}
    if operation == "defineSequence" and {"if-match", "if-none-match"} <= headers:
        return RULES[operation] | {"invalid_parameter"}
    # A time-ordered sequence has no range of more ids than fit in one tick.
    if operation == "takeNumbers" and case.path_parameters.get("name") == "ids":
        return RULES[operation] | {"invalid_count"}
    return RULES.get(operation, set())


@schemathesis.check
def valid_calls_are_refused_for_their_state_only(ctx, response, case):
    meta = case.meta
    if meta is None or not meta.generation.mode.is_positive or response.status_code < 400:
        return
    problem = response.json()
    operation = case.operation.definition.raw["operationId"]
    if problem["code"] == "invalid_count" and "`limit.burst`" in problem["detail"]:
        return
    may_be = STATE | allowed(operation, case)
    assert problem["code"] in may_be, f"{problem['code']}: {problem['detail']}"
