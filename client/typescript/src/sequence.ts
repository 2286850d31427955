/** Sequence: what a program calls to get numbers. */

import { pauseMs } from "./backoff.js";
import type { Item, NumberRange } from "./buffer.js";
import { Alarm, monotonic, sleep } from "./clock.js";
import { type Kind, numbersOf, oneOf, Paths } from "./definition.js";
import { CallFailed, DeadlinePassed, Empty, InvalidReply, WouldBlock } from "./errors.js";
import type { SafeHooks } from "./hooks.js";
import { Refill } from "./refill.js";
import type { Answer, Service } from "./service.js";
import { Stock } from "./stock.js";
import { Waiter } from "./waiter.js";

/** If a caller has less time than this, a replica that does not answer may still be healthy. */
const PATIENT_MS = 1_000;

/** What a program says of one sequence. */
export interface SequenceOptions {
  /**
   * Counts only without the right `look`: `buffered`, or `unbuffered` for strict, period and
   * time-ordered sequences.
   */
  readonly kind?: Kind;
  /** The period, for sequences with periods. */
  readonly period?: string;
}

/** What all sequences of a client have. Times are in milliseconds. */
export interface Terms {
  readonly deadline: number;
  readonly refillTimeout: number;
  readonly maxAge: number | undefined;
  readonly initialSize: number;
}

/**
 * One sequence. `Client.sequence` makes it.
 *
 * Values are whole numbers of 64 bits; ids are the printed form, by the sequence's format.
 */
export class Sequence {
  readonly name: string;
  readonly #service: Service;
  readonly #hooks: SafeHooks;
  readonly #terms: Terms;
  readonly #paths: Paths;
  readonly #stock: Stock;

  /** Use `Client.sequence`. */
  constructor(
    name: string,
    service: Service,
    hooks: SafeHooks,
    terms: Terms,
    options: SequenceOptions,
  ) {
    this.name = name;
    this.#service = service;
    this.#hooks = hooks;
    this.#terms = terms;
    this.#paths = new Paths(name, options.period);
    const stock = new Stock(hooks, terms);
    this.#stock = stock;
    const { refillTimeout: timeout } = terms;
    const refill = new Refill(name, this.#paths, options.kind, stock, service, hooks, timeout);
    stock.launch = (flight) => refill.launch(flight);
  }

  /** How many numbers are in memory. */
  get left(): number {
    return this.#stock.left;
  }

  /** How many numbers a second are taken, over the last 10 s. */
  get rate(): number {
    return this.#stock.rate;
  }

  /**
   * Returns the next number from memory. Never waits.
   *
   * Throws `Empty` if there is none, and starts a refill, which needs your event loop. Numbers of
   * strict, period and time-ordered sequences are never in memory, so for them this throws
   * `WouldBlock` once that is known.
   */
  take(): bigint {
    return this.#take().value;
  }

  /** As `take`, in printed form. */
  takeId(): string {
    return printed(this.#take());
  }

  /**
   * Returns the next number. Waits for it, at most as long as the client's deadline.
   *
   * Fails with `DeadlinePassed`, or with `Refused` if the service refuses the sequence.
   */
  async next(): Promise<bigint> {
    return (await this.#next()).value;
  }

  /** As `next`, in printed form. */
  async nextId(): Promise<string> {
    return printed(await this.#next());
  }

  /**
   * Returns an unbroken range of numbers, from memory or else by one call.
   *
   * `count` is 1 at least, or this fails with `RangeError`.
   */
  async range(count: number): Promise<NumberRange> {
    check("a range", count);
    const until = monotonic() + this.#terms.deadline;
    const range = this.#stock.isUnbuffered ? undefined : this.#stock.takeRange(count);
    return range ?? this.#callRange(count, until);
  }

  /**
   * Waits until so many numbers are in memory, at most `timeout` milliseconds (the deadline).
   *
   * Call it when your program starts. Unbuffered sequences are only looked up.
   */
  async warm(count: number, timeout: number = this.#terms.deadline): Promise<void> {
    check("a warm start", count);
    const waiter = new Waiter(count);
    this.#stock.warm(waiter);
    await this.#settled(waiter, monotonic() + timeout);
  }

  /** Drops all numbers in memory, after a snapshot or a checkpoint was resumed. */
  forget(): void {
    this.#stock.forget("forget");
  }

  /** Drops all numbers in memory, and tells the hooks why. */
  drop(cause: string): void {
    this.#stock.forget(cause);
  }

  #take(): Item {
    const item = this.#stock.isUnbuffered ? undefined : this.#stock.take();
    if (item !== undefined) {
      return item;
    }
    if (this.#stock.isUnbuffered) {
      throw new WouldBlock(
        `a number of ${this.name} is a call, because this sequence is not buffered: use ` +
          "`await next()`",
      );
    }
    const { lastError } = this.#stock;
    const options = lastError === undefined ? undefined : { cause: lastError };
    throw new Empty(`no number of ${this.name} is in memory`, options);
  }

  async #next(): Promise<Item> {
    const until = monotonic() + this.#terms.deadline;
    if (!this.#stock.isUnbuffered) {
      const item = this.#stock.take() ?? (await this.#wait(until));
      if (item !== undefined) {
        return item;
      }
    }
    return this.#callOne(until);
  }

  async #wait(until: number): Promise<Item | undefined> {
    const began = monotonic();
    const waiter = new Waiter();
    this.#stock.wait(waiter);
    try {
      return await this.#settled(waiter, until);
    } finally {
      this.#hooks.waited((monotonic() - began) / 1_000);
    }
  }

  /** Waits for a waiter. Meanwhile the process stays alive. */
  async #settled(waiter: Waiter, until: number): Promise<Item | undefined> {
    const alarm = new Alarm(until - monotonic(), true, () => {
      if (this.#stock.withdraw(waiter)) {
        waiter.fail(this.#tooLate(this.#stock.lastError));
      }
    });
    try {
      return await waiter.settled;
    } finally {
      alarm.cancel();
    }
  }

  #tooLate(last: Error | undefined): DeadlinePassed {
    const reason = last === undefined ? "" : `: ${last.message}`;
    const what = `no number of ${this.name} came within the deadline${reason}`;
    return new DeadlinePassed(what, last === undefined ? undefined : { cause: last });
  }

