/** Takes numbers in a thread or process of its own, and sends them to the test. */

import { parentPort, workerData } from "node:worker_threads";

import { Client } from "../src/client.js";

const N_EACH = 20;
const [, , url = workerData as string, step] = process.argv;

const client = new Client({ endpoints: url, deadline: 20_000 });
const orders = client.sequence("orders");
if (step === "take") {
  // Starts a refill, for which nobody waits. The call gets out first.
  try {
    orders.take();
  } catch {
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
} else {
  await orders.warm(100);
  const numbers = Array.from({ length: N_EACH }, () => String(orders.take()));
  if (parentPort === null) {
    process.send?.(numbers, () => process.disconnect());
  } else {
    parentPort.postMessage(numbers);
  }
}
