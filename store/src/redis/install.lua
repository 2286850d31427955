-- Writes a window over a lower one. ARGV: window, base, cap, milliseconds to live.
-- Returns {1, window, base, used, cap} of the window that it replaced, {1, 0, '', 0, 0} if the key had
-- no window of this server's present data, and {0, 0, '', 0, 0}, without a change, if the key has this
-- window or a higher one.
local f = redis.call('HMGET', KEYS[1], 'w', 'id', 'base', 'used', 'cap')
if f[1] and tonumber(f[1]) >= tonumber(ARGV[1]) then return {0, 0, '', 0, 0} end
redis.call('HSET', KEYS[1], 'w', ARGV[1], 'id', identity(), 'base', ARGV[2], 'used', '0', 'cap', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if not f[1] or f[2] ~= identity() then return {1, 0, '', 0, 0} end
return {1, tonumber(f[1]), f[3], tonumber(f[4]), tonumber(f[5])}
