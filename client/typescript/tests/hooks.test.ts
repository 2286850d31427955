/** Tests of what a program is told, and of hooks that do not behave. */

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, beforeEach, describe, it } from "node:test";
import { inspect } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Client } from "../src/client.js";
import type { Hooks } from "../src/hooks.js";
import type { Sequence } from "../src/sequence.js";
import { isPost, isRefused, once, refusal, Stub, until } from "./stub.js";

const TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

let stub: Stub;
let clients: Client[];
let warnings: string[];

function note(warning: Error): void {
  warnings.push(warning.message);
}

function client(hooks: Hooks): Client {
  const made = new Client({ endpoints: stub.url, deadline: 20_000, hooks });
  clients.push(made);
  return made;
}

beforeEach(async () => {
  stub = await Stub.start();
  clients = [];
  warnings = [];
  process.on("warning", note);
});

afterEach(async () => {
  clients.forEach((it) => it.close());
  await stub.close();
  process.off("warning", note);
});

describe("hooks", () => {
  it("harm nothing if they fail", async () => {
    const fail = (): never => {
      throw new Error("a defect of the program");
    };
    const one = client({ refill: fail, waited: fail, dropped: fail, span: fail });
    assert.equal(await one.sequence("orders").next(), 1n);
    one.forget();
    await until(() => warnings.length === 4);
    assert.ok(warnings.every((it) => it.includes("a defect of the program")));
    assert.match(String(stub.headers[1]?.["traceparent"]), /^00-/);
  });

  it("harm nothing if their promises fail", async () => {
    const fail = async (): Promise<never> => {
      throw new Error("a defect of the program");
    };
    const span = fail as unknown as NonNullable<Hooks["span"]>;
    const one = client({ refill: fail, waited: fail, dropped: fail, span });
    assert.equal(await one.sequence("orders").next(), 1n);
    one.forget();
    const defects = (): string[] => warnings.filter((it) => it.includes("a defect of the"));
    await until(() => defects().length === 4);
  });

  it("harm nothing whatever they throw", async () => {
    const unshown = {
      [inspect.custom](): never {
        throw new Error("it cannot be shown");
      },
    };
    for (const thrown of [Object.create(null), unshown, undefined, Symbol("a symbol")]) {
      warnings = [];
      const dropped = (): never => {
        throw thrown;
      };
      const one = client({ dropped });
      await one.sequence("orders").next();
      one.forget();
      await until(() => warnings.length === 1);
    }
  });

  it("may call the client", async () => {
    const given: bigint[] = [];
    let nCalls = 0;
    const again = (): void => {
      nCalls += 1;
      if (nCalls < 30) {
        given.push(orders.left > 0 ? orders.take() : 0n);
        one.forget();
        void orders.next().then((number) => given.push(number));
      }
    };
    const one: Client = client({ refill: again, waited: again, dropped: again });
    const orders: Sequence = one.sequence("orders");
    given.push(await orders.next());
    await until(() => nCalls >= 30);
    await orders.warm(10);
    const numbers = given.filter((number) => number !== 0n);
    assert.equal(new Set(numbers).size, numbers.length);
    assert.ok(numbers.length >= 20, `vacuous: ${numbers.length}`);
  });

  it("hear of a refill when its numbers are in memory", async () => {
    const left: number[] = [];
    const one = client({ refill: () => left.push(orders.left) });
    const orders = one.sequence("orders");
    await orders.warm(5);
    await until(() => left.length === 1);
    assert.deepEqual(left, [100]);
  });

  it("hear how many numbers each call gave", async () => {
    const seen: [string, number][] = [];
    const one = client({ refill: (_, __, outcome, ___, count) => seen.push([outcome, count]) });
    stub.definition["order"] = "strict";
    const strict = one.sequence("strict");
    stub.answer = once(refusal(410, "sequence_retired"), isPost);
    await assert.rejects(strict.next(), isRefused("sequence_retired"));
    await strict.next();
    await strict.range(7);
    stub.definition["order"] = "relaxed";
    await one.sequence("orders").warm(5);
    await until(() => seen.length === 4);
    assert.deepEqual(seen, [
      ["sequence_retired", 0],
      ["ok", 1],
      ["ok", 7],
      ["ok", 100],
    ]);
  });
});

describe("spans", () => {
  it("are around each refill", async () => {
    const seen: string[] = [];
    const span = (sequence: string) => {
      seen.push(`begin ${sequence}`);
      return {
        traceparent: TRACEPARENT,
        end: (error?: unknown) => void seen.push(error === undefined ? "end" : "failed"),
      };
    };
    stub.answer = once(refusal(500, "internal"), isPost);
    const one = client({ span }).sequence("orders");
    await assert.rejects(one.next(), isRefused("internal"));
    await one.next();
    assert.deepEqual(seen, ["begin orders", "failed", "begin orders", "end"]);
    assert.equal(stub.headers.at(-1)?.["traceparent"], TRACEPARENT);
    assert.deepEqual(warnings, []);
  });

  it("harm nothing if their header is none", async () => {
    const wrong = ["a\nb", "", TRACEPARENT.toUpperCase(), `${TRACEPARENT}\n`, undefined, null, 7];
    let nEnds = 0;
    const end = (): void => void (nEnds += 1);
    const headers = [...wrong];
    const span = () => ({ traceparent: headers.shift() as string, end });
    const one = client({ span });
    stub.definition["order"] = "strict";
    const orders = one.sequence("orders");
    for (let at = 1; at <= wrong.length; at += 1) {
      assert.equal(await orders.next(), BigInt(at));
    }
    const sent = stub.headers.slice(1).map((it) => String(it["traceparent"]));
    assert.ok(sent.every((it) => /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/.test(it)), `${sent}`);
    assert.equal(nEnds, wrong.length);
    await until(() => warnings.length === wrong.length);
  });
});

describe("the context of a caller", () => {
  const storage = new AsyncLocalStorage<object>();

  it("is not that of a refill, which serves others as well", async () => {
    const seen: unknown[] = [];
    const one = client({ refill: () => seen.push(storage.getStore()) });
    await storage.run({ of: "a caller" }, async () => {
      await one.sequence("orders").next();
      assert.deepEqual(storage.getStore(), { of: "a caller" });
    });
    await until(() => seen.length === 1);
    assert.deepEqual(seen, [undefined]);
  });

  it("is not kept by a connection", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const one = client({});
    const call = async (): Promise<WeakRef<object>> => {
      const context = { of: "a caller" };
      const orders = one.sequence("orders", { period: "a" });
      await storage.run(context, () => orders.next());
      return new WeakRef(context);
    };
    const context = await call();
    await until(() => {
      collect();
      return context.deref() === undefined;
    });
    assert.equal(stub.nConnections, 1);
  });
});
