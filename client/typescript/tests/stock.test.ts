/** Tests of who gets which number, and of the one refill in flight. The tests are the refill. */

import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";

import { type Item, NumberRange, Run } from "../src/buffer.js";
import { type Definition, UNBUFFERED } from "../src/definition.js";
import { OdometerError, Refused, Unreachable } from "../src/errors.js";
import { SafeHooks } from "../src/hooks.js";
import { type Flight, Stock } from "../src/stock.js";
import { Waiter } from "../src/waiter.js";

const BUFFERED: Definition = { isBuffered: true, printsValues: true };
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
    made.definition = BUFFERED;
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

  it("asks for as many numbers as callers wait for", async () => {
    const waiters = Array.from({ length: 150 }, wait);
    assert.equal(stock.wanted(flight()), 150);
    stock.deliver(flight(), [run(1, 150)], now, now);
    assert.deepEqual(await waiters.at(-1)?.settled, item(150));
  });

  it("serves waiters in order", async () => {
    const waiters = [wait(), wait(), wait()];
    stock.deliver(flight(), [run(1, 2)], now, now);
    waiters.push(wait());
    stock.deliver(flight(), [run(3, 9)], now, now);
    const found = await Promise.all(waiters.map((waiter) => waiter.settled));
    assert.deepEqual(found, [item(1), item(2), item(3), item(4)]);
  });

  it("keeps callers in line if an exception breaks off their number", () => {
    const waiter = wait();
    const ids = new Proxy(["a"], {
      get(): never {
        throw new RangeError("the stack is full");
      },
    });
    const broken = new Run(new NumberRange(1n, 1n, 1), ids);
    assert.throws(() => stock.deliver(flight(), [broken], now, now), RangeError);
    assert.equal(stock.withdraw(waiter), true);
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
      assert.equal(stock.lastError, failure);
    }
  });

  it("has no refill in flight if none could be started", () => {
    const { launch } = stock;
    stock.launch = () => {
      throw new RangeError("the stack is full");
    };
    assert.throws(() => stock.take(), RangeError);
    stock.launch = launch;
    stock.take();
    assert.equal(flights.length, 1);
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

  it("lets no caller who asks again after a refusal wait for a pause", async () => {
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

  it("drops what was on its way, and says why", async () => {
    const waiter = wait();
    const old = flight();
    stock.dropAll("forget");
    stock.deliver(old, [run(1, 100)], now, now);
    assert.equal(await isSettled(waiter), false);
    assert.deepEqual(drops, [[100, "forget"]]);
    deliver(101, 100);
    assert.deepEqual(await waiter.settled, item(101));
    stock.dropAll("forget");
    assert.deepEqual(drops.at(-1), [99, "forget"]);
    stock.take();
    const closed = flight();
    stock.dropAll("close");
    stock.deliver(closed, [run(201, 7)], now, now);
    assert.deepEqual(drops.at(-1), [7, "close"]);
  });

  it("starts no refill when it drops all, unless somebody waits", () => {
    stock.take();
    stock.dropAll("forget");
    assert.equal(flights.length, 1);
    wait();
    stock.dropAll("forget");
    assert.equal(flights.length, 3);
  });

  it("fails all who wait if it is told to", async () => {
    const waiters = [wait(), wait()];
    const settled = Promise.allSettled(waiters.map((waiter) => waiter.settled));
    stock.dropAll("close", GONE);
    assert.ok((await settled).every((it) => it.status === "rejected" && it.reason === GONE));
    assert.equal(flights.length, 1);
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
    stock.learned(flight(), UNBUFFERED, [run(1, 1)], now);
    assert.deepEqual([await first.settled, await second.settled], [item(1), undefined]);
    stock.definition = undefined;
    stock.take();
    stock.learned(flight(), UNBUFFERED, [run(2, 1)], now);
    assert.deepEqual([stock.left, drops], [0, [[1, "late"]]]);
  });

  it("lets callers go on if a forgotten refill learns that it is unbuffered", async () => {
    stock.definition = undefined;
    const waiter = wait();
    const warming = new Waiter(5);
    stock.warm(warming);
    const old = flight();
    stock.dropAll("forget");
    assert.notEqual(flight(), old);
    // The new flight waits after a failure.
    stock.failed(flight(), LOST, true);
    stock.learned(old, UNBUFFERED, [run(1, 1)], now);
    assert.equal(await isSettled(waiter), true);
    assert.deepEqual([await waiter.settled, await warming.settled], [undefined, undefined]);
    assert.deepEqual(drops, [[1, "forget"]]);
    assert.equal(stock.wanted(flight()), undefined);
  });

  it("counts the age of a first number from its call", () => {
    stock = newStock(10_000);
    stock.definition = undefined;
    stock.take();
    stock.learned(flight(), BUFFERED, [run(1, 1)], now - 9_000);
    assert.equal(stock.left, 1);
    now += 2_000;
    assert.equal(stock.left, 0);
    assert.deepEqual(drops, [[1, "max_age"]]);
  });
});
