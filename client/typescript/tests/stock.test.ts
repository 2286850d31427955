/** Tests of who gets which number, and of the one refill in flight. The tests are the refill. */

import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";

import { type Item, NumberRange, Run } from "../src/buffer.js";
import { OdometerError, Refused, Unreachable } from "../src/errors.js";
import { SafeHooks } from "../src/hooks.js";
import { Flight, Stock } from "../src/stock.js";
import { Waiter } from "../src/waiter.js";

const LOST = new Unreachable("no reply", "http://a", false);
const GONE = new Refused({
  status: 410,
  code: "sequence_retired",
  detail: "It is.",
  endpoint: "http://a",
});

function run(first: number, count: number): Run {
  return new Run(new NumberRange(BigInt(first), 1n, count));
}

function item(value: number): Item {
  return { value: BigInt(value), id: undefined };
}

describe("a stock", () => {
  let now = 0;
  let drops: [number, string][] = [];
  let flights: Flight[] = [];
  let stock: Stock;

  beforeEach(() => {
    now = 1_000_000;
    drops = [];
    stock = newStock();
  });

  function newStock(maxAge?: number): Stock {
    flights = [];
    const hooks = new SafeHooks({ dropped: (count, cause) => drops.push([count, cause]) });
    const made = new Stock(hooks, { initialSize: 100, maxAge }, () => now);
    made.definition = { isBuffered: true, printsValues: true };
    made.launch = (flight) => flights.push(flight);
    return made;
  }

  function flight(): Flight {
    return flights.at(-1) ?? assert.fail("no flight");
  }

  function deliver(first: number, count: number): void {
    const last = flight();
    stock.firstPause(last);
    assert.notEqual(stock.wanted(last), undefined);
    stock.deliver(last, [run(first, count)], now, now);
    assert.equal(stock.wanted(last), undefined, "one reply was not enough");
  }

  function wait(): Waiter {
    const waiter = new Waiter();
    assert.equal(stock.take(), undefined);
    stock.wait(waiter);
    return waiter;
  }

  async function isSettled(waiter: Waiter): Promise<boolean> {
    const nothing = new Promise<string>((resolve) => setImmediate(resolve, "nothing"));
    return (await Promise.race([waiter.settled, nothing])) !== "nothing";
  }

  it("starts one refill when a take finds nothing", () => {
    for (let takes = 0; takes < 5; takes += 1) {
      assert.equal(stock.take(), undefined);
    }
    assert.equal(flights.length, 1);
    deliver(1, 100);
    assert.deepEqual(stock.take(), item(1));
  });

  it("prefetches below twenty per cent, and once", () => {
    stock.take();
    deliver(1, 100);
    for (let takes = 0; takes < 80; takes += 1) {
      stock.take();
    }
    assert.equal(flights.length, 1);
    stock.take();
    stock.take();
    assert.equal(flights.length, 2);
  });

  it("has two blocks at most", () => {
    stock.take();
    deliver(1, 100);
    for (let takes = 0; takes < 85; takes += 1) {
      stock.take();
    }
    deliver(101, 1);
    for (let takes = 0; takes < 10; takes += 1) {
      stock.take();
    }
    assert.equal(flights.length, 2);
  });

  it("serves waiters in order", async () => {
    const waiters = [wait(), wait(), wait()];
    stock.deliver(flight(), [run(1, 2)], now, now);
    waiters.push(wait());
    stock.deliver(flight(), [run(3, 9)], now, now);
    const found = await Promise.all(waiters.map((waiter) => waiter.settled));
    assert.deepEqual(found, [item(1), item(2), item(3), item(4)]);
  });

  it("loses no number and no refill if a caller gives up", async () => {
    const [first, second] = [wait(), wait()];
    assert.equal(stock.withdraw(first), true);
    deliver(1, 100);
    assert.equal(stock.withdraw(second), false);
    assert.deepEqual([await isSettled(first), await second.settled], [false, item(1)]);
    assert.deepEqual(stock.take(), item(2));
  });

  it("has no refill in flight after one failed", () => {
    stock.take();
    for (const failure of [GONE, new OdometerError("a defect")]) {
      const failed = flight();
      assert.equal(stock.failed(failed, failure, true), undefined);
      stock.take();
      assert.notEqual(flight(), failed);
    }
    // However a refill ends: its flight ends with it.
    const ended = flight();
    stock.end(ended, new TypeError("a defect"));
    stock.take();
    assert.notEqual(flight(), ended);
  });

  it("would start no refill if a flight had no end", () => {
    stock.take();
    stock.firstPause(flight());
    now += 3_600_000;
    stock.take();
    assert.equal(flights.length, 1);
  });

  it("tries again, and ends a refill if nobody waits", async () => {
    stock.take();
    const nobodys = flight();
    const pauses = Array.from({ length: 10 }, () => stock.failed(nobodys, LOST, true));
    assert.ok(pauses.slice(0, 9).every((pause) => pause !== undefined));
    assert.equal(pauses.at(-1), undefined);
    const waiter = wait();
    const awaited = flight();
    for (let attempts = 0; attempts < 25; attempts += 1) {
      assert.notEqual(stock.failed(awaited, LOST, true), undefined);
    }
    assert.equal(await isSettled(waiter), false);
  });

  it("tells a refusal to all who wait", async () => {
    const waiters = [wait(), wait(), wait()];
    stock.failed(flight(), GONE, true);
    const found = await Promise.allSettled(waiters.map((waiter) => waiter.settled));
    assert.deepEqual(
      found.map((it) => it.status === "rejected" && it.reason === GONE),
      [true, true, true],
    );
  });

  it("lets nobody wait for a pause who asks again after a refusal", async () => {
    stock.take();
    stock.failed(flight(), GONE, true);
    const waiter = wait();
    await flight().pause(60_000);
    deliver(1, 100);
    assert.deepEqual(await waiter.settled, item(1));
  });

  it("pauses before the next refill after a failure", () => {
    stock.take();
    for (let attempts = 0; attempts < 10; attempts += 1) {
      stock.failed(flight(), LOST, true);
    }
    stock.take();
    assert.ok(stock.firstPause(flight()) > 0);
    now += 2_000;
    assert.equal(stock.firstPause(flight()), 0);
  });

  it("drops what was on its way when it forgets", async () => {
    const waiter = wait();
    const old = flight();
    stock.forget("forget");
    stock.deliver(old, [run(1, 100)], now, now);
    assert.equal(await isSettled(waiter), false);
    assert.deepEqual(drops, [[100, "forget"]]);
    deliver(101, 100);
    assert.deepEqual(await waiter.settled, item(101));
    stock.forget("forget");
    assert.deepEqual(drops.at(-1), [99, "forget"]);
  });

  it("drops old numbers", () => {
    stock = newStock(10_000);
    stock.take();
    deliver(1, 100);
    now += 9_900;
    assert.deepEqual(stock.take(), item(1));
    now += 200;
    assert.equal(stock.take(), undefined);
    assert.deepEqual(drops, [[99, "max_age"]]);
  });

  it("waits for the count of a warm start", async () => {
    const waiter = new Waiter(250);
    stock.warm(waiter);
    const warming = flight();
    assert.equal(stock.wanted(warming), 250);
    stock.deliver(warming, [run(1, 200)], now, now);
    assert.equal(await isSettled(waiter), false);
    assert.equal(stock.wanted(warming), 50);
    deliver(201, 50);
    assert.equal(await isSettled(waiter), true);
  });

  it("keeps no number of a sequence that turns out to be unbuffered", async () => {
    stock.definition = undefined;
    const [first, second] = [wait(), wait()];
    const unbuffered = { isBuffered: false, printsValues: true };
    stock.learned(flight(), unbuffered, [run(1, 1)]);
    assert.deepEqual([await first.settled, await second.settled], [item(1), undefined]);
    stock.definition = undefined;
    stock.take();
    stock.learned(flight(), unbuffered, [run(2, 1)]);
    assert.deepEqual([stock.left, drops], [0, [[1, "late"]]]);
  });
});
