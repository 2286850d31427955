/** Tests of which replica is called, and when. */

import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";

import { pauseMs } from "../src/backoff.js";
import { Endpoints } from "../src/endpoints.js";

const lowest = (): number => 0;
const highest = (): number => 0.999_999;

describe("endpoints", () => {
  let now = 0;
  let endpoints: Endpoints;

  beforeEach(() => {
    now = 100_000;
    endpoints = of("abc");
  });

  function of(urls: string): Endpoints {
    return new Endpoints([...urls], () => now, lowest);
  }

  function url(): string {
    const turn = endpoints.choose();
    endpoints.abandoned(turn);
    return turn.url;
  }

  function failNext(): string {
    const turn = endpoints.choose();
    endpoints.failed(turn);
    return turn.url;
  }

  it("begin with a random one", () => {
    assert.equal(new Endpoints([..."abc"], () => now, highest).choose().url, "c");
    const found = new Set<string>();
    for (let draws = 0; draws < 200; draws += 1) {
      found.add(new Endpoints([..."abc"]).choose().url);
    }
    assert.deepEqual([...found].sort(), ["a", "b", "c"]);
  });

  it("are kept until they fail", () => {
    for (let calls = 0; calls < 3; calls += 1) {
      const turn = endpoints.choose();
      assert.equal(turn.url, "a");
      endpoints.succeeded(turn);
    }
    assert.equal(failNext(), "a");
    now += 100_000;
    assert.deepEqual([url(), url()], ["b", "b"]);
  });

  it("rest for a time that doubles to thirty seconds", () => {
    endpoints = of("ab");
    for (const rest of [1, 2, 4, 8, 16, 30, 30]) {
      assert.equal(failNext(), "a");
      now += rest * 1_000 - 10;
      const other = endpoints.choose();
      assert.equal(other.url, "b", `${rest}`);
      endpoints.movedOn(other);
      assert.equal(endpoints.choose().url, "b", `${rest}`);
      now += 20;
      endpoints.movedOn(other);
    }
  });

  it("rest for longer by a jitter", () => {
    const draws = [0];
    endpoints = new Endpoints([..."ab"], () => now, () => draws.shift() ?? highest());
    assert.equal(failNext(), "a");
    endpoints.movedOn(endpoints.choose());
    now += 1_240;
    assert.equal(url(), "b");
    endpoints.movedOn(endpoints.choose());
    now += 20;
    assert.equal(url(), "a");
  });

  it("are probed by one call alone", () => {
    failNext();
    now += 2_000;
    endpoints.movedOn(endpoints.choose());
    endpoints.movedOn(endpoints.choose());
    const probe = endpoints.choose();
    assert.deepEqual([probe.url, probe.isProbe], ["a", true]);
    assert.equal(url(), "b");
    endpoints.succeeded(probe);
    endpoints.movedOn(endpoints.choose());
    endpoints.movedOn(endpoints.choose());
    const again = endpoints.choose();
    assert.deepEqual([again.url, again.isProbe], ["a", false]);
  });

  it("are called by the longest rest if all of them rest", () => {
    for (const expected of "abcabc") {
      assert.equal(failNext(), expected);
      now += 10;
    }
  });

  it("that all rest are called by the next longest rest if one is probed", () => {
    endpoints = of("ab");
    failNext();
    now += 10;
    failNext();
    const probe = endpoints.choose();
    assert.deepEqual([probe.url, probe.isProbe], ["a", true]);
    assert.equal(endpoints.choose().url, "b");
  });

  it("count calls that fail together once", () => {
    const turns = Array.from({ length: 5 }, () => endpoints.choose());
    now += 1_000;
    turns.forEach((turn) => endpoints.failed(turn));
    for (const expected of "bc") {
      const turn = endpoints.choose();
      assert.equal(turn.url, expected);
      endpoints.movedOn(turn);
    }
    now += 1_010;
    assert.equal(url(), "a");
  });

  it("are left by callers in a hurry if none of them gets a reply for a second", () => {
    endpoints = of("ab");
    for (const expected of "aaab") {
      const turn = endpoints.choose();
      assert.equal(turn.url, expected);
      now += 400;
      endpoints.hurried(turn, 400, 1_000);
    }
  });

  it("are kept by callers in a hurry if others get replies", () => {
    for (let calls = 0; calls < 6; calls += 1) {
      const [turn, other] = [endpoints.choose(), endpoints.choose()];
      assert.equal(turn.url, "a");
      now += 900;
      endpoints.hurried(turn, 900, 1_000);
      endpoints.succeeded(other);
    }
  });

  it("are kept if a call in a hurry waited for its connection", () => {
    endpoints = of("ab");
    const turn = endpoints.choose();
    now += 2_000;
    endpoints.hurried(turn, 100, 1_000);
    assert.equal(url(), "a");
  });

  it("rest although a call from before the failure succeeds", () => {
    const [early, late] = [endpoints.choose(), endpoints.choose()];
    now += 100;
    endpoints.failed(late);
    endpoints.succeeded(early);
    for (const expected of "bcb") {
      const turn = endpoints.choose();
      assert.equal(turn.url, expected);
      endpoints.movedOn(turn);
    }
  });

  it("do not rest if the client only moves on", () => {
    endpoints.movedOn(endpoints.choose());
    assert.equal(url(), "b");
    endpoints.movedOn(endpoints.choose());
    endpoints.movedOn(endpoints.choose());
    assert.equal(url(), "a");
  });
});

describe("a pause", () => {
  it("doubles from fifty milliseconds to two seconds", () => {
    const found = [1, 2, 3, 6, 7, 1_000].map((n) => pauseMs(n, undefined, highest));
    assert.deepEqual(found.map(Math.round), [50, 100, 200, 1_600, 2_000, 2_000]);
    assert.equal(pauseMs(5, undefined, lowest), 0);
  });

  it("waits as long as the service says, within bounds", () => {
    assert.equal(pauseMs(1, 3, lowest), 3_000);
    assert.equal(Math.round(pauseMs(1, 3, highest)), 3_050);
    assert.equal(pauseMs(1, 1e9, lowest), 60_000);
  });
});
