"""What a program in Python does with the client that is made of /openapi.json.

Takes the address of a service and a token, prints what it was given as JSON.
"""

import json
import sys

from odometer_client import AuthenticatedClient
from odometer_client.api.numbers import reserve_block, take_numbers
from odometer_client.api.sequences import define_sequence, get_sequence
from odometer_client.api.workers import lease_worker, renew_worker, return_worker
from odometer_client.models import (
    BlockPolicyChange,
    DefinedSequence,
    DefinitionChange,
    IssuedBatch,
    IssuedNumber,
    Problem,
    ReservedBlock,
    WorkerLease,
    WorkerLeaseRequest,
    WorkerRenewalRequest,
    WorkerReturnRequest,
)

address, token = sys.argv[1:]
client = AuthenticatedClient(base_url=address, token=token)


def given(kind, reply):
    if not isinstance(reply, kind):
        raise SystemExit(f"not {kind.__name__}: {reply}")
    return reply


name = "python"
defined = given(
    DefinedSequence,
    define_sequence.sync(
        name,
        client=client,
        body=DefinitionChange(
            start="1000",
            format_="PY-{value:06}",
            block=BlockPolicyChange(hold="15m"),
            description="Defined by a client in Python",
        ),
    ),
)
one = given(IssuedNumber, take_numbers.sync(name, client=client))
batch = given(IssuedBatch, take_numbers.sync(name, client=client, count=3))
block = given(ReservedBlock, reserve_block.sync(name, client=client, size=10))

lease = given(
    WorkerLease,
    lease_worker.sync(
        client=client,
        body=WorkerLeaseRequest(pool=name, bits=10, ttl_ms=30_000, holder="client"),
    ),
)
renewed = given(
    WorkerLease,
    renew_worker.sync(
        lease.pool,
        lease.worker,
        client=client,
        body=WorkerRenewalRequest(ttl_ms=60_000),
        odometer_lease=lease.token,
    ),
)
ended = return_worker.sync_detailed(
    lease.pool,
    lease.worker,
    client=client,
    body=WorkerReturnRequest(unused_from_ms=renewed.until_ms),
    odometer_lease=lease.token,
)
missing = given(Problem, get_sequence.sync("no-one", client=client))

print(
    json.dumps(
        {
            "kind": defined.definition.kind,
            "one": one.to_dict(),
            "batch": batch.to_dict(),
            "block": block.to_dict(),
            "lease": lease.to_dict(),
            "renewed": renewed.to_dict(),
            "ended": ended.status_code,
            "refused": missing.code,
        }
    )
)
