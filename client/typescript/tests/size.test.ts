/** Tests of the rate, the size of refills and the low-water mark. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Rate, Size } from "../src/size.js";

describe("a rate", () => {
  it("is measured if it is steady", () => {
    const rate = new Rate();
    for (let tick = 0; tick < 3_000; tick += 1) {
      rate.note(tick * 10);
    }
    assert.ok(Math.abs(rate.perSecond(30_000) - 100) < 2);
  });

  it("ends with its numbers", () => {
    const rate = new Rate();
    rate.note(0, 1_000);
    assert.equal(rate.perSecond(500), 999);
    assert.equal(rate.perSecond(10_000), 99.9);
    assert.equal(rate.perSecond(10_100), 0);
  });

  it("is none if there is one number alone", () => {
    const rate = new Rate();
    rate.note(5_000);
    assert.equal(rate.perSecond(5_000), 0);
  });

  it("counts a burst after a rest at once", () => {
    const rate = new Rate();
    rate.note(0);
    rate.note(3_600_000, 81);
    assert.equal(rate.perSecond(3_600_100), 80);
  });
});

describe("a size", () => {
  it("is the initial one at first", () => {
    const size = new Size(100);
    size.rate.note(0, 50_000);
    assert.equal(size.nextSize(1_000), 100);
    size.noteRefill(10);
    assert.equal(size.nextSize(1_000), 499_990);
  });

  it("is one number if a sequence is rare", () => {
    const size = new Size(100);
    size.noteRefill(10);
    assert.equal(size.nextSize(1e9), 1);
  });

  it("has a low-water mark by the slowest of sixteen refills", () => {
    const size = new Size(100);
    size.rate.note(0, 1_001);
    assert.equal(size.lowWaterMark(1_000, 100), 20);
    size.noteRefill(3_000);
    for (let others = 0; others < 15; others += 1) {
      size.noteRefill(100);
    }
    assert.equal(size.lowWaterMark(1_000, 100), 6_000);
    size.noteRefill(100);
    assert.equal(size.lowWaterMark(1_000, 100), 200);
  });
});
