/** Sequence: what a program calls to get numbers. */

import type { Item, NumberRange } from "./buffer.js";
import { Alarm, monotonic } from "./clock.js";
import { type Kind, Paths, UNBUFFERED } from "./definition.js";
import { closed, Direct, tooLate } from "./direct.js";
import { Empty, WouldBlock } from "./errors.js";
import type { SafeHooks } from "./hooks.js";
import { Refill } from "./refill.js";
import type { Service } from "./service.js";
import { Stock } from "./stock.js";
import { Waiter } from "./waiter.js";

/** What a program says of one sequence. */
export interface SequenceOptions {
  /**
   * Counts only without the right `look`: `buffered`, or `unbuffered` for strict, period and
   * time-ordered sequences.
   */
  readonly kind?: Kind | undefined;
  /** The period. Its numbers are never in memory: each one is a call. */
  readonly period?: string | undefined;
}

/** What all sequences of a client have. Times are in milliseconds. */
export interface Terms {
  readonly deadline: number;
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
  readonly #deadline: number;
  readonly #direct: Direct;
  readonly #stock: Stock;
  #kind: Kind | undefined;

  /** @internal */
  constructor(
    name: string,
    service: Service,
    hooks: SafeHooks,
    terms: Terms,
    options: SequenceOptions,
  ) {
    const { period } = options;
    this.name = name;
    this.#service = service;
    this.#hooks = hooks;
    this.#deadline = terms.deadline;
    this.#kind = options.kind;
    const paths = new Paths(name, period);
    this.#direct = new Direct(name, paths, service, hooks);
    const stock = new Stock(hooks, terms);
    this.#stock = stock;
    if (period !== undefined) {
      stock.definition = UNBUFFERED;
    }
    const said = (): Kind | undefined => this.#kind;
    const refill = new Refill(name, paths, said, stock, service, hooks);
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
    const until = monotonic() + this.#deadline;
    const range = this.#stock.isUnbuffered ? undefined : this.#stock.takeRange(count);
    return range ?? this.#direct.range(count, until);
  }

  /**
   * Waits until so many numbers are in memory, at most `timeout` milliseconds (the deadline).
   *
   * Call it when your program starts. Unbuffered sequences are only looked up.
   */
  async warm(count: number, timeout: number = this.#deadline): Promise<void> {
    check("a warm start", count);
    if (!(timeout >= 0)) {
      throw new RangeError(`a timeout is a time in milliseconds, not ${timeout}`);
    }
    const waiter = new Waiter(count);
    await this.#settled(waiter, monotonic() + timeout, () => this.#stock.warm(waiter));
  }

  /**
   * Drops the numbers of this sequence in memory, the connections, and the numbers of calls in
   * flight. See `Client.forget`.
   */
  forget(): void {
    // First, so that no refill of those who wait uses a connection of the time before.
    this.#service.forget();
    this.#stock.dropAll("forget");
  }

  /** @internal Drops all numbers in memory. Callers who wait get an error. */
  close(): void {
    this.#stock.dropAll("close", closed(this.name));
  }

  /**
   * @internal Notes what the program says of the sequence. Throws `TypeError` if it said another
   * kind before.
   */
  say(kind: Kind): void {
    if (this.#kind !== undefined && this.#kind !== kind) {
      throw new TypeError(`${this.name} was said to be ${this.#kind}, and now ${kind}`);
    }
    this.#kind = kind;
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
    const reason = lastError === undefined ? undefined : { cause: lastError };
    throw new Empty(`no number of ${this.name} is in memory`, reason);
  }

  async #next(): Promise<Item> {
    const until = monotonic() + this.#deadline;
    if (!this.#stock.isUnbuffered) {
      const item = this.#stock.take() ?? (await this.#wait(until));
      if (item !== undefined) {
        return item;
      }
    }
    return this.#direct.one(until);
  }

  async #wait(until: number): Promise<Item | undefined> {
    const began = monotonic();
    const waiter = new Waiter();
    try {
      return await this.#settled(waiter, until, () => this.#stock.wait(waiter));
    } finally {
      this.#hooks.waited((monotonic() - began) / 1_000);
    }
  }

  /** Puts a waiter in line by `begin`, and waits for it. Meanwhile the process stays alive. */
  async #settled(waiter: Waiter, until: number, begin: () => void): Promise<Item | undefined> {
    // First, because on a full stack it throws, and then nobody may be in line.
    const alarm = new Alarm(until - monotonic(), true, () => {
      if (this.#stock.withdraw(waiter)) {
        waiter.fail(tooLate(this.name, this.#stock.lastError));
      }
    });
    try {
      begin();
      return await waiter.settled;
    } finally {
      // If it could not begin, no caller is left. If it is settled, this does nothing.
      this.#stock.withdraw(waiter);
      alarm.cancel();
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
