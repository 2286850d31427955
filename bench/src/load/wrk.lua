-- The requests of one run of wrk, and its results as one line of JSON.
--
-- Arguments after the address: how many requests are sent at once (1 to 64), how many names are
-- asked in turn (0: the path as it is, else NAME of the path is n0, n1 ...), headers as "name: value".
local depth, n_names, at
local requests = {}

function init(arguments)
  depth = tonumber(arguments[1])
  n_names = tonumber(arguments[2])
  at = 0
  wrk.method = "POST"
  for i = 3, #arguments do
    local name, value = arguments[i]:match("^([^:]+): (.*)$")
    wrk.headers[name] = value
  end
  if n_names == 0 then
    local one = wrk.format()
    requests[0] = one:rep(depth)
    n_names = 1
  else
    for i = 0, n_names - 1 do
      local path = wrk.path:gsub("NAME", "n" .. i)
      requests[i] = wrk.format(nil, path):rep(depth)
    end
  end
end

function request()
  local next = requests[at]
  at = at + 1
  if at == n_names then at = 0 end
  return next
end

function done(summary, latency)
  local errors = summary.errors
  -- Counted among the requests, which those without an answer are not.
  local refused = errors.status
  local unanswered = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format(
    '{"requests":%d,"micros":%d,"refused":%d,"unanswered":%d,"latency":{"p50":%d,"p75":%d,"p90":%d,"p95":%d,' ..
    '"p99":%d,"p99.9":%d,"p99.99":%d,"max":%d}}\n',
    summary.requests, summary.duration, refused, unanswered, latency:percentile(50),
    latency:percentile(75), latency:percentile(90), latency:percentile(95), latency:percentile(99),
    latency:percentile(99.9), latency:percentile(99.99), latency.max))
end
