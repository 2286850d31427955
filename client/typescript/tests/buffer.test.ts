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

  it("knows the first and the last number of a range", () => {
    const range = new NumberRange(7n, 3n, 4);
    assert.deepEqual([range.first, range.last, range.count], [7n, 16n, 4]);
    assert.deepEqual([...range], [7n, 10n, 13n, 16n]);
  });
});
