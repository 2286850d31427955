-- ARGV: window, base, cap, milliseconds to live. Replaces only a lower window.
-- {1, window, base, used, cap} once the new one stands there, with the window that it replaced;
-- {1, 0, '', 0, 0} if there was none of this server's present data. {0, 0, '', 0, 0} if a window with
-- this number or a higher one stands there.
local f = redis.call('HMGET', KEYS[1], 'w', 'id', 'base', 'used', 'cap')
if f[1] and tonumber(f[1]) >= tonumber(ARGV[1]) then return {0, 0, '', 0, 0} end
redis.call('HSET', KEYS[1], 'w', ARGV[1], 'id', identity(), 'base', ARGV[2], 'used', '0', 'cap', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if not f[1] or f[2] ~= identity() then return {1, 0, '', 0, 0} end
return {1, tonumber(f[1]), f[3], tonumber(f[4]), tonumber(f[5])}
