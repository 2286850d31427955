/** Tests of numbers in several threads and processes, and of the end of a process. */

import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { afterEach, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { Client } from "../src/client.js";
import { Stub } from "./stub.js";

/** How many numbers each thread and process takes. All of them have more in memory. */
const N_EACH = 20;
const TAKER = new URL("./taker.js", import.meta.url);
const CLUSTER = new URL("./cluster.js", import.meta.url);

let stub: Stub;

beforeEach(async () => {
  stub = await Stub.start();
});

afterEach(() => stub.close());

async function own(): Promise<string[]> {
  const client = new Client({ endpoints: stub.url, deadline: 20_000 });
  const orders = client.sequence("orders");
  await orders.warm(100);
  const numbers = Array.from({ length: N_EACH }, () => String(orders.take()));
  client.close();
  return numbers;
}

function ofThread(): Promise<string[]> {
  const worker = new Worker(TAKER, { workerData: stub.url });
  return new Promise((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}

function ofProcess(module: URL): Promise<string[]> {
  const child = fork(fileURLToPath(module), [stub.url]);
  return new Promise((resolve, reject) => {
    child.once("message", (numbers) => resolve(numbers as string[]));
    child.once("error", reject);
  });
}

/** Returns how many numbers came more than once. */
function nRepeated(parts: string[][]): number {
  const all = parts.flat();
  assert.equal(all.length % N_EACH, 0);
  return all.length - new Set(all).size;
}

describe("threads and processes", () => {
  it("have numbers of their own in worker threads", async () => {
    assert.equal(nRepeated(await Promise.all([own(), ofThread(), ofThread()])), 0);
  });

  it("have numbers of their own in forked processes", async () => {
    assert.equal(nRepeated(await Promise.all([own(), ofProcess(TAKER), ofProcess(TAKER)])), 0);
  });

  it("have numbers of their own in a cluster", async () => {
    const workers = await ofProcess(CLUSTER);
    assert.equal(workers.length, 2 * N_EACH);
    assert.equal(nRepeated([await own(), workers]), 0);
  });

  it("would be found out if they had the same numbers", async () => {
    // The stub gives each of them the same block, as if memory had been copied.
    stub.answer = (call) => {
      stub.next = 1n;
      return call === "" ? "lose" : "go on";
    };
    const parts = await Promise.all([own(), ofThread(), ofProcess(TAKER), ofProcess(CLUSTER)]);
    assert.equal(nRepeated(parts), 4 * N_EACH);
  });

  it("cannot get the numbers of a sequence by a copy of it", async () => {
    const client = new Client({ endpoints: stub.url, deadline: 20_000 });
    const orders = client.sequence("orders");
    await orders.warm(100);
    const copy = structuredClone(orders);
    assert.deepEqual([Object.keys(copy), typeof copy.take], [["name"], "undefined"]);
    client.close();
  });
});

describe("a process", () => {
  /** Ends a process that waits for nothing but its refill. Returns its exit code. */
  function ended(child: ChildProcess): Promise<number | null> {
    return new Promise((resolve) => child.once("exit", resolve));
  }

  it("ends although a refill is under way", async () => {
    const never = new Promise<"go on">(() => undefined);
    stub.answer = (call) => (call.startsWith("POST") ? never : "go on");
    const child = fork(fileURLToPath(TAKER), [stub.url, "take"]);
    const began = performance.now();
    assert.equal(await ended(child), 0);
    assert.ok(performance.now() - began < 6_000, "it waited for its refill");
    assert.deepEqual(stub.calls, ["GET orders", "POST next?count=100&ids=false"]);
  });

  it("does not end while a caller waits", async () => {
    let open: () => void = () => undefined;
    const gate = new Promise<"go on">((resolve) => (open = () => resolve("go on")));
    stub.answer = () => gate;
    const numbers = ofProcess(TAKER);
    setTimeout(open, 500);
    assert.equal((await numbers).length, N_EACH);
  });
});
