/** Token: the bearer token of a client. */

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";

import { Alarm } from "./clock.js";

/** The bearer token: given, or read from a file at each call, because files are rotated. */
export class Token {
  #last: string | undefined;
  readonly #file: string | undefined;
  #reading: Promise<void> | undefined;

  /** Throws if the file cannot be read, or if there is no token that can be sent. */
  constructor(token?: string, file?: string) {
    this.#file = file;
    if (file !== undefined) {
      this.#last = tokenIn(readFileSync(file, "utf8"));
      if (this.#last === undefined) {
        throw new TypeError(`${file} has no token that can be sent`);
      }
    } else if (token) {
      this.#last = tokenIn(token);
      if (this.#last === undefined) {
        // The text is not shown: most of it may be the token.
        throw new TypeError("the token has characters that cannot be sent");
      }
    }
  }

  /**
   * Returns the token. If the file has none, as while it is replaced, or cannot be read within
   * this time, the last one counts.
   */
  async read(ms: number): Promise<string | undefined> {
    if (this.#file !== undefined) {
      // One reading at a time: one that hangs takes a thread of the process.
      this.#reading ??= this.#readFile(this.#file);
      await within(ms, this.#reading);
    }
    return this.#last;
  }

  async #readFile(file: string): Promise<void> {
    try {
      this.#last = tokenIn(await readFile(file, "utf8")) ?? this.#last;
    } catch {
      // The file is being replaced.
    } finally {
      this.#reading = undefined;
    }
  }
}

/** Waits for work that never fails, but only for this time. */
function within(ms: number, work: Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    const alarm = new Alarm(ms, false, resolve);
    void work.then(() => {
      alarm.cancel();
      resolve();
    });
  });
}

/** Returns the token in a text, without the space around it. A header has one line. */
function tokenIn(text: string): string | undefined {
  const token = text.trim();
  return /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}
