-- ARGV: window, base, cap, milliseconds to live. Takes no place but that of a lower window.
local w = redis.call('HGET', KEYS[1], 'w')
if w and tonumber(w) >= tonumber(ARGV[1]) then return {0, 0, 0} end
redis.call('HSET', KEYS[1], 'w', ARGV[1], 'id', identity(), 'base', ARGV[2], 'used', '0', 'cap', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, 0, 0}
