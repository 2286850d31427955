# What a program does with the gem `redis` of Ruby.
#
# Takes the host and the port of a listener, and its password. Prints one line of JSON.

require "json"
require "redis"

host, port, password = ARGV
redis = Redis.new(host: host, port: Integer(port), password: password)
given = {
  library: "redis-rb",
  one: redis.incr("orders"),
  last: redis.incrby("orders", 5),
  transaction: redis.multi { |multi| 2.times { multi.incr("orders") } },
  together: redis.pipelined { |pipeline| 2.times { pipeline.incr("orders") } },
}
begin
  redis.decr("orders")
rescue Redis::CommandError => error
  given[:refused] = error.message
end
puts JSON.generate(given)
