/** Tests of whole calls, against a stub of the service. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";

import { Client, type ClientOptions } from "../src/client.js";
import { DeadlinePassed, Empty, Refused, WouldBlock } from "../src/errors.js";
import type { Sequence } from "../src/sequence.js";
import { VERSION } from "../src/service.js";
import { type Deed, refusal, Stub, until } from "./stub.js";

let stub: Stub;
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

/** Answers the first call that is wanted. */
function once(deed: Deed, isWanted: (call: string) => boolean): (call: string) => Deed {
  let isDone = false;
  return (call) => {
    const isNow = !isDone && isWanted(call);
    isDone ||= isNow;
    return isNow ? deed : "go on";
  };
}

function isPost(call: string): boolean {
  return call.startsWith("POST");
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

function isRefused(code: string): (error: unknown) => boolean {
  return (error) => error instanceof Refused && error.code === code;
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
  clients.forEach((it) => it.close());
  await stub.close();
});

describe("a client", () => {
  it("calls once for many numbers", async () => {
    assert.deepEqual(await nexts(orders, 80), upTo(80));
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
    let open: (deed: Deed) => void = () => undefined;
    const gate = new Promise<Deed>((resolve) => (open = resolve));
    stub.answer = () => gate;
    const hurried = client({ deadline: 50 }).sequence("orders");
    await assert.rejects(hurried.next(), DeadlinePassed);
    await assert.rejects(hurried.warm(5), DeadlinePassed);
    open("go on");
    await until(() => hurried.left === 100);
    assert.deepEqual([await hurried.next(), stub.posts.length], [1n, 1]);
  });

  it("says at the deadline why no number came", async () => {
    stub.answer = () => refusal(503, "store_unavailable");
    const hurried = client({ deadline: 50 }).sequence("orders");
    const isExplained = (error: unknown): boolean =>
      error instanceof DeadlinePassed && isRefused("store_unavailable")(error.cause);
    await assert.rejects(hurried.next(), isExplained);
  });

  it("calls another endpoint if one fails", async () => {
    const dead = await Stub.start();
    const { url } = dead;
    await dead.close();
    const both = client({ endpoints: [url, stub.url] });
    for (let rounds = 0; rounds < 5; rounds += 1) {
      assert.ok((await both.sequence("orders").next()) > 0n);
      both.forget();
    }
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

  it("says the period in each call", async () => {
    stub.definition["period"] = "keyed";
    const sequence = client().sequence("orders", { period: "a b" });
    await sequence.next();
    await sequence.range(3);
    const range = "POST next?count=3&contiguous=true&ids=false&period=a%20b";
    assert.deepEqual(stub.posts, ["POST next?period=a%20b", range]);
  });

  it("needs the kind without the right look", async () => {
    stub.answer = (call) => (call.startsWith("GET") ? refusal(403, "forbidden") : "go on");
    await assert.rejects(orders.next(), /kind: 'buffered'/);
    const one = client();
    assert.equal(await one.sequence("a", { kind: "buffered" }).nextId(), "#1");
    await one.sequence("b", { kind: "unbuffered" }).next();
    assert.deepEqual(stub.posts, ["POST next?count=100", "POST next"]);
  });

  it("gives the printed ids of the service", async () => {
    stub.definition["format"] = "#{value}";
    assert.deepEqual([await orders.nextId(), await orders.next()], ["#1", 2n]);
    assert.deepEqual(stub.posts, ["POST next?count=100"]);
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
    assert.notEqual(one?.sequence("orders", { period: "x" }), orders);
  });

  it("sends a token, and reads it again from its file", async () => {
    const folder = mkdtempSync(join(tmpdir(), "odometer-"));
    const file = join(folder, "token");
    writeFileSync(file, "first\n");
    const one = client({ tokenFile: file }).sequence("orders");
    await one.warm(1);
    writeFileSync(`${file}.new`, "second\n");
    renameSync(`${file}.new`, file);
    await one.range(200);
    rmSync(folder, { recursive: true });
    await one.range(200);
    const sent = stub.headers.map((it) => it.authorization);
    assert.deepEqual(sent, ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]);
  });

  it("reads its options from the environment", async () => {
    process.env["ODOMETER_URL"] = ` ${stub.url} ,`;
    process.env["ODOMETER_TOKEN"] = "of the environment";
    try {
      const one = Client.fromEnvironment({ deadline: 20_000 });
      clients.push(one);
      assert.equal(await one.sequence("orders").next(), 1n);
      assert.equal(stub.headers[0]?.authorization, "Bearer of the environment");
    } finally {
      delete process.env["ODOMETER_URL"];
      delete process.env["ODOMETER_TOKEN"];
    }
  });

  it("refuses wrong options", () => {
    const wrong: ClientOptions[] = [
      { endpoints: [] },
      { endpoints: "a:8080" },
      { endpoints: "http://a:0" },
      { endpoints: "http://a/?b" },
      { deadline: -1 },
      { refillTimeout: Number.NaN },
      { maxAge: -1 },
      { initialSize: 0 },
      { tokenFile: "/nowhere/token" },
      { caFile: "/nowhere/ca.pem" },
    ];
    for (const options of wrong) {
      assert.throws(() => new Client(options), `${JSON.stringify(options)}`);
    }
  });

  it("refuses replies that are no numbers", async () => {
    const range = { first: "1", last: "3", count: 3, step: 1 };
    const changes = [{ last: "4" }, { first: "x" }, { count: 0 }, { step: 0 }, { last: "1e9" }];
    for (const change of changes) {
      const body = { period: null, ranges: [{ ...range, ...change }] };
      stub.answer = once({ status: 200, body }, isPost);
      await assert.rejects(orders.next(), { code: "invalid_reply" }, JSON.stringify(change));
    }
    stub.answer = once({ status: 200, body: { period: null, ranges: [range] } }, isPost);
    assert.equal(await orders.next(), 1n);
  });

  it("has the version of its package", () => {
    const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
    assert.equal((JSON.parse(text) as { version: string }).version, VERSION);
  });
});

describe("hooks", () => {
  it("harm nothing if they fail", async () => {
    const warnings: string[] = [];
    const note = (warning: Error): void => void warnings.push(warning.message);
    process.on("warning", note);
    const fail = (): never => {
      throw new Error("a defect of the program");
    };
    const hooks = { refill: fail, waited: fail, dropped: fail, span: fail };
    const one = client({ hooks });
    assert.equal(await one.sequence("orders").next(), 1n);
    one.forget();
    await until(() => warnings.length === 4);
    process.off("warning", note);
    assert.ok(warnings.every((it) => it.includes("a defect of the program")));
    assert.match(String(stub.headers[1]?.["traceparent"]), /^00-/);
  });

  it("have a span around each refill", async () => {
    const seen: string[] = [];
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const span = (sequence: string) => {
      seen.push(`begin ${sequence}`);
      return {
        traceparent,
        end: (error?: unknown) => void seen.push(error === undefined ? "end" : "failed"),
      };
    };
    stub.answer = once(refusal(500, "internal"), isPost);
    const one = client({ hooks: { span } }).sequence("orders");
    await assert.rejects(one.next(), isRefused("internal"));
    await one.next();
    assert.deepEqual(seen, ["begin orders", "failed", "begin orders", "end"]);
    assert.equal(stub.headers.at(-1)?.["traceparent"], traceparent);
  });
});
