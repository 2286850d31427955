/** Waiter: a caller who found nothing. */

import type { Item } from "./buffer.js";

/** A caller who waits for a number, or until enough numbers are in memory. */
export class Waiter {
  /** How many numbers must be in memory; `undefined` for a caller who wants one number. */
  readonly target: number | undefined;
  /** Comes when the waiter is settled, without an item if no buffer has one for it. */
  readonly settled: Promise<Item | undefined>;
  #resolve: (item: Item | undefined) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;

  constructor(target?: number) {
    this.target = target;
    this.settled = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** Ends the wait, with a number or with none. Only the first end of a wait counts. */
  settle(item?: Item): void {
    this.#resolve(item);
  }

  /** Ends the wait with an error. */
  fail(error: unknown): void {
    this.#reject(error);
  }
}
