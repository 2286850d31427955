/** Tests of what may not be given after `forget`. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "node:test";

import { Client } from "../src/client.js";
import { gate, isPost, Stub, until } from "./stub.js";

describe("what was on its way when a program forgets", () => {
  let stub: Stub;
  let client: Client;
  let drops: [number, string][];

  beforeEach(async () => {
    stub = await Stub.start();
    drops = [];
    const dropped = (count: number, cause: string): void => void drops.push([count, cause]);
    client = new Client({ endpoints: stub.url, deadline: 20_000, hooks: { dropped } });
  });

  afterEach(async () => {
    client.close();
    await stub.close();
  });

  /** Forgets while a call for numbers is at the service, and returns what the caller got. */
  async function got<T>(call: () => Promise<T>, forget: () => void): Promise<T> {
    const { answer, open } = gate(isPost);
    stub.answer = answer;
    stub.calls = [];
    const caller = call();
    await until(() => stub.posts.length === 1);
    forget();
    open();
    return caller;
  }

  it("is not given by a range", async () => {
    const orders = client.sequence("orders");
    await orders.warm(5);
    const range = await got(() => orders.range(500), () => client.forget());
    assert.deepEqual([range.first, range.count], [601n, 500]);
    assert.deepEqual(drops, [
      [100, "forget"],
      [500, "forget"],
    ]);
  });

  it("is not given by a sequence that is not buffered", async () => {
    stub.definition["order"] = "strict";
    const strict = client.sequence("strict");
    assert.equal(await strict.next(), 1n);
    assert.equal(await got(() => strict.next(), () => client.forget()), 3n);
    assert.equal(await got(() => strict.next(), () => strict.forget()), 5n);
    assert.deepEqual(drops, Array(2).fill([1, "forget"]));
  });

  it("is not given by a period", async () => {
    const january = client.sequence("orders", { period: "2026-01" });
    assert.equal(await got(() => january.next(), () => client.forget()), 2n);
    assert.deepEqual(drops, [[1, "forget"]]);
  });

  it("is not given by a refill", async () => {
    const orders = client.sequence("orders");
    assert.equal(await got(() => orders.next(), () => orders.forget()), 101n);
    await until(() => drops.length === 1);
    assert.deepEqual(drops, [[100, "forget"]]);
  });

  it("comes on no connection of the time before", async () => {
    const orders = client.sequence("orders");
    await orders.warm(5);
    assert.equal(stub.nConnections, 1);
    client.forget();
    await orders.warm(5);
    assert.equal(stub.nConnections, 2);
    orders.forget();
    await orders.warm(5);
    assert.equal(stub.nConnections, 3);
  });
});
