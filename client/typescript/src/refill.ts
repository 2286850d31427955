/** Refill: gets numbers until enough are there, and then ends. It keeps no process alive. */

import { countOf, type Run } from "./buffer.js";
import { monotonic, sleep } from "./clock.js";
import {
  checkNoPeriod,
  type Kind,
  Learner,
  MAX_COUNT,
  numbersOf,
  type Paths,
} from "./definition.js";
import { CallFailed, OdometerError, Refused } from "./errors.js";
import { type SafeHooks, warn } from "./hooks.js";
import type { Answer, Service } from "./service.js";
import type { Flight, Stock } from "./stock.js";

const SIZE_CODES: ReadonlySet<string> = new Set(["invalid_count", "confirm_needed"]);

/** Why a call may succeed with a smaller size, and with which. */
interface Smaller {
  readonly reason: string;
  readonly size: number;
}

/** What a refill got. */
interface Got {
  readonly runs: Run[];
  readonly endpoint: string;
  readonly outcome: string;
}

/** Fills one sequence's stock. At most one flight does so at a time. */
export class Refill {
  readonly #name: string;
  readonly #paths: Paths;
  readonly #said: Kind | undefined;
  readonly #stock: Stock;
  readonly #service: Service;
  readonly #hooks: SafeHooks;
  readonly #timeoutMs: number;
  #mayReserve = true;

  constructor(
    name: string,
    paths: Paths,
    said: Kind | undefined,
    stock: Stock,
    service: Service,
    hooks: SafeHooks,
    timeoutMs: number,
  ) {
    this.#name = name;
    this.#paths = paths;
    this.#said = said;
    this.#stock = stock;
    this.#service = service;
    this.#hooks = hooks;
    this.#timeoutMs = timeoutMs;
  }

  /** Makes the calls of a flight, after the caller's turn. Never throws. */
  launch(flight: Flight): void {
    Promise.resolve()
      .then(() => this.#fill(flight))
      .then(
        () => this.#stock.end(flight),
        (error: unknown) => {
          warn(`a refill of ${this.#name} failed: ${String(error)}`);
          this.#stock.end(flight, new OdometerError("a refill failed", { cause: error }));
        },
      );
  }

  async #fill(flight: Flight): Promise<void> {
    await flight.pause(this.#stock.firstPause(flight));
    // Of this flight alone: a flight that was forgotten may still learn.
    const learner = new Learner(this.#name, this.#said, () => this.#takeFirst());
    let hasFailed = false;
    let began: number | undefined;
    let size = this.#stock.wanted(flight);
    while (size !== undefined) {
      const asked = monotonic();
      began ??= asked;
      try {
        const { definition } = this.#stock;
        if (definition === undefined) {
          await this.#learn(flight, learner);
        } else {
          const runs = await this.#fetch(!definition.printsValues, size, hasFailed);
          this.#stock.deliver(flight, runs, asked, began);
          began = undefined;
        }
        hasFailed = false;
      } catch (error) {
        const pause = this.#paused(flight, error);
        if (pause === undefined) {
          return;
        }
        hasFailed = true;
        await sleep(pause, false);
      }
      size = this.#stock.wanted(flight);
    }
  }

  /** Returns how long to wait after an error. `undefined` ends the flight. */
  #paused(flight: Flight, error: unknown): number | undefined {
    if (!(error instanceof OdometerError)) {
      throw error;
    }
    return this.#stock.failed(flight, error, this.#service.endpoints.isSole);
  }

  async #learn(flight: Flight, learner: Learner): Promise<void> {
    const began = monotonic();
    try {
      const definition = await learner.learn(this.#service, this.#timeoutMs);
      this.#stock.learned(flight, definition, learner.giveTaken());
    } catch (error) {
      if (error instanceof CallFailed) {
        this.#report(error.endpoint, error.outcome, began, 0);
      }
      throw error;
    }
  }

  /** Gets the first number of a name that is not known yet. */
  async #takeFirst(): Promise<Answer> {
    const began = monotonic();
    const answer = await this.#hooks.within(this.#name, (traceparent) =>
      this.#ask(1, true, traceparent),
    );
    this.#report(answer.endpoint, "ok", began, 1);
    return answer;
  }

  /**
   * Gets numbers with one call, or with another one if the size was refused.
   *
   * If the call before failed, the database may be away, and then `next` still has numbers.
   */
  async #fetch(withIds: boolean, wanted: number, hasFailed: boolean): Promise<Run[]> {
    const began = monotonic();
    const isBounded = withIds || hasFailed || !this.#mayReserve;
    const size = isBounded ? Math.min(wanted, MAX_COUNT) : wanted;
    try {
      const got = await this.#hooks.within(this.#name, (traceparent) =>
        this.#asked(size, withIds, traceparent),
      );
      this.#report(got.endpoint, got.outcome, began, countOf(got.runs));
      return got.runs;
    } catch (error) {
      if (error instanceof CallFailed) {
        this.#report(error.endpoint, error.outcome, began, 0);
      }
      throw error;
    }
  }

  async #asked(wanted: number, withIds: boolean, traceparent: string): Promise<Got> {
    const reasons = new Set<string>();
    let size = wanted;
    for (;;) {
      try {
        const answer = await this.#ask(size, withIds, traceparent);
        checkNoPeriod(answer);
        const outcome = reasons.size > 0 ? "resized" : "ok";
        return { runs: numbersOf(answer, withIds), endpoint: answer.endpoint, outcome };
      } catch (error) {
        const smaller = this.#smaller(error, size);
        if (smaller === undefined || reasons.has(smaller.reason)) {
          throw error;
        }
        reasons.add(smaller.reason);
        size = smaller.size;
      }
    }
  }

  #ask(size: number, withIds: boolean, traceparent: string): Promise<Answer> {
    const isBlock = size > MAX_COUNT;
    const path = isBlock ? this.#paths.block(size) : this.#paths.batch(size, withIds);
    return this.#service.ask("POST", path, { timeoutMs: this.#timeoutMs, traceparent });
  }

  #smaller(error: unknown, size: number): Smaller | undefined {
    if (!(error instanceof Refused)) {
      return undefined;
    }
    if (error.status === 403 && size > MAX_COUNT) {
      this.#mayReserve = false;
      return { reason: "right", size: MAX_COUNT };
    }
    if (error.status === 429 || SIZE_CODES.has(error.code)) {
      const { limit = 0 } = error;
      return limit >= 1 && limit < size ? { reason: "limit", size: limit } : undefined;
    }
    // The last numbers are issued one at a time.
    const isAtEnd = error.code === "sequence_exhausted" && size > 1;
    return isAtEnd ? { reason: "end", size: 1 } : undefined;
  }

  #report(endpoint: string, outcome: string, began: number, count: number): void {
    const seconds = (monotonic() - began) / 1_000;
    this.#hooks.refill(this.#name, endpoint, outcome, seconds, count);
  }
}
