/** Tests of numbers in several threads and processes, and of the end of a process. */

import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { Worker } from "node:worker_threads";

import { Client } from "../src/client.js";
import { gate, isPost, Stub, until } from "./stub.js";

/** How many numbers each thread and process takes. All of them have more in memory. */
const N_EACH = 20;
const TAKER = join(__dirname, "taker.js");
const CLUSTER = join(__dirname, "cluster.js");

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

/** Returns the next message of a thread or process. Fails if it ends without one. */
async function messageOf(source: Worker | ChildProcess): Promise<string[]> {
  const events: NodeJS.EventEmitter = source;
  // All messages come before this.
  const end = source instanceof Worker ? "exit" : "disconnect";
  const ended = once(events, end).then(() => {
    throw new Error("it ended, and sent nothing");
  });
  const [message] = (await Promise.race([once(events, "message"), ended])) as [string[]];
  return message;
}

function ofThread(): Promise<string[]> {
  return messageOf(new Worker(TAKER, { workerData: stub.url }));
}

function ofProcess(module: string): Promise<string[]> {
  return messageOf(fork(module, [stub.url]));
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
  it("ends although a refill is under way", async () => {
    const { answer } = gate(isPost);
    stub.answer = answer;
    const child = fork(TAKER, [stub.url, "end"]);
    const exit = once(child, "exit");
    await until(() => stub.posts.length === 1);
    child.send("the refill is under way");
    // No reply ever comes, and no time of the client ends.
    assert.deepEqual(await exit, [0, null]);
    assert.deepEqual(stub.calls, ["GET orders", "POST next?count=100&ids=false"]);
  });

  it("does not end while a caller waits", async () => {
    const { answer, open } = gate(() => true);
    stub.answer = answer;
    const child = fork(TAKER, [stub.url, "stay"]);
    assert.deepEqual(await messageOf(child), ["it stays"]);
    open();
    assert.equal((await messageOf(child)).length, N_EACH);
  });
});
