/** Takes numbers in an empty project, by `import`, and prints them. */

import { Client, type Hooks, NumberRange, OdometerError } from "odometer-client";

declare const process: { readonly argv: readonly string[] };
declare const console: { log(text: string): void };

const outcomes: string[] = [];
const hooks: Hooks = { refill: (_sequence, _endpoint, outcome) => outcomes.push(outcome) };
const client = new Client({ endpoints: process.argv[2], hooks });
const orders = client.sequence("orders");
await orders.warm(10);
const numbers: bigint[] = [orders.take(), await orders.next(), BigInt(orders.takeId())];
const range: NumberRange = await orders.range(3);
numbers.push(...range);
const empty = client.sequence("empty");
try {
  empty.take();
} catch (error) {
  if (!(error instanceof OdometerError) || error.code !== "empty" || outcomes[0] !== "ok") {
    throw error;
  }
}
console.log(JSON.stringify(numbers.map(String)));
client.close();
