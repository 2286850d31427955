/** Hooks: what the client tells your program about its work. */

import { randomBytes } from "node:crypto";
import { inspect } from "node:util";

const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/** A refill of your tracer, from its start to its end. */
export interface Span {
  /** The header of the calls (W3C Trace Context). */
  readonly traceparent: string;
  /** Called once. `error` is why the refill failed. */
  end(error?: unknown): void;
}

/**
 * Give some of these to a client as `hooks`. The client never waits for them. An error that they
 * throw, or with which their promise ends, becomes a warning of the process, and harms nothing.
 */
export interface Hooks {
  /**
   * One call for numbers ended. Its numbers are in memory already.
   *
   * `outcome` is `ok`, `resized` (the size was refused, and a smaller one was given), `timeout`,
   * `connection`, or the code of the service. `count` is 0 unless it succeeded.
   */
  refill?(
    sequence: string,
    endpoint: string,
    outcome: string,
    seconds: number,
    count: number,
  ): void;

  /** A caller found nothing in memory, and waited this long. */
  waited?(seconds: number): void;

  /**
   * Numbers are gaps now. `cause` is `max_age`, `forget`, `close`, or `late` (no caller was left).
   */
  dropped?(count: number, cause: string): void;

  /**
   * Begins a span `odometer.refill` of your tracer. Without this hook each refill has a trace of
   * its own, which is not sampled.
   */
  span?(sequence: string): Span;
}

/** Calls the hooks of a program, and survives their errors. */
export class SafeHooks {
  readonly #hooks: Hooks;

  constructor(hooks: Hooks) {
    this.#hooks = hooks;
  }

  refill(
    sequence: string,
    endpoint: string,
    outcome: string,
    seconds: number,
    count: number,
  ): void {
    survive(() => this.#hooks.refill?.(sequence, endpoint, outcome, seconds, count));
  }

  waited(seconds: number): void {
    survive(() => this.#hooks.waited?.(seconds));
  }

  dropped(count: number, cause: string): void {
    if (count > 0) {
      survive(() => this.#hooks.dropped?.(count, cause));
    }
  }

  /** Makes calls within a span. They get a header even if the program's span fails. */
  async within<T>(sequence: string, calls: (traceparent: string) => Promise<T>): Promise<T> {
    const span = survive(() => this.#hooks.span?.(sequence));
    const header = survive(() => headerOf(span));
    try {
      const result = await calls(header ?? newTraceparent());
      survive(() => span?.end());
      return result;
    } catch (error) {
      survive(() => span?.end(error));
      throw error;
    }
  }
}

function headerOf(span: Span | undefined): string | undefined {
  if (span === undefined) {
    return undefined;
  }
  const header: unknown = span.traceparent;
  if (typeof header === "string" && TRACEPARENT.test(header)) {
    return header;
  }
  throw new TypeError("a span has no header `traceparent` of W3C Trace Context");
}

function survive<T>(hook: () => T): T | undefined {
  const report = (error: unknown): void => {
    warn("a hook of odometer-client failed", error);
  };
  try {
    const result = hook();
    Promise.resolve(result).catch(report);
    return result;
  } catch (error) {
    report(error);
    return undefined;
  }
}

/** Warns the people who run the program. Node prints such warnings to standard error. */
export function warn(what: string, error: unknown): void {
  process.emitWarning(`${what}: ${textOf(error)}`, "OdometerWarning");
}

/** Returns a text of something that a program threw, which may be anything. */
function textOf(error: unknown): string {
  try {
    return inspect(error);
  } catch {
    return "an error that cannot be shown";
  }
}

function newTraceparent(): string {
  const hex = (nBytes: number): string => randomBytes(nBytes).toString("hex");
  return `00-${hex(16)}-${hex(8)}-00`;
}
