"""What programs do with redis-py and with the cache of Django.

Takes the host and the port of a listener, and its password. Prints one line of JSON for each library.
"""

import json
import sys

import django
import redis
from django.conf import settings
from django.core.cache import cache

host, port, password = sys.argv[1:]


def tell(library, given):
    print(json.dumps({"library": library, **given}))


for protocol in (2, 3):
    client = redis.Redis(
        host=host, port=int(port), password=password, protocol=protocol, client_name="py"
    )
    given = {"one": client.incr("orders"), "last": client.incrby("orders", 5)}
    with client.pipeline() as pipeline:
        pipeline.incr("orders").incr("orders")
        given["transaction"] = pipeline.execute()
    with client.pipeline(transaction=False) as pipeline:
        pipeline.incr("orders").incr("orders")
        given["together"] = pipeline.execute()
    try:
        client.decr("orders")
    except redis.ResponseError as error:
        given["refused"] = str(error)
    client.close()
    tell(f"redis-py, RESP{protocol}", given)

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://:{password}@{host}:{port}",
        }
    }
)
django.setup()
given = {"one": cache.incr("orders"), "together": [cache.incr("orders"), cache.incr("orders")]}
try:
    cache.incr("none")
except ValueError as error:
    given["unknown"] = str(error)
try:
    cache.decr("orders")
except redis.ResponseError as error:
    given["refused"] = str(error)
tell("Django", given)
