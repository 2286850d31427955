"""The client of Odometer: numbers that never repeat, counted in your program's memory.

    client = Client(["http://a:8080", "http://b:8080"])
    orders = client.sequence("orders")
    number = orders.next()

Read first: `client.py`, `sequence.py`, `stock.py`, `refill.py`.

Imports go one way: `errors`, `fork`, `hooks`, `thread`, `gate`, `resolver`, `transport`,
`endpoints`, `service`, `buffer`, `definition`, `size`, `waiter`, `stock`, `refill`, `direct`,
`sequence`, `client`, and last `default`.
"""

from .client import Client, default_client, set_default_client
from .default import Default
from .errors import (
    CallFailed,
    DeadlinePassed,
    Empty,
    InvalidReply,
    OdometerError,
    Refused,
    Unreachable,
    WouldBlock,
)
from .hooks import Hooks
from .sequence import Sequence
from .service import VERSION as __version__

__all__ = [
    "CallFailed",
    "Client",
    "DeadlinePassed",
    "Default",
    "Empty",
    "Hooks",
    "InvalidReply",
    "OdometerError",
    "Refused",
    "Sequence",
    "Unreachable",
    "WouldBlock",
    "__version__",
    "default_client",
    "set_default_client",
]
