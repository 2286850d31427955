-- Returns which process this is and which history its data has. The identity changes at a restart,
-- at a promotion, and when the server takes over the data of another one.
local function identity()
  local info = redis.call('INFO', 'server', 'replication')
  return string.match(info, 'run_id:(%x+)') .. ':' .. string.match(info, 'master_replid:(%x+)')
end
