-- ARGV: window, base, cap, milliseconds to live. Takes no place but that of a lower window.
-- {1, left, 0} once it stands there: so many numbers of the window before it were not taken, and
-- will not be; of a window that is not of this server's present data it is not known. {0} otherwise.
local f = redis.call('HMGET', KEYS[1], 'w', 'id', 'used', 'cap')
if f[1] and tonumber(f[1]) >= tonumber(ARGV[1]) then return {0, 0, 0} end
local left = 0
if f[1] and f[2] == identity() then left = tonumber(f[4]) - tonumber(f[3]) end
redis.call('HSET', KEYS[1], 'w', ARGV[1], 'id', identity(), 'base', ARGV[2], 'used', '0', 'cap', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, left, 0}
