/** Service: one call to the replica that has its turn, and what the reply means. */

import { monotonic } from "./clock.js";
import type { Endpoints, Turn } from "./endpoints.js";
import { CallFailed, Hurried, InvalidReply, Refused, Unreachable } from "./errors.js";
import type { Token } from "./token.js";
import type { Reply, Transport } from "./transport.js";

/** Raised with the workspace. */
export const VERSION = "0.1.0";
/** With these a replica says that it cannot serve now. */
const UNFIT: ReadonlySet<number> = new Set([502, 503, 504]);
/** The longest wait for the file of the token. */
const MAX_TOKEN_MS = 100;
/** A replica that gave no reply for less time than this may still be healthy. */
const PATIENT_MS = 1_000;

/** The JSON object of a reply. */
export type Body = Readonly<Record<string, unknown>>;

/** What was read from a reply of success. */
export interface Answer<T> {
  readonly value: T;
  readonly endpoint: string;
}

/** How a call is to be made. */
export interface Manner {
  readonly traceparent?: string;
  /** Until when a caller waits for it. The process must not end before. */
  readonly until?: number;
}

/** Makes calls at the endpoints, and learns from each how the endpoint does. */
export class Service {
  readonly endpoints: Endpoints;
  readonly #transport: Transport;
  readonly #token: Token;
  readonly #timeoutMs: number;
  readonly #patientMs: number;
  #generation = 0;
  #nCloses = 0;

  /** A call may take `timeoutMs` at most. */
  constructor(endpoints: Endpoints, transport: Transport, token: Token, timeoutMs: number) {
    this.endpoints = endpoints;
    this.#transport = transport;
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.#patientMs = Math.min(PATIENT_MS, timeoutMs / 2);
  }

  /** Differs before and after `forget`. */
  get generation(): number {
    return this.#generation;
  }

  /** Makes all calls in flight those of a time before, and closes idle connections. */
  forget(): void {
    this.#generation += 1;
    this.#transport.closeIdle();
  }

  /** Differs before and after `close`. */
  get nCloses(): number {
    return this.#nCloses;
  }

  /** Lets no call in flight be tried again, and closes idle connections. */
  close(): void {
    this.#nCloses += 1;
    this.#transport.closeIdle();
  }

  /**
   * Makes one call at one endpoint, and reads its reply. Throws `CallFailed`: it retries nothing.
   *
   * Any error of `read` means that the reply is none of Odometer.
   */
  async ask<T>(
    method: string,
    path: string,
    read: (body: Body) => T,
    manner: Manner = {},
  ): Promise<Answer<T>> {
    const until = Math.min(monotonic() + this.#timeoutMs, manner.until ?? Infinity);
    const headers = await this.#headers(manner.traceparent, until - monotonic());
    const turn = this.endpoints.choose();
    let isLast = false;
    try {
      const reply = await this.#transport.call({
        endpoint: turn.url,
        method,
        path,
        headers,
        timeoutMs: until - monotonic(),
        patientMs: this.#patientMs,
        keepsAlive: manner.until !== undefined,
      });
      ({ isLast } = reply);
      const value = valueOf(reply, turn.url, read);
      this.endpoints.succeeded(turn);
      return { value, endpoint: turn.url };
    } catch (error) {
      this.#judge(turn, error);
      throw error;
    } finally {
      if (isLast) {
        this.endpoints.movedOn(turn);
      }
    }
  }

  #judge(turn: Turn, error: unknown): void {
    const isRefused = error instanceof Refused;
    if (error instanceof Hurried && error.hadMs !== undefined) {
      this.endpoints.hurried(turn, error.hadMs, this.#patientMs);
    } else if (!(error instanceof CallFailed) || error instanceof Hurried) {
      this.endpoints.abandoned(turn);
    } else if (error instanceof Unreachable || (isRefused && UNFIT.has(error.status))) {
      this.endpoints.failed(turn);
    } else {
      this.endpoints.succeeded(turn);
      // Another replica may have numbers in memory. A limit holds for this replica.
      const isFull = isRefused && error.status === 429 && error.limit === undefined;
      if (isFull || !isRefused || error.isForeign) {
        this.endpoints.movedOn(turn);
      }
    }
  }

  async #headers(traceparent: string | undefined, ms: number): Promise<Record<string, string>> {
    const token = await this.#token.read(Math.min(MAX_TOKEN_MS, ms / 2));
    return {
      Accept: "application/json",
      "User-Agent": `odometer-client-typescript/${VERSION}`,
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
  }
}

function valueOf<T>(reply: Reply, endpoint: string, read: (body: Body) => T): T {
  const body = objectOf(reply.body);
  if (reply.status < 200 || reply.status >= 300) {
    throw refusal(reply, body ?? {}, endpoint);
  }
  if (body === undefined && !reply.isWhole) {
    throw new Unreachable(`${endpoint} sent half a reply`, endpoint, false);
  }
  if (body === undefined) {
    const what = `${endpoint} answered ${reply.status} without a JSON object`;
    throw new InvalidReply(what, endpoint);
  }
  try {
    return read(body);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const what = `${endpoint} answered what cannot be read: ${why}`;
    throw new InvalidReply(what, endpoint, { cause });
  }
}

function objectOf(text: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns whether a value of JSON is an object. */
export function isObject(value: unknown): value is Body {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function refusal(reply: Reply, body: Body, endpoint: string): Refused {
  const { limit } = body;
  const retryAfter = Number.parseFloat(reply.retryAfter ?? "");
  return new Refused({
    status: reply.status,
    code: textIn(body["code"]) ?? `http_${reply.status}`,
    detail: textIn(body["detail"]) ?? "no reason given",
    endpoint,
    limit: typeof limit === "string" && /^\d+$/.test(limit) ? Number(limit) : undefined,
    retryAfter: Number.isNaN(retryAfter) ? undefined : retryAfter,
  });
}

function textIn(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
