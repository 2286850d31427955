/** Takes numbers in a thread or process of its own, and sends them to the test. */

import { parentPort, workerData } from "node:worker_threads";

import { Client } from "../src/client.js";

const N_EACH = 20;
const [, , url = workerData as string, step] = process.argv;

const client = new Client({ endpoints: url, deadline: 20_000, refillTimeout: 3_600_000 });
const orders = client.sequence("orders");

/** Starts a refill for which nobody waits. The test says when its call is under way. */
function takeAndEnd(): void {
  process.once("message", () => process.disconnect());
  try {
    orders.take();
  } catch {
    // Nothing is in memory.
  }
}

async function takeAll(): Promise<void> {
  await orders.warm(100);
  const numbers = Array.from({ length: N_EACH }, () => String(orders.take()));
  if (parentPort === null) {
    process.send?.(numbers, () => process.disconnect());
  } else {
    parentPort.postMessage(numbers);
  }
}

if (step === "end") {
  takeAndEnd();
} else {
  if (step === "stay") {
    // The timer itself lets the process end, so it fires only if something else keeps it alive.
    setTimeout(() => process.send?.(["it stays"]), 300).unref();
  }
  void takeAll();
}
