/** Tests of what a reply means, and what the client thinks of the endpoint after it. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "node:test";

import { Client } from "../src/client.js";
import { monotonic } from "../src/clock.js";
import { Endpoints } from "../src/endpoints.js";
import { Unreachable } from "../src/errors.js";
import { type Answer, type Body, Service } from "../src/service.js";
import { Token } from "../src/token.js";
import { Transport } from "../src/transport.js";
import { closing, withServer } from "./server.js";
import { type Deed, isPost, isRefused, once, refusal, Stub } from "./stub.js";

describe("replies", () => {
  let stub: Stub;
  let client: Client;

  beforeEach(async () => {
    stub = await Stub.start();
    client = new Client({ endpoints: stub.url, deadline: 20_000 });
  });

  afterEach(async () => {
    client.close();
    await stub.close();
  });

  /** Answers a call for numbers by this, which must not be taken for numbers. */
  async function check(name: string, body: object, call: () => Promise<unknown>): Promise<void> {
    stub.answer = once({ status: 200, body }, isPost);
    await assert.rejects(call(), { code: "invalid_reply" }, `${name}: ${JSON.stringify(body)}`);
  }

  it("are refused if they are no numbers", async () => {
    const orders = client.sequence("orders");
    const range = { first: "1", last: "3", count: 3, step: 1 };
    const changes = [
      { last: "4" },
      { first: "x" },
      { first: "" },
      { first: "1.0" },
      { first: "9".repeat(400) },
      { first: null },
      { count: 0 },
      { count: 1.5 },
      { count: -3 },
      { step: 0 },
      { last: "1e9" },
      { first: `${2n ** 63n - 2n}`, last: `${2n ** 63n}` },
      { first: `${-(2n ** 63n) - 1n}`, last: `${-(2n ** 63n) + 1n}` },
    ];
    for (const change of changes) {
      const ranges = [{ ...range, ...change }];
      await check("a range", { period: null, ranges }, () => orders.next());
    }
    for (const ranges of [[], "x", [null], [[]], [1]]) {
      await check("ranges", { period: null, ranges }, () => orders.next());
    }
    stub.answer = once({ status: 200, body: { period: null, ranges: [range] } }, isPost);
    assert.equal(await orders.next(), 1n);
  });

  it("are refused if their ids are none", async () => {
    stub.definition["format"] = "#{value}";
    const orders = client.sequence("orders");
    const ranges = [
      { first: "1", last: "2", count: 2, step: 1 },
      { first: "5", last: "5", count: 1, step: 1 },
    ];
    const wrong = [undefined, "abc", ["a", "b"], ["a", "b", "c", "d"], ["a", null, "c"], [1, 2, 3]];
    for (const ids of wrong) {
      await check("ids", { period: null, ranges, ids }, () => orders.nextId());
    }
    const ids = ["a", "b", "c"];
    stub.answer = once({ status: 200, body: { period: null, ranges, ids } }, isPost);
    const given = [await orders.nextId(), await orders.nextId(), await orders.nextId()];
    assert.deepEqual(given, ids);
  });

  it("are refused if they are not the one number or the range of a call", async () => {
    stub.definition["order"] = "strict";
    const strict = client.sequence("strict");
    const wrong = [{ value: 1.5 }, { value: `${2n ** 63n}` }, { id: 1 }, { id: undefined }];
    for (const change of wrong) {
      await check("one", { value: "1", id: "1", ...change }, () => strict.next());
    }
    const range = { first: "1", last: "3", count: 3, step: 1 };
    const one = { first: "9", last: "9", count: 1, step: 1 };
    for (const ranges of [[range], [range, one]]) {
      await check("a range", { ranges }, () => strict.range(4));
      await check("a range", { ranges }, () => strict.range(2));
    }
    await check("a range", { ranges: [range, one] }, () => strict.range(3));
    for (const ranges of [[range], undefined]) {
      stub.answer = once({ status: 200, body: { ranges, ...range } }, isPost);
      assert.deepEqual([...(await strict.range(3))], [1n, 2n, 3n]);
    }
  });

  it("are refused if there is no definition", async () => {
    const body = { definition: null };
    stub.answer = once({ status: 200, body }, (call) => call.startsWith("GET"));
    await assert.rejects(client.sequence("orders").next(), { code: "invalid_reply" });
  });

  it("have a code even if theirs is none", async () => {
    for (const code of [{ toString: 1 }, 7, "", null, undefined]) {
      const body = { code, detail: { toString: 1 } };
      stub.answer = once({ status: 418, body }, isPost);
      const failed = client.sequence("orders").next();
      await assert.rejects(failed, { name: "Refused", code: "http_418", status: 418 });
    }
  });
});

