// What programs do with ioredis, and with the package `redis`.
//
// Takes the host and the port of a listener, and its password. Prints one line of JSON for each
// library.

import { Redis } from "ioredis";
import { createClient } from "redis";

const [host, port, password] = process.argv.slice(2);

const tell = (library, given) => console.log(JSON.stringify({ library, ...given }));

const refused = async (command) => {
  try {
    await command();
    return "";
  } catch (error) {
    return error.message;
  }
};

const io = new Redis({ host, port: Number(port), password });
tell("ioredis", {
  one: await io.incr("orders"),
  last: await io.incrby("orders", 5),
  transaction: (await io.multi().incr("orders").incr("orders").exec()).map(([, number]) => number),
  together: await Promise.all([io.incr("orders"), io.incr("orders")]),
  refused: await refused(() => io.decr("orders")),
});
io.disconnect();

const client = createClient({ url: `redis://:${password}@${host}:${port}`, name: "js" });
client.on("error", (error) => {
  console.error(error);
  process.exit(1);
});
await client.connect();
tell("redis for Node.js", {
  one: await client.incr("orders"),
  last: await client.incrBy("orders", 5),
  transaction: await client.multi().incr("orders").incr("orders").exec(),
  together: await Promise.all([client.incr("orders"), client.incr("orders")]),
  refused: await refused(() => client.decr("orders")),
});
client.destroy();
