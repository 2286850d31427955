/** Tests of whole calls, against a stub of the service. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it, mock } from "node:test";

import { Client, type ClientOptions } from "../src/client.js";
import { monotonic } from "../src/clock.js";
import { DeadlinePassed, Empty, OdometerError, WouldBlock } from "../src/errors.js";
import type { Sequence } from "../src/sequence.js";
import { VERSION } from "../src/service.js";
import { Stock } from "../src/stock.js";
import type { Waiter } from "../src/waiter.js";
import { type Deed, gate, isPost, isRefused, once, refusal, Stub, until } from "./stub.js";

let stub: Stub;
let other: Stub | undefined;
let outcomes: string[];
let waits: number[];
let clients: Client[];
let orders: Sequence;

/** Makes a client that is patient, because a busy machine may be slow. */
function client(options: ClientOptions = {}): Client {
  const made = new Client({ endpoints: stub.url, deadline: 20_000, ...options });
  clients.push(made);
  return made;
}

async function nexts(sequence: Sequence, count: number): Promise<bigint[]> {
  const numbers = [];
  for (let left = count; left > 0; left -= 1) {
    numbers.push(await sequence.next());
  }
  return numbers;
}

function upTo(last: number): bigint[] {
  return Array.from({ length: last }, (_, at) => BigInt(at + 1));
}

beforeEach(async () => {
  stub = await Stub.start();
  // A refill of the test before may still report to that test.
  const ofThisTest: [string[], number[]] = [[], []];
  [outcomes, waits] = ofThisTest;
  clients = [];
  const hooks = {
    refill: (_: string, __: string, outcome: string) => ofThisTest[0].push(outcome),
    waited: (seconds: number) => ofThisTest[1].push(seconds),
  };
  orders = client({ hooks }).sequence("orders");
});

afterEach(async () => {
  mock.restoreAll();
  clients.forEach((it) => it.close());
  await stub.close();
  await other?.close();
  other = undefined;
});