  // Calls without a buffer, each of one caller.

  async #callOne(until: number): Promise<Item> {
    return oneOf(await this.#call(this.#paths.one(), 1, until));
  }

  async #callRange(count: number, until: number): Promise<NumberRange> {
    const answer = await this.#call(this.#paths.unbroken(count), count, until);
    const [run, ...others] = numbersOf(answer, false);
    if (run?.count !== count || others.length > 0) {
      const what = `${answer.endpoint} gave another range than ${count} unbroken numbers`;
      throw new InvalidReply(what, answer.endpoint);
    }
    return run.takeRange(count);
  }

  async #call(path: string, count: number, until: number): Promise<Answer> {
    for (let nFailures = 1; ; nFailures += 1) {
      try {
        return await this.#callOnce(path, count, until);
      } catch (error) {
        if (!(error instanceof CallFailed) || !error.isRetryable) {
          throw error;
        }
        const retryAfter = this.#service.endpoints.isSole ? error.retryAfter : undefined;
        const pause = pauseMs(nFailures, retryAfter);
        const left = until - monotonic();
        await sleep(Math.min(pause, left), true);
        if (pause >= left) {
          throw this.#tooLate(error);
        }
      }
    }
  }

  async #callOnce(path: string, count: number, until: number): Promise<Answer> {
    const began = monotonic();
    const { refillTimeout } = this.#terms;
    const timeoutMs = Math.min(refillTimeout, until - began);
    const isHasty = timeoutMs < Math.min(refillTimeout, PATIENT_MS);
    const report = (endpoint: string, outcome: string, nGiven: number): void => {
      const seconds = (monotonic() - began) / 1_000;
      this.#hooks.refill(this.name, endpoint, outcome, seconds, nGiven);
    };
    try {
      const answer = await this.#hooks.within(this.name, (traceparent) => {
        const manner = { timeoutMs, traceparent, isHasty, keepsAlive: true };
        return this.#service.ask("POST", path, manner);
      });
      report(answer.endpoint, "ok", count);
      return answer;
    } catch (error) {
      if (error instanceof CallFailed) {
        report(error.endpoint, error.outcome, 0);
      }
      throw error;
    }
  }
}

function printed(item: Item): string {
  return item.id ?? item.value.toString();
}

function check(what: string, count: number): void {
  if (!Number.isSafeInteger(count) || count < 1) {
    throw new RangeError(`${what} has 1 number at least, not ${count}`);
  }
}
