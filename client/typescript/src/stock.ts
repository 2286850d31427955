/** Stock: the numbers of one sequence, who waits for them, and the one refill in flight. */

import { pauseMs } from "./backoff.js";
import { Buffer, countOf, type Item, type NumberRange, type Run } from "./buffer.js";
import { Alarm, type Clock, monotonic } from "./clock.js";
import type { Definition } from "./definition.js";
import { CallFailed, type OdometerError } from "./errors.js";
import type { SafeHooks } from "./hooks.js";
import { Size } from "./size.js";
import type { Waiter } from "./waiter.js";

/** A refill that nobody waits for ends after so many failures. The next take starts another one. */
const MAX_ATTEMPTS_FOR_NOBODY = 10;

/** A refill, from its start to its end. Only the stock's present flight changes the stock. */
export class Flight {
  /** Why its numbers are dropped, once it is not the present flight any more. */
  cause = "late";
  #isHurried = false;
  #goOn: () => void = () => undefined;

  /** Ends the pause of the flight, now or when it begins. */
  hurry(): void {
    this.#isHurried = true;
    this.#goOn();
  }

  /** Waits for this time, or until somebody is in a hurry. */
  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      if (this.#isHurried || ms <= 0) {
        resolve();
        return;
      }
      const alarm = new Alarm(ms, false, resolve);
      this.#goOn = () => {
        alarm.cancel();
        resolve();
      };
    });
  }
}

/** What a program says of a stock. */
export interface StockOptions {
  readonly initialSize: number;
  /** In milliseconds; `undefined`: numbers are kept. */
  readonly maxAge?: number | undefined;
}

/** All state of a sequence is here. */
export class Stock {
  /** Starts a flight. It must not change the stock before it returns. */
  launch: (flight: Flight) => void = () => undefined;
  definition: Definition | undefined;
  #lastError: OdometerError | undefined;
  readonly #hooks: SafeHooks;
  readonly #maxAge: number | undefined;
  readonly #clock: Clock;
  readonly #size: Size;
  #buffer = new Buffer();
  /** In the order of arrival. If somebody is here, the buffer is empty. */
  readonly #line = new Set<Waiter>();
  readonly #warming = new Set<Waiter>();
  #flight: Flight | undefined;
  #nFailures = 0;
  #notBefore = 0;

  constructor(hooks: SafeHooks, options: StockOptions, clock: Clock = monotonic) {
    this.#hooks = hooks;
    this.#maxAge = options.maxAge;
    this.#clock = clock;
    this.#size = new Size(options.initialSize);
  }

  /** Each take must be a call. False while it is not known. */
  get isUnbuffered(): boolean {
    return this.definition?.isBuffered === false;
  }

  /** Why the last refill failed, if none has succeeded since. */
  get lastError(): OdometerError | undefined {
    return this.#lastError;
  }

  /** How many numbers can be taken. */
  get left(): number {
    this.#dropOld(this.#clock());
    return this.#buffer.left;
  }

  /** How many numbers a second are taken. */
  get rate(): number {
    return this.#size.rate.perSecond(this.#clock());
  }

  /** Takes a number, if one is in memory, and starts a refill if it is time. */
  take(): Item | undefined {
    const now = this.#clock();
    this.#dropOld(now);
    const item = this.#pop(now);
    this.#refillIfNeeded(now);
    return item;
  }

  /** Takes an unbroken range, if memory has one. If not, the rest of a block stays. */
  takeRange(count: number): NumberRange | undefined {
    const now = this.#clock();
    this.#dropOld(now);
    const range = this.#buffer.takeRange(count);
    if (range !== undefined) {
      this.#size.rate.note(now, count);
      this.#refillIfNeeded(now);
    }
    return range;
  }

  /** Lets a caller who found nothing stand in line. */
  wait(waiter: Waiter): void {
    this.#line.add(waiter);
    this.#hurry();
    this.#refillIfNeeded(this.#clock());
  }

  /** Settles the waiter when its target is in memory. If there is no buffer, settles it at once. */
  warm(waiter: Waiter): void {
    const now = this.#clock();
    this.#dropOld(now);
    this.#warming.add(waiter);
    if (this.definition !== undefined) {
      this.#serve(now);
    }
    this.#hurry();
    this.#refillIfNeeded(now);
  }

  /**
   * Takes a caller who gave up out of the line. Returns false if it is settled already. The refill
   * goes on.
   */
  withdraw(waiter: Waiter): boolean {
    return this.#line.delete(waiter) || this.#warming.delete(waiter);
  }

  /**
   * Drops all numbers, and those of the refill in flight. Callers who wait get new ones, or the
   * error.
   */
  dropAll(cause: string, error?: OdometerError): void {
    if (this.#flight !== undefined) {
      this.#flight.cause = cause;
      this.#flight = undefined;
    }
    if (error !== undefined) {
      this.#failWaiters(error);
    }
    const nDropped = this.#empty();
    if (this.#isAwaited) {
      this.#refillIfNeeded(this.#clock());
    }
    this.#hooks.dropped(nDropped, cause);
  }

  // For the refill.

