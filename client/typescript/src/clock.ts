/** Clock: what time it is for this process, and calls at a later time. */

import { performance } from "node:perf_hooks";
import * as timers from "node:timers";

// Taken once, so that the false timers of a program's tests do not reach the client.
const { clearImmediate, clearTimeout, setImmediate, setTimeout } = timers;

/** Returns milliseconds of a clock that never goes back. */
export type Clock = () => number;

/** The clock of the process. */
export const monotonic: Clock = performance.now.bind(performance);

/** The longest time that a timer of Node can wait. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls back after a time, but not before what has already arrived was read. Otherwise a program
 * that did not return to its event loop for long would take its replies for late ones.
 */
export class Alarm {
  readonly #timer: NodeJS.Timeout;
  #afterReading: NodeJS.Immediate | undefined;

  /** If `keepsAlive`, the process does not end before the alarm rings or is cancelled. */
  constructor(ms: number, keepsAlive: boolean, ring: () => void) {
    this.#timer = setTimeout(
      () => {
        this.#afterReading = setImmediate(ring);
      },
      Math.min(Math.max(0, ms), MAX_TIMER_MS),
    );
    if (!keepsAlive) {
      this.#timer.unref();
    }
  }

  /** Ends the alarm. It never rings after this. */
  cancel(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#afterReading);
  }
}

/** Waits. If `keepsAlive`, the process does not end meanwhile. */
export function sleep(ms: number, keepsAlive: boolean): Promise<void> {
  return new Promise((resolve) => {
    new Alarm(ms, keepsAlive, resolve);
  });
}

/** Lets the event loop go round once: old timers fire, and what has arrived is read. */
export function oneRound(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(() => setImmediate(resolve));
  });
}
