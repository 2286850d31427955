-- Reads the window under the key, and changes nothing.
-- Returns {exists, window, base, used, cap, ours}. `ours` is 1 if the window was written into this
-- server's present data.
local f = redis.call('HMGET', KEYS[1], 'w', 'id', 'base', 'used', 'cap')
if not f[1] then return {0, 0, '0', 0, 0, 0} end
local ours = 0
if f[2] == identity() then ours = 1 end
return {1, tonumber(f[1]), f[3], tonumber(f[4]), tonumber(f[5]), ours}
