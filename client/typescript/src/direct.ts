/** Direct: calls for numbers that are not buffered. */

import { pauseMs } from "./backoff.js";
import type { Item, NumberRange } from "./buffer.js";
import { monotonic, sleep } from "./clock.js";
import { oneOf, type Paths, unbrokenOf } from "./definition.js";
import { CallFailed, DeadlinePassed, OdometerError } from "./errors.js";
import type { SafeHooks } from "./hooks.js";
import type { Answer, Body, Service } from "./service.js";

/** One call for numbers. */
interface Demand<T> {
  readonly path: string;
  readonly read: (body: Body) => T;
  readonly count: number;
  readonly until: number;
}

/** Makes a call for a number or a range, and tries it again until a time or a close. */
export class Direct {
  readonly #name: string;
  readonly #paths: Paths;
  readonly #service: Service;
  readonly #hooks: SafeHooks;

  constructor(name: string, paths: Paths, service: Service, hooks: SafeHooks) {
    this.#name = name;
    this.#paths = paths;
    this.#service = service;
    this.#hooks = hooks;
  }

  /** Gets a number. */
  one(until: number): Promise<Item> {
    return this.#call({ path: this.#paths.one(), read: oneOf, count: 1, until });
  }

  /** Gets an unbroken range. */
  range(count: number, until: number): Promise<NumberRange> {
    const read = (body: Body): NumberRange => unbrokenOf(body, count);
    return this.#call({ path: this.#paths.unbroken(count), read, count, until });
  }

  async #call<T>(demand: Demand<T>): Promise<T> {
    const { nCloses } = this.#service;
    const isOpen = (): boolean => nCloses === this.#service.nCloses;
    let last: CallFailed | undefined;
    let nFailures = 0;
    while (isOpen() && monotonic() < demand.until) {
      try {
        const { generation } = this.#service;
        const { value } = await this.#callOnce(demand);
        if (generation === this.#service.generation) {
          return value;
        }
        // A copy of this process may have got the same reply.
        this.#hooks.dropped(demand.count, "forget");
      } catch (error) {
        if (!(error instanceof CallFailed) || !error.isRetryable) {
          throw error;
        }
        last = error;
        nFailures += 1;
        const retryAfter = this.#service.endpoints.isSole ? error.retryAfter : undefined;
        const pause = pauseMs(nFailures, retryAfter);
        if (isOpen()) {
          await sleep(Math.min(pause, demand.until - monotonic()), true);
        }
      }
    }
    throw isOpen() ? tooLate(this.#name, last) : closed(this.#name);
  }

  async #callOnce<T>({ path, read, count, until }: Demand<T>): Promise<Answer<T>> {
    const began = monotonic();
    const report = (endpoint: string, outcome: string, nGiven: number): void => {
      const seconds = (monotonic() - began) / 1_000;
      this.#hooks.refill(this.#name, endpoint, outcome, seconds, nGiven);
    };
    try {
      const answer = await this.#hooks.within(this.#name, (traceparent) =>
        this.#service.ask("POST", path, read, { traceparent, until }),
      );
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

/** Returns the error of a caller whose time is over. `last` is what failed last. */
export function tooLate(name: string, last: Error | undefined): DeadlinePassed {
  const reason = last === undefined ? "" : `: ${last.message}`;
  const what = `no number of ${name} came within the deadline${reason}`;
  return new DeadlinePassed(what, last === undefined ? undefined : { cause: last });
}

/** Returns the error of a caller whose client was closed. */
export function closed(name: string): OdometerError {
  return new OdometerError(`${name} was closed`);
}
