/** Tests of alarms. */

import assert from "node:assert/strict";
import { describe, it, mock } from "node:test";

import { Client } from "../src/client.js";
import { Alarm, monotonic, oneRound, sleep } from "../src/clock.js";
import { Stub } from "./stub.js";

/** Keeps the event loop from going round. */
function block(ms: number): void {
  const until = monotonic() + ms;
  while (monotonic() < until);
}

describe("an alarm", () => {
  it("rings after its time", async () => {
    const began = monotonic();
    await sleep(20, true);
    assert.ok(monotonic() - began >= 19);
  });

  it("never rings once it is cancelled", async () => {
    let rang = 0;
    const alarms = [5, 10].map((ms) => new Alarm(ms, true, () => (rang += 1)));
    alarms.forEach((alarm) => alarm.cancel());
    await sleep(30, true);
    assert.equal(rang, 0);
  });

  it("waits until what has arrived was read", async () => {
    // Of two things that are due after the block, the one that was read first counts.
    const seen: string[] = [];
    new Alarm(1, true, () => seen.push("alarm"));
    const channel = new MessageChannel();
    channel.port2.on("message", () => seen.push("message"));
    channel.port1.postMessage("it has arrived");
    block(20);
    await sleep(20, true);
    channel.port1.close();
    assert.deepEqual(seen, ["message", "alarm"]);
  });

  it("takes a time without end", async () => {
    let rang = false;
    const alarm = new Alarm(Infinity, false, () => (rang = true));
    await sleep(20, true);
    alarm.cancel();
    assert.equal(rang, false);
  });
});

describe("a round of the event loop", () => {
  it("lets timers fire that are due", async () => {
    let fired = false;
    setTimeout(() => (fired = true), 1);
    block(5);
    await oneRound();
    assert.equal(fired, true);
  });
});

describe("the timers of a client", () => {
  /** Takes a number, and says at the deadline that none came. */
  async function check(): Promise<void> {
    const stub = await Stub.start();
    const client = new Client({ endpoints: stub.url, deadline: 20_000 });
    assert.equal(await client.sequence("orders").next(), 1n);
    const never = new Promise<"go on">(() => undefined);
    stub.answer = () => never;
    const hurried = new Client({ endpoints: stub.url, deadline: 50 });
    await assert.rejects(hurried.sequence("orders").next(), { code: "deadline" });
    hurried.close();
    client.close();
    await stub.close();
  }

  it("are not the false ones of a program's tests", async () => {
    mock.timers.enable({ apis: ["setTimeout", "setImmediate"] });
    try {
      await check();
    } finally {
      mock.timers.reset();
    }
  });

  it("do not need those of Node in the global object", async () => {
    const { setTimeout: global, setImmediate: globalImmediate } = globalThis;
    // As in a window of a browser.
    globalThis.setTimeout = ((...call: Parameters<typeof global>) =>
      Number(global(...call))) as unknown as typeof global;
    globalThis.setImmediate = undefined as unknown as typeof globalImmediate;
    try {
      await check();
    } finally {
      globalThis.setTimeout = global;
      globalThis.setImmediate = globalImmediate;
    }
  });
});
