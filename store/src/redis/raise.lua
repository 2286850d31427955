-- Raises the ceiling of a window, which never falls. ARGV: window, cap, milliseconds to live.
-- Returns what `step.lua` returns.
local f = redis.call('HMGET', KEYS[1], 'w', 'id', 'used', 'cap')
if not f[1] then return {3, 0, 0} end
if f[2] ~= identity() then return {4, 0, 0} end
if f[1] ~= ARGV[1] then return {5, 0, 0} end
local used, cap = tonumber(f[3]), tonumber(f[4])
if tonumber(ARGV[2]) > cap then
  redis.call('HSET', KEYS[1], 'cap', ARGV[2])
  cap = tonumber(ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, used, cap}
