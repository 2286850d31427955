/** A cluster of two processes, which take numbers. Its primary process sends all to the test. */

import cluster from "node:cluster";
import { join } from "node:path";

const N_WORKERS = 2;
const [, , url = ""] = process.argv;

async function main(): Promise<void> {
  cluster.setupPrimary({ exec: join(__dirname, "taker.js"), args: [url] });
  const parts = Array.from({ length: N_WORKERS }, () => {
    const worker = cluster.fork();
    return new Promise<string[]>((resolve) => worker.once("message", resolve));
  });
  const numbers = (await Promise.all(parts)).flat();
  process.send?.(numbers, () => process.disconnect());
}

void main();
