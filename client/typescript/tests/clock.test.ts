/** Tests of alarms. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Alarm, monotonic, oneRound, sleep } from "../src/clock.js";

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
