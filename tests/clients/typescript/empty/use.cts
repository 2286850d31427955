/** Takes numbers in an empty project, by `require`, and prints them. */

import odometer = require("odometer-client");

declare const process: { readonly argv: readonly string[] };
declare const console: { log(text: string): void };

async function main(): Promise<void> {
  // A busy machine may be slow.
  const client = new odometer.Client({ endpoints: process.argv[2], deadline: 20_000 });
  const orders: odometer.Sequence = client.sequence("orders");
  const numbers: bigint[] = [];
  for (let left = 6; left > 0; left -= 1) {
    numbers.push(await orders.next());
  }
  console.log(JSON.stringify(numbers.map(String)));
  client.close();
}

void main();
