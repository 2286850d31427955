-- Which process this is, and which history its data has: another one after a restart, after a
-- promotion, and after data was taken over from another server.
local function identity()
  local info = redis.call('INFO', 'server', 'replication')
  return string.match(info, 'run_id:(%x+)') .. ':' .. string.match(info, 'master_replid:(%x+)')
end