  /** Returns how long a new flight waits, because the one before it failed. */
  firstPause(flight: Flight): number {
    if (this.#flight !== flight) {
      return 0;
    }
    if (this.#isAwaited) {
      this.#hurry();
    }
    return Math.max(0, this.#notBefore - this.#clock());
  }

  /** Returns how many numbers to ask for. `undefined` ends the flight. */
  wanted(flight: Flight): number | undefined {
    if (this.#flight !== flight) {
      return undefined;
    }
    const now = this.#clock();
    if (!this.#isNeeded(now)) {
      this.#flight = undefined;
      return undefined;
    }
    let target = 0;
    for (const waiter of this.#warming) {
      target = Math.max(target, waiter.target ?? 0);
    }
    const missing = target - this.#buffer.left;
    return Math.max(1, this.#size.nextSize(now), this.#line.size, missing);
  }

  /** Adds what a flight got. It was asked for at `asked`; the refill began at `began`. */
  deliver(flight: Flight, runs: readonly Run[], asked: number, began: number): void {
    if (this.#flight !== flight) {
      this.#hooks.dropped(countOf(runs), flight.cause);
      return;
    }
    const now = this.#clock();
    this.#buffer.add(runs, asked);
    this.#size.noteRefill(now - began);
    this.#succeed();
    this.#serve(now);
  }

  /**
   * Notes what the sequence is, and the numbers that had to be taken to learn it. They were asked
   * for at `asked`.
   */
  learned(flight: Flight, definition: Definition, runs: readonly Run[], asked: number): void {
    const now = this.#clock();
    this.definition = definition;
    if (this.#flight === flight) {
      this.#buffer.add(runs, asked);
      this.#dropOld(now);
      this.#succeed();
    } else {
      this.#hooks.dropped(countOf(runs), flight.cause);
    }
    // If each number is a call, callers need not wait for the present flight.
    this.#serve(now);
    if (!definition.isBuffered) {
      // Kept for later the rest would be out of order, or of another period.
      this.#hooks.dropped(this.#empty(), "late");
    }
  }

  /**
   * Notes a failed attempt. Returns how many milliseconds to wait for the next one; `undefined`
   * ends the flight.
   */
  failed(flight: Flight, error: OdometerError, isSole: boolean): number | undefined {
    if (this.#flight !== flight) {
      return undefined;
    }
    this.#nFailures += 1;
    this.#lastError = error;
    const retryAfter = isSole && error instanceof CallFailed ? error.retryAfter : undefined;
    const pause = pauseMs(this.#nFailures, retryAfter);
    this.#notBefore = this.#clock() + pause;
    if (!isRetryable(error)) {
      this.#failWaiters(error);
    } else if (this.#isAwaited || this.#nFailures % MAX_ATTEMPTS_FOR_NOBODY !== 0) {
      return pause;
    }
    this.#flight = undefined;
    return undefined;
  }

  get #isAwaited(): boolean {
    return this.#line.size > 0 || this.#warming.size > 0;
  }

  /** After a refusal, a caller who waits has a reason to ask again: the cause may be gone. */
  #hurry(): void {
    if (this.#lastError !== undefined && !isRetryable(this.#lastError)) {
      this.#flight?.hurry();
    }
  }

  /** Drops what is in memory. Returns how many numbers. */
  #empty(): number {
    const { left } = this.#buffer;
    this.#buffer = new Buffer();
    return left;
  }

  #pop(now: number): Item | undefined {
    const item = this.#buffer.take();
    if (item !== undefined) {
      this.#size.rate.note(now);
    }
    return item;
  }

  #dropOld(now: number): void {
    if (this.#maxAge !== undefined) {
      this.#hooks.dropped(this.#buffer.dropOlder(now - this.#maxAge), "max_age");
    }
  }

  #succeed(): void {
    this.#nFailures = 0;
    this.#notBefore = 0;
    this.#lastError = undefined;
  }

  #serve(now: number): void {
    for (const waiter of this.#line) {
      if (this.#buffer.left === 0 && !this.isUnbuffered) {
        break;
      }
      waiter.settle(this.#pop(now));
      this.#line.delete(waiter);
    }
    for (const waiter of this.#warming) {
      if (this.isUnbuffered || this.#buffer.left >= (waiter.target ?? 0)) {
        this.#warming.delete(waiter);
        waiter.settle();
      }
    }
  }

  #failWaiters(error: unknown): void {
    for (const waiter of [...this.#line, ...this.#warming]) {
      waiter.fail(error);
    }
    this.#line.clear();
    this.#warming.clear();
  }

  #isNeeded(now: number): boolean {
    if (this.definition === undefined) {
      return true;
    }
    if (!this.definition.isBuffered) {
      return false;
    }
    if (this.#isAwaited || !this.#size.hasRefilled) {
      return true;
    }
    if (this.#buffer.hasNext) {
      return false;
    }
    const { left, currentSize } = this.#buffer;
    return left === 0 || left < this.#size.lowWaterMark(now, currentSize);
  }

  #refillIfNeeded(now: number): void {
    if (this.#flight === undefined && this.#isNeeded(now)) {
      // Noted last: if the launch throws, as on a full stack, no flight is under way.
      const flight = new Flight();
      this.launch(flight);
      this.#flight = flight;
    }
  }
}

function isRetryable(error: OdometerError): boolean {
  return error instanceof CallFailed && error.isRetryable;
}
