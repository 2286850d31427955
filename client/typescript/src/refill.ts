/** Refill: gets numbers until enough are there, and then ends. It keeps no process alive. */

import { countOf } from "./buffer.js";
import { monotonic, sleep } from "./clock.js";
import { detached } from "./context.js";
import {
  type Definition,
  type Kind,
  Learner,
  MAX_COUNT,
  type Numbers,
  numbersOf,
  type Paths,
  UNBUFFERED,
} from "./definition.js";
import { CallFailed, OdometerError, Refused } from "./errors.js";
import { type SafeHooks, warn } from "./hooks.js";
import type { Answer, Body, Service } from "./service.js";
import type { Flight, Stock } from "./stock.js";

const SIZE_CODES: ReadonlySet<string> = new Set(["invalid_count", "confirm_needed"]);

/** Why a call may succeed with a smaller size, and with which. */
interface Smaller {
  readonly reason: string;
  readonly size: number;
}

/** The numbers of a refill. */
interface Got {
  readonly answer: Answer<Numbers>;
  readonly outcome: string;
}

/** What hooks are told of a call, once its numbers are in memory. */
interface Report {
  readonly endpoint: string;
  readonly outcome: string;
  readonly seconds: number;
  readonly count: number;
}

/** Fills one sequence's stock. At most one flight does so at a time. */
export class Refill {
  readonly #name: string;
  readonly #paths: Paths;
  readonly #said: () => Kind | undefined;
  readonly #stock: Stock;
  readonly #service: Service;
  readonly #hooks: SafeHooks;
  #mayReserve = true;

  constructor(
    name: string,
    paths: Paths,
    said: () => Kind | undefined,
    stock: Stock,
    service: Service,
    hooks: SafeHooks,
  ) {
    this.#name = name;
    this.#paths = paths;
    this.#said = said;
    this.#stock = stock;
    this.#service = service;
    this.#hooks = hooks;
  }

  /** Makes the calls of a flight, after the caller's turn. */
  launch(flight: Flight): void {
    detached(() => {
      void Promise.resolve()
        .then(() => this.#fill(flight))
        .catch((cause: unknown) => {
          this.#failed(flight, new OdometerError("a refill failed", { cause }));
          // Last, because a program may replace what prints it.
          warn(`a refill of ${this.#name} failed`, cause);
        });
    });
  }

  async #fill(flight: Flight): Promise<void> {
    await flight.pause(this.#stock.firstPause(flight));
    const reports: Report[] = [];
    // Of this flight alone: a flight that was forgotten may still learn.
    const learner = new Learner(this.#name, this.#said(), () => this.#takeFirst(reports));
    try {
      await this.#work(flight, learner, reports);
    } finally {
      this.#hooks.dropped(countOf(learner.taken), flight.cause);
    }
  }

  async #work(flight: Flight, learner: Learner, reports: Report[]): Promise<void> {
    let hasFailed = false;
    let began: number | undefined;
    for (;;) {
      const size = this.#stock.wanted(flight);
      if (size === undefined) {
        return;
      }
      began ??= monotonic();
      let pause: number | undefined = 0;
      try {
        const { definition } = this.#stock;
        if (definition === undefined) {
          await this.#learn(flight, learner, reports);
        } else {
          await this.#fetch(flight, definition, size, hasFailed, began, reports);
          began = undefined;
        }
        hasFailed = false;
      } catch (error) {
        pause = this.#failed(flight, error);
        hasFailed = true;
      }
      // The last step, because hooks are the program's.
      for (const { endpoint, outcome, seconds, count } of reports.splice(0)) {
        this.#hooks.refill(this.#name, endpoint, outcome, seconds, count);
      }
      if (pause === undefined) {
        return;
      }
      if (hasFailed) {
        await sleep(pause, false);
      }
    }
  }

  /** Returns how long to wait after an error. `undefined` ends the flight. */
  #failed(flight: Flight, error: unknown): number | undefined {
    if (!(error instanceof OdometerError)) {
      throw error;
    }
    return this.#stock.failed(flight, error, this.#service.endpoints.isSole);
  }

  async #learn(flight: Flight, learner: Learner, reports: Report[]): Promise<void> {
    const began = monotonic();
    try {
      const definition = await learner.learn(this.#service);
      const runs = learner.taken;
      learner.taken = [];
      this.#stock.learned(flight, definition, runs, learner.asked);
    } catch (error) {
      if (error instanceof CallFailed) {
        reports.push(reportOf(error.endpoint, error.outcome, began, 0));
      }
      throw error;
    }
  }

  /** Gets the first number of a name that is not known yet. */
  async #takeFirst(reports: Report[]): Promise<Answer<Numbers>> {
    const began = monotonic();
    const answer = await this.#hooks.within(this.#name, (traceparent) =>
      this.#ask(1, true, traceparent),
    );
    reports.push(reportOf(answer.endpoint, "ok", began, 1));
    return answer;
  }

  /**
   * Gets numbers with one call, or with another one if the size was refused.
   *
   * If the call before failed, the database may be away, and then `next` still has numbers.
   */
  async #fetch(
    flight: Flight,
    definition: Definition,
    wanted: number,
    hasFailed: boolean,
    began: number,
    reports: Report[],
  ): Promise<void> {
    const asked = monotonic();
    const withIds = !definition.printsValues;
    const isBounded = withIds || hasFailed || !this.#mayReserve;
    const size = isBounded ? Math.min(wanted, MAX_COUNT) : wanted;
    try {
      const { answer, outcome } = await this.#hooks.within(this.#name, (traceparent) =>
        this.#asked(size, withIds, traceparent),
      );
      const { runs, hasPeriod } = answer.value;
      reports.push(reportOf(answer.endpoint, outcome, asked, countOf(runs)));
      if (hasPeriod) {
        // The program said another kind.
        this.#stock.learned(flight, UNBUFFERED, runs, asked);
      } else {
        this.#stock.deliver(flight, runs, asked, began);
      }
    } catch (error) {
      if (error instanceof CallFailed) {
        reports.push(reportOf(error.endpoint, error.outcome, asked, 0));
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
        return { answer, outcome: reasons.size > 0 ? "resized" : "ok" };
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

  #ask(size: number, withIds: boolean, traceparent: string): Promise<Answer<Numbers>> {
    const isBlock = size > MAX_COUNT;
    const path = isBlock ? this.#paths.block(size) : this.#paths.batch(size, withIds);
    const read = (body: Body): Numbers => numbersOf(body, withIds);
    return this.#service.ask("POST", path, read, { traceparent });
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
}

function reportOf(endpoint: string, outcome: string, began: number, count: number): Report {
  return { endpoint, outcome, seconds: (monotonic() - began) / 1_000, count };
}
