-- Takes numbers of a window. ARGV: window, count.
-- Returns {1, used, cap} after the step. All other replies change nothing: {2, used, cap} if so many
-- numbers do not fit, {3, 0, 0} if the key does not exist, {4, 0, 0} if the window was not written
-- into this server's present data, {5, 0, 0} if the key has another window.
local f = redis.call('HMGET', KEYS[1], 'w', 'id', 'used', 'cap')
if not f[1] then return {3, 0, 0} end
if f[2] ~= identity() then return {4, 0, 0} end
if f[1] ~= ARGV[1] then return {5, 0, 0} end
local used, cap = tonumber(f[3]), tonumber(f[4])
if used + tonumber(ARGV[2]) > cap then return {2, used, cap} end
return {1, redis.call('HINCRBY', KEYS[1], 'used', ARGV[2]), cap}