function serviceAt(...urls: string[]): Service {
  const endpoints = new Endpoints(urls, () => 0, () => 0);
  return new Service(endpoints, new Transport(), new Token(), 20_000);
}

function ask(service: Service, ms = 20_000): Promise<Answer<Body>> {
  const manner = { until: monotonic() + ms };
  return service.ask("POST", "/v1/sequences/orders/next", (body) => body, manner);
}

describe("a reply that ends with its connection", () => {
  const text = '{"status":401,"code":"unauthenticated","detail":"No."}';

  function answered(reply: string): Promise<Answer<Body>> {
    return withServer(closing(reply), (url) => ask(serviceAt(url)));
  }

  it("is a refusal if its status says so", async () => {
    const reply = `HTTP/1.1 401 Unauthorized\r\n\r\n${text}`;
    await assert.rejects(answered(reply), isRefused("unauthenticated"));
  });

  it("is whole if its object is", async () => {
    const { value } = await answered(`HTTP/1.1 200 OK\r\n\r\n${text}`);
    assert.deepEqual(value, JSON.parse(text));
    const isLost = (error: unknown): boolean => error instanceof Unreachable && error.isRetryable;
    const cut = `HTTP/1.1 200 OK\r\n\r\n${text.slice(0, -1)}`;
    await assert.rejects(answered(cut), isLost);
  });
});

describe("an endpoint", () => {
  let first: Stub;
  let other: Stub;

  beforeEach(async () => {
    first = await Stub.start();
    other = await Stub.start();
  });

  afterEach(async () => {
    await first.close();
    await other.close();
  });

  /** Returns what the client thinks of the first endpoint after this answer of it. */
  async function judged(deed: Deed): Promise<string> {
    first.answer = () => deed;
    const service = serviceAt(first.url, other.url);
    const { endpoints } = service;
    await ask(service).catch(() => undefined);
    const turn = endpoints.choose();
    if (turn.url === first.url) {
      return "stay";
    }
    endpoints.movedOn(turn);
    return endpoints.choose().url === first.url ? "move on" : "rest";
  }

  const close = { headers: { connection: "close" } };

  it("is kept while it answers", async () => {
    const answers: Deed[] = [
      "go on",
      refusal(409, "sequence_exhausted"),
      refusal(410, "sequence_retired"),
      refusal(500, "internal"),
      refusal(429, "rate_limited", { limit: "5" }),
    ];
    for (const deed of answers) {
      assert.equal(await judged(deed), "stay", JSON.stringify(deed));
    }
  });

  it("is left if its answer is foreign, ends a connection or says that it is full", async () => {
    const answers: Deed[] = [
      { status: 200, body: [] },
      { status: 404, body: {} },
      refusal(404, "route_not_found"),
      refusal(429, "rate_limited"),
      { ...refusal(409, "sequence_exhausted"), ...close },
      { status: 200, body: { value: "1", id: "1" }, ...close },
      { status: 200, body: [], ...close },
    ];
    for (const deed of answers) {
      assert.equal(await judged(deed), "move on", JSON.stringify(deed));
    }
  });

  it("rests if it gives no answer, or cannot serve", async () => {
    const away = [502, 503, 504].map((status) => refusal(status, "any"));
    for (const deed of [...away, "lose", { ...refusal(503, "draining"), ...close }] as Deed[]) {
      assert.equal(await judged(deed), "rest", JSON.stringify(deed));
    }
  });

  it("that is slow is not judged by a caller in a hurry", async () => {
    const found: string[] = [];
    for (const ms of [100, 1_200]) {
      const service = serviceAt(first.url, other.url);
      first.answer = () => new Promise<Deed>(() => undefined);
      await assert.rejects(ask(service, ms), { code: "unreachable", timedOut: true });
      found.push(service.endpoints.choose().url);
    }
    assert.deepEqual(found, [first.url, other.url]);
  });
});