describe("a client", () => {
  it("calls once for many numbers", async () => {
    // Few enough that no rate starts a prefetch.
    assert.deepEqual(await nexts(orders, 60), upTo(60));
    assert.deepEqual(stub.calls, ["GET orders", "POST next?count=100&ids=false"]);
    const headers = stub.headers[1] ?? {};
    assert.match(String(headers["traceparent"]), /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
    assert.equal(headers["idempotency-key"], undefined);
    assert.equal(headers["user-agent"], `odometer-client-typescript/${VERSION}`);
  });

  it("never waits to take", async () => {
    assert.throws(() => orders.take(), Empty);
    await until(() => orders.left > 0);
    assert.deepEqual([orders.take(), orders.takeId()], [1n, "2"]);
    assert.equal(waits.length, 0);
  });

  it("says how many numbers are left and how fast they are taken", async () => {
    await nexts(orders, 11);
    assert.equal(orders.left, 89);
    assert.ok(orders.rate > 0 && orders.rate <= 10, `${orders.rate}`);
    assert.equal(waits.length, 1);
  });

  it("asks again with the limit of a refused size", async () => {
    const refusals = { invalid_count: 400, confirm_needed: 409, rate_limited: 429 };
    for (const [code, status] of Object.entries(refusals)) {
      stub.answer = once(refusal(status, code, { limit: "50" }), isPost);
      await orders.warm(60);
      assert.equal(stub.posts[1], "POST next?count=50&ids=false");
      stub.calls = [];
      orders.forget();
    }
    assert.deepEqual(outcomes, ["resized", "ok", "resized", "ok", "resized", "ok"]);
  });

  it("asks again with a limit only once", async () => {
    stub.answer = (call) => {
      const limit = call.includes("count=100") ? "50" : "7";
      return isPost(call) ? refusal(400, "invalid_count", { limit }) : "go on";
    };
    await assert.rejects(orders.next(), isRefused("invalid_count"));
    assert.equal(stub.posts.length, 2);
  });

  it("stays with next without the right block", async () => {
    stub.answer = (call) => (call.includes("blocks") ? refusal(403, "forbidden") : "go on");
    await orders.warm(25_000);
    const batch = "POST next?count=10000&ids=false";
    const last = "POST next?count=5000&ids=false";
    assert.deepEqual(stub.posts, ["POST blocks?size=25000", batch, batch, last]);
  });

  it("measures each refill by itself", async () => {
    const deliver = mock.method(Stock.prototype, "deliver");
    stub.answer = (call) => (call.includes("blocks") ? refusal(403, "forbidden") : "go on");
    await orders.warm(25_000);
    const times = deliver.mock.calls.map(({ arguments: [, , asked, began] }) => [began, asked]);
    assert.equal(times.length, 3);
    const inOrder = [...times].flat().sort((one, other) => one - other);
    assert.deepEqual(times.flat(), inOrder);
  });

  it("takes batches while the database is away", async () => {
    const away = refusal(503, "store_unavailable");
    stub.answer = (call) => (call.includes("blocks") ? away : "go on");
    await orders.warm(11_000);
    const batches = ["POST next?count=10000&ids=false", "POST next?count=1000&ids=false"];
    assert.deepEqual(stub.posts, ["POST blocks?size=11000", ...batches]);
  });

  it("takes the last numbers one at a time", async () => {
    const end = refusal(409, "sequence_exhausted");
    stub.answer = (call) => (call.includes("count=100") ? end : "go on");
    assert.equal(await orders.next(), 1n);
    assert.equal(stub.posts[1], "POST next?count=1&ids=false");
  });

  it("keeps an error that nobody foresaw, and tells all who wait", async () => {
    const warned = new Promise<Error>((resolve) => process.once("warning", resolve));
    mock.method(http, "request", () => {
      throw new TypeError("a defect");
    });
    const isDefect = (error: unknown): boolean =>
      error instanceof OdometerError && /a defect/.test(String(error.cause));
    await assert.rejects(orders.next(), isDefect);
    mock.restoreAll();
    const isLast = (error: unknown): boolean => error instanceof Empty && isDefect(error.cause);
    assert.throws(() => orders.take(), isLast);
    assert.match((await warned).message, /a refill of orders failed: TypeError: a defect/);
    assert.equal(await orders.next(), 1n);
  });

  it("loses the numbers of a lost reply and repeats none", async () => {
    const lose = once("lose", isPost);
    stub.answer = (call) => {
      const deed = lose(call);
      if (deed === "lose") {
        stub.take(100);
      }
      return deed;
    };
    assert.equal(await orders.next(), 101n);
    assert.deepEqual(outcomes, ["connection", "ok"]);
  });

  it("takes other refusals as final", async () => {
    stub.answer = once(refusal(410, "sequence_retired"), isPost);
    await assert.rejects(orders.next(), isRefused("sequence_retired"));
    assert.equal(await orders.next(), 1n);
  });

  it("ends a wait at the deadline, and not the refill", async () => {
    const { answer, open } = gate(() => true);
    stub.answer = answer;
    const hurried = client({ deadline: 50 }).sequence("orders");
    await assert.rejects(hurried.next(), DeadlinePassed);
    await assert.rejects(hurried.warm(5), DeadlinePassed);
    open();
    await until(() => hurried.left === 100);
    assert.deepEqual([await hurried.next(), stub.posts.length], [1n, 1]);
  });

  it("leaves nobody in line if a wait cannot begin", async () => {
    const { wait } = Stock.prototype;
    mock.method(Stock.prototype, "wait", function (this: Stock, waiter: Waiter): void {
      wait.call(this, waiter);
      throw new RangeError("the stack is full");
    });
    await assert.rejects(orders.next(), RangeError);
    mock.restoreAll();
    // The first number is for the first caller who waits.
    assert.equal(await orders.next(), 1n);
  });

  it("says at the deadline why no number came", async () => {
    stub.answer = () => refusal(503, "store_unavailable");
    const hurried = client({ deadline: 50 }).sequence("orders");
    const isExplained = (error: unknown): boolean =>
      error instanceof DeadlinePassed && isRefused("store_unavailable")(error.cause);
    await assert.rejects(hurried.next(), isExplained);
  });

  it("calls another endpoint if one fails", async () => {
    other = await Stub.start();
    const { url } = other;
    await other.close();
    mock.method(Math, "random", () => 0);
    const seen: string[] = [];
    const refill = (_: string, endpoint: string): void => void seen.push(endpoint);
    const both = client({ endpoints: [url, stub.url], hooks: { refill } });
    mock.restoreAll();
    assert.equal(await both.sequence("orders").next(), 1n);
    assert.deepEqual([seen[0], seen.at(-1)], [url, stub.url]);
  });

  it("creates an unknown name by taking its first number", async () => {
    const unknown = refusal(404, "sequence_not_found");
    stub.answer = once(unknown, (call) => call === "GET orders");
    assert.deepEqual(await nexts(orders, 3), [1n, 2n, 3n]);
    assert.equal(stub.posts[0], "POST next?count=1");
    assert.deepEqual(outcomes, ["ok", "ok"]);
  });

  it("makes a call for each number of a sequence that must not be buffered", async () => {
    for (const change of [{ order: "strict" }, { period: "day" }, { kind: "snowflake" }]) {
      stub.definition = { ...stub.definition, ...change };
      const sequence = client().sequence("orders");
      stub.calls = [];
      await nexts(sequence, 2);
      await sequence.warm(5);
      assert.deepEqual([stub.posts, sequence.left], [["POST next", "POST next"], 0]);
      assert.throws(() => sequence.take(), WouldBlock);
    }
  });

  it("tries a call again if that can help", async () => {
    stub.definition["order"] = "strict";
    const strict = client().sequence("strict");
    for (const status of [429, 502, 503, 504]) {
      stub.answer = once(refusal(status, "any"), isPost);
      assert.ok((await strict.next()) > 0n, `${status}`);
    }
    assert.equal(stub.posts.length, 8);
    stub.answer = once(refusal(500, "internal"), isPost);
    await assert.rejects(strict.next(), isRefused("internal"));
    assert.equal(stub.posts.length, 9);
  });

  it("pauses longer before each try of a call", async () => {
    const refusals = Array<Deed>(3).fill(refusal(503, "store_unavailable"));
    stub.answer = () => refusals.shift() ?? "go on";
    const orders = client().sequence("orders", { period: "a" });
    mock.method(Math, "random", () => 0.999);
    const began = monotonic();
    assert.equal(await orders.next(), 1n);
    // Up to 50, 100 and 200 ms.
    assert.ok(monotonic() - began > 330);
  });

  it("ends a call at the deadline of its caller, and blames no replica for it", async () => {
    other = await Stub.start();
    stub.definition["order"] = "strict";
    mock.method(Math, "random", () => 0);
    const endpoints = [stub.url, other.url];
    const one = client({ endpoints, deadline: 300, refillTimeout: 3_600_000 });
    const strict = one.sequence("strict");
    // A busy machine may be slow.
    await strict.warm(1, 20_000);
    const { answer, open } = gate(isPost);
    stub.answer = answer;
    await assert.rejects(strict.next(), DeadlinePassed);
    open();
    await one.sequence("more").warm(1, 20_000);
    assert.deepEqual([stub.calls.at(-1), other.calls], ["GET more", []]);
  });

  it("leaves a replica that gives callers in a hurry no reply for a second", async () => {
    other = await Stub.start();
    stub.definition["order"] = "strict";
    mock.method(Math, "random", () => 0);
    const one = client({ endpoints: [stub.url, other.url], deadline: 300 });
    const strict = one.sequence("strict");
    await strict.warm(1, 20_000);
    stub.answer = () => new Promise<Deed>(() => undefined);
    for (let calls = 0; calls < 50 && other.posts.length === 0; calls += 1) {
      await strict.next().catch(() => undefined);
    }
    assert.ok(stub.posts.length > 0 && other.posts.length > 0);
  });

  it("says the period in each call, and keeps nothing for it", async () => {
    const [one] = clients;
    const first = one?.sequence("orders", { period: "a b" });
    const again = one?.sequence("orders", { kind: "unbuffered", period: "a b" });
    assert.notEqual(first, again);
    assert.throws(() => first?.take(), WouldBlock);
    await first?.next();
    await again?.range(3);
    await again?.warm(5);
    const range = "POST next?count=3&contiguous=true&ids=false&period=a%20b";
    assert.deepEqual(stub.calls, ["POST next?period=a%20b", range]);
    assert.throws(() => one?.sequence("a", { kind: "buffered", period: "b" }), TypeError);
  });

  it("needs the kind without the right look", async () => {
    stub.answer = (call) => (call.startsWith("GET") ? refusal(403, "forbidden") : "go on");
    await assert.rejects(orders.next(), /kind: 'buffered'/);
    const one = client();
    assert.equal(await one.sequence("a", { kind: "buffered" }).nextId(), "#1");
    await one.sequence("b", { kind: "unbuffered" }).next();
    assert.deepEqual(stub.posts, ["POST next?count=100", "POST next"]);
  });

  it("hears the kind later, and no other one after that", async () => {
    stub.answer = (call) => (call.startsWith("GET") ? refusal(403, "forbidden") : "go on");
    const [one] = clients;
    await assert.rejects(orders.next(), isRefused("forbidden"));
    assert.equal(one?.sequence("orders", { kind: "unbuffered" }), orders);
    assert.equal(await orders.next(), 1n);
    assert.throws(() => one?.sequence("orders", { kind: "buffered" }), TypeError);
    assert.deepEqual(stub.posts, ["POST next"]);
  });

  it("buffers no numbers of a period, whatever the program said", async () => {
    const drops: [number, string][] = [];
    const dropped = (count: number, cause: string): void => void drops.push([count, cause]);
    stub.answer = (call) => (call.startsWith("GET") ? refusal(403, "forbidden") : "go on");
    stub.period = "2026-01";
    const daily = client({ hooks: { dropped } }).sequence("daily", { kind: "buffered" });
    assert.deepEqual(await nexts(daily, 3), [1n, 101n, 102n]);
    assert.throws(() => daily.take(), WouldBlock);
    assert.deepEqual(stub.posts, ["POST next?count=100", "POST next", "POST next"]);
    assert.deepEqual(drops, [[99, "late"]]);
  });

  it("takes a first number once", async () => {
    const drops: [number, string][] = [];
    const dropped = (count: number, cause: string): void => void drops.push([count, cause]);
    const unknown = refusal(404, "sequence_not_found");
    const refusals = [unknown, refusal(503, "store_unavailable"), unknown];
    stub.answer = (call) => (call.startsWith("GET") && refusals.shift()) || "go on";
    const one = client({ hooks: { dropped } }).sequence("orders");
    await assert.rejects(one.next(), isRefused("sequence_not_found"));
    assert.deepEqual([stub.posts.length, drops], [1, [[1, "late"]]]);
  });

  it("says what became of a first number if the definition cannot be read", async () => {
    const drops: [number, string][] = [];
    const dropped = (count: number, cause: string): void => void drops.push([count, cause]);
    const refusals = [refusal(404, "sequence_not_found"), refusal(410, "sequence_retired")];
    stub.answer = (call) => (call.startsWith("GET") && refusals.shift()) || "go on";
    const one = client({ hooks: { dropped } }).sequence("orders");
    await assert.rejects(one.next(), isRefused("sequence_retired"));
    assert.deepEqual(drops, [[1, "late"]]);
  });

  it("gives no first number that is too old", async () => {
    const drops: string[] = [];
    const dropped = (_: number, cause: string): void => void drops.push(cause);
    const away = { ...refusal(503, "store_unavailable"), headers: { "retry-after": "3" } };
    const unknown = refusal(404, "sequence_not_found");
    const refusals = [unknown, away];
    stub.answer = (call) => (call.startsWith("GET") && refusals.shift()) || "go on";
    const one = client({ hooks: { dropped }, maxAge: 2_900 });
    assert.equal(await one.sequence("a").next(), 2n);
    assert.deepEqual(drops, ["max_age"]);
    // What fails before the first number does not make it older.
    refusals.push(away, unknown);
    stub.next = 1_001n;
    assert.equal(await one.sequence("b").next(), 1_001n);
    assert.deepEqual(drops, ["max_age"]);
  });

  it("reads the definition of the sequence that a template shares", async () => {
    stub.answer = once(refusal(404, "sequence_not_found"), (call) => call === "GET eu:1");
    assert.equal(await client().sequence("eu:1").next(), 1n);
    assert.deepEqual(stub.calls.slice(0, 3), ["GET eu:1", "POST next?count=1", "GET orders"]);
  });

  it("takes large ranges as blocks", async () => {
    const far = await orders.range(20_000);
    assert.deepEqual([far.first, far.count], [1n, 20_000]);
    assert.deepEqual(stub.posts, ["POST blocks?size=20000"]);
  });

  it("gives the printed ids of the service", async () => {
    stub.definition["format"] = "#{value}";
    assert.deepEqual([await orders.nextId(), await orders.next()], ["#1", 2n]);
    await orders.warm(10_200);
    const more = ["POST next?count=10000", "POST next?count=102"];
    assert.deepEqual(stub.posts, ["POST next?count=100", ...more]);
  });

  it("gives an unbroken range and loses nothing", async () => {
    stub.step = 7n;
    await orders.warm(100);
    assert.deepEqual([...(await orders.range(3))], [1n, 8n, 15n]);
    const far = await orders.range(500);
    assert.deepEqual([far.first, far.count, far.step], [701n, 500, 7n]);
    assert.equal(stub.posts.at(-1), "POST next?count=500&contiguous=true&ids=false");
    assert.equal(await orders.next(), 22n);
    await assert.rejects(orders.range(0), RangeError);
    await assert.rejects(orders.warm(1.5), RangeError);
    await assert.rejects(orders.warm(1, Number.NaN), RangeError);
  });

  it("gives callers at once no number twice", async () => {
    const given: bigint[] = [];
    const work = async (): Promise<void> => {
      for (let at = 0; at < 200; at += 1) {
        given.push(await orders.next());
        if (at % 50 === 0) {
          given.push(...(await orders.range(5)));
          orders.forget();
        }
      }
    };
    await Promise.all(Array.from({ length: 8 }, work));
    assert.deepEqual([given.length, new Set(given).size], [1_760, 1_760]);
  });

  it("gives the same sequence for the same name", () => {
    const [one] = clients;
    assert.equal(one?.sequence("orders"), orders);
    assert.equal(one?.sequence("orders", { period: null as unknown as undefined }), orders);
    assert.notEqual(one?.sequence("orders", { period: "x" }), orders);
  });

  it("has the version of its package", () => {
    const text = readFileSync(join(__dirname, "../../package.json"), "utf8");
    assert.equal((JSON.parse(text) as { version: string }).version, VERSION);
  });
});

describe("a close", () => {
  it("ends the wait of all callers, and starts nothing", async () => {
    const [one] = clients;
    const { answer, open } = gate(isPost);
    stub.answer = answer;
    const callers = [orders.next(), orders.warm(5)];
    const ended = Promise.allSettled(callers);
    await until(() => stub.posts.length === 1);
    one?.close();
    for (const end of await ended) {
      assert.equal(end.status === "rejected" && /was closed/.test(String(end.reason)), true);
    }
    open();
    await until(() => outcomes.length === 1);
    assert.deepEqual([orders.left, stub.posts.length], [0, 1]);
    await until(() => stub.nOpen === 0);
  });

  it("ends the tries of calls whose numbers are not kept", async () => {
    stub.answer = () => refusal(503, "store_unavailable");
    const one = client();
    const period = one.sequence("orders", { period: "a" });
    const callers = Promise.allSettled([period.next(), one.sequence("orders").range(500)]);
    await until(() => stub.posts.length >= 2);
    one.close();
    for (const end of await callers) {
      assert.match(end.status === "rejected" ? String(end.reason) : "a number", /was closed/);
    }
  });

  it("closes the connections that no call uses", async () => {
    await orders.warm(5);
    assert.equal(stub.nOpen, 1);
    clients.forEach((it) => it.close());
    await until(() => stub.nOpen === 0);
  });
});
