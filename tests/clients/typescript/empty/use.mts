/** Takes numbers in an empty project, by `import`, and prints them. */

import { Client, Empty, type Hooks, NumberRange, OdometerError } from "odometer-client";

import odometer = require("odometer-client");

declare const process: { readonly argv: readonly string[] };
declare const console: { log(text: string): void };

const outcomes: string[] = [];
const hooks: Hooks = { refill: (_sequence, _endpoint, outcome) => outcomes.push(outcome) };
// A busy machine may be slow.
const client = new Client({ endpoints: process.argv[2], deadline: 20_000, hooks });
const orders = client.sequence("orders");
await orders.warm(10);
const numbers: bigint[] = [orders.take(), await orders.next(), BigInt(orders.takeId())];
// A part of the program may use `require`. It has the same classes, and they are one type.
const same: odometer.Sequence = orders;
if (odometer.Empty !== Empty) {
  throw new TypeError("`import` and `require` give two copies");
}
const range: NumberRange = await same.range(3);
numbers.push(...range);
const empty = client.sequence("empty");
try {
  empty.take();
} catch (error) {
  if (!(error instanceof OdometerError) || error.code !== "empty" || !outcomes.includes("ok")) {
    throw error;
  }
}
console.log(JSON.stringify(numbers.map(String)));
client.close();
