-- Does all that a step does: it reads the identity of the server, and writes. A server that is
-- read-only, loading or out of memory fails here as it would fail a step. ARGV: milliseconds to live.
redis.call('SET', KEYS[1], identity(), 'PX', ARGV[1])
return {1, 0, 0}
