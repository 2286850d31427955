/** Tests of the numbers in memory. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Buffer, type Item, NumberRange, Run } from "../src/buffer.js";

function run(first: bigint | number, step: number, count: number, ids?: string[]): Run {
  return new Run(new NumberRange(BigInt(first), BigInt(step), count), ids);
}

function taken(buffer: Buffer): Item[] {
  const items: Item[] = [];
  for (let item = buffer.take(); item !== undefined; item = buffer.take()) {
    items.push(item);
  }
  return items;
}

function values(buffer: Buffer): bigint[] {
  return taken(buffer).map((item) => item.value);
}

describe("a buffer", () => {
  it("gives numbers in the order of their replies", () => {
    const buffer = new Buffer();
    buffer.add([run(1, 1, 2), run(11, 1, 1)], 0);
    buffer.add([run(5, 1, 2)], 1);
    assert.deepEqual(values(buffer), [1n, 2n, 11n, 5n, 6n]);
    assert.equal(buffer.take(), undefined);
    assert.equal(buffer.left, 0);
  });

  it("counts steps and the highest numbers right", () => {
    const buffer = new Buffer();
    const highest = 2n ** 63n - 1n;
    buffer.add([run(highest - 14n, 7, 3), run(3, -1, 3)], 0);
    assert.deepEqual(values(buffer), [highest - 14n, highest - 7n, highest, 3n, 2n, 1n]);
  });

  it("has the printed form of each number", () => {
    const buffer = new Buffer();
    buffer.add([run(1, 1, 4, ["a", "b", "c", "d"]), run(9, 1, 1, ["e"])], 0);
    assert.deepEqual(buffer.take(), { value: 1n, id: "a" });
    assert.deepEqual([...(buffer.takeRange(2) ?? [])], [2n, 3n]);
    assert.deepEqual(taken(buffer), [
      { value: 4n, id: "d" },
      { value: 9n, id: "e" },
    ]);
  });

  it("takes nothing for a range that does not fit", () => {
    const buffer = new Buffer();
    buffer.add([run(1, 1, 5)], 0);
    buffer.add([run(6, 1, 5)], 0);
    assert.equal(buffer.takeRange(6), undefined);
    assert.equal(buffer.left, 10);
  });

  it("leaves the rest of a smaller run when it gives a range", () => {
    const buffer = new Buffer();
    buffer.add([run(1, 2, 3), run(101, 2, 8)], 0);
    assert.deepEqual([...(buffer.takeRange(4) ?? [])], [101n, 103n, 105n, 107n]);
    assert.deepEqual([...(buffer.takeRange(3) ?? [])], [1n, 3n, 5n]);
    assert.deepEqual(values(buffer), [109n, 111n, 113n, 115n]);
  });

  it("gives no number twice, whatever the calls", () => {
    const buffer = new Buffer();
    const seen: bigint[] = [];
    for (let at = 0; at < 50; at += 1) {
      buffer.add([run(at * 100, 1, 7), run(at * 100 + 50, 3, 9)], at);
      for (const count of [3, 8, 1, 5]) {
        seen.push(...(buffer.takeRange(count) ?? []));
      }
      for (const item of [buffer.take(), buffer.take()]) {
        seen.push(...(item === undefined ? [] : [item.value]));
      }
    }
    seen.push(...values(buffer));
    assert.equal(seen.length, 50 * 16);
    assert.equal(new Set(seen).size, seen.length);
  });

  it("drops old blocks and counts them", () => {
    const buffer = new Buffer();
    buffer.add([run(1, 1, 5)], 10);
    buffer.add([run(6, 1, 5)], 20);
    buffer.take();
    assert.equal(buffer.dropOlder(10), 0);
    assert.equal(buffer.dropOlder(11), 4);
    assert.equal(buffer.left, 5);
    assert.deepEqual(buffer.take(), { value: 6n, id: undefined });
    assert.equal(buffer.dropOlder(21), 4);
    assert.equal(buffer.left, 0);
  });

  it("knows the current block, and whether there is a next one", () => {
    const buffer = new Buffer();
    assert.deepEqual([buffer.currentSize, buffer.hasNext], [0, false]);
    buffer.add([run(1, 1, 1), run(11, 1, 1)], 0);
    assert.deepEqual([buffer.currentSize, buffer.hasNext], [2, false]);
    buffer.add([run(21, 1, 3)], 0);
    assert.deepEqual([buffer.currentSize, buffer.hasNext], [2, true]);
    buffer.take();
    assert.deepEqual([buffer.currentSize, buffer.hasNext], [2, true]);
    buffer.take();
    assert.deepEqual([buffer.currentSize, buffer.hasNext], [3, false]);
    buffer.takeRange(3);
    assert.deepEqual([buffer.currentSize, buffer.hasNext, buffer.left], [0, false, 0]);
  });

  it("loses one number at most by an exception in the middle of a take", () => {
    let nReads = 0;
    const failing = (ids: string[]): string[] =>
      new Proxy(ids, {
        get(target, key, receiver): unknown {
          nReads += 1;
          if (nReads === 2) {
            throw new RangeError("the stack is full");
          }
          return Reflect.get(target, key, receiver);
        },
      });
    const buffer = new Buffer();
    buffer.add([run(1, 1, 3, failing(["a", "b", "c"])), run(11, 1, 1, ["d"])], 0);
    assert.deepEqual(buffer.take(), { value: 1n, id: "a" });
    assert.throws(() => buffer.take(), RangeError);
    assert.equal(buffer.left, 2);
    assert.deepEqual(taken(buffer), [
      { value: 3n, id: "c" },
      { value: 11n, id: "d" },
    ]);
    assert.equal(buffer.left, 0);
  });

  it("goes on after an exception with the last number of a run", () => {
    const ids = new Proxy(["a"], {
      get(): never {
        throw new RangeError("the stack is full");
      },
    });
    const buffer = new Buffer();
    buffer.add([run(1, 1, 1, ids), run(11, 1, 1)], 0);
    assert.throws(() => buffer.take(), RangeError);
    assert.deepEqual(values(buffer), [11n]);
  });

  it("gives no number twice if its callers have a full stack", () => {
    const buffer = new Buffer();
    buffer.add([run(1, 1, 150), run(1_001, 1, 150)], 0);
    const given: bigint[] = [];
    let nFull = 0;
    const dive = (): void => {
      try {
        dive();
      } catch (error) {
        // Each caller up the stack has a little more room, so a take breaks off here and there.
        if (nFull + given.length < 200) {
          try {
            given.push(buffer.take()?.value ?? 0n);
          } catch {
            nFull += 1;
          }
        }
        throw error;
      }
    };
    assert.throws(dive, RangeError);
    assert.ok(nFull > 0, "vacuous: no take broke off");
    const { left } = buffer;
    const rest = values(buffer);
    assert.equal(rest.length, left);
    given.push(...rest);
    assert.equal(new Set(given).size, given.length);
    assert.ok(given.every((it) => (it >= 1n && it <= 150n) || (it > 1_000n && it <= 1_150n)));
  });

  it("knows the first and the last number of a range", () => {
    const range = new NumberRange(7n, 3n, 4);
    assert.deepEqual([range.first, range.last, range.count], [7n, 16n, 4]);
    assert.deepEqual([...range], [7n, 10n, 13n, 16n]);
  });
});
