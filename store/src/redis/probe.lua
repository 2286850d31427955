-- All that a step does: reads who the server is, and writes. A server that is read-only, loading
-- or out of memory fails here as a step would.
redis.call('SET', KEYS[1], identity(), 'PX', ARGV[1])
return {1, 0, 0}
