/** Service: one call to whichever replica has its turn, and what the reply means. */

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";

import type { Endpoints, Turn } from "./endpoints.js";
import { CallFailed, InvalidReply, Refused, Unreachable } from "./errors.js";
import type { Reply, Transport } from "./transport.js";

/** Raised with the workspace. */
export const VERSION = "0.1.0";
/** With these a replica says that it cannot serve now. */
const UNFIT: ReadonlySet<number> = new Set([502, 503, 504]);

/** The bearer token: given, or read from a file at each call, because files are rotated. */
export class Token {
  #token: string | undefined;
  readonly #file: string | undefined;

  /** Throws if the file cannot be read. */
  constructor(token?: string, file?: string) {
    this.#token = file === undefined ? token : readFileSync(file, "utf8").trim();
    this.#file = file;
  }

  /** Returns the token. While the file cannot be read, the last one counts. */
  async read(): Promise<string | undefined> {
    if (this.#file !== undefined) {
      try {
        this.#token = (await readFile(this.#file, "utf8")).trim();
      } catch {
        // The file is being replaced.
      }
    }
    return this.#token;
  }
}

/** A reply of success. */
export interface Answer {
  readonly body: Readonly<Record<string, unknown>>;
  readonly endpoint: string;
}

/** How a call is to be made. */
export interface Manner {
  readonly timeoutMs: number;
  readonly traceparent?: string;
  /** Whether a caller waits for it, so that the process must not end before. */
  readonly keepsAlive?: boolean;
  /** If such a call gets no reply in time, that says nothing about the endpoint. */
  readonly isHasty?: boolean;
}

/** Makes calls at the endpoints, and learns from each how the endpoint does. */
export class Service {
  readonly endpoints: Endpoints;
  readonly #transport: Transport;
  readonly #token: Token;

  constructor(endpoints: Endpoints, transport: Transport, token: Token) {
    this.endpoints = endpoints;
    this.#transport = transport;
    this.#token = token;
  }

  /** Closes the connections that no call uses. */
  closeIdle(): void {
    this.#transport.closeIdle();
  }

  /** Makes one call at one endpoint. Throws `CallFailed`: it retries nothing. */
  async ask(method: string, path: string, manner: Manner): Promise<Answer> {
    const headers = await this.#headers(manner.traceparent);
    const turn = this.endpoints.choose();
    const { timeoutMs, keepsAlive = false } = manner;
    try {
      const call = { endpoint: turn.url, method, path, headers, timeoutMs, keepsAlive };
      const reply = await this.#transport.call(call);
      const answer = answerOf(reply, turn.url);
      this.endpoints.succeeded(turn);
      if (reply.isLast) {
        this.endpoints.movedOn(turn);
      }
      return answer;
    } catch (error) {
      this.#judge(turn, error, manner.isHasty ?? false);
      throw error;
    }
  }

  #judge(turn: Turn, error: unknown, isHasty: boolean): void {
    if (!(error instanceof CallFailed)) {
      this.endpoints.abandoned(turn);
    } else if (error instanceof Unreachable) {
      if (error.timedOut && isHasty) {
        this.endpoints.abandoned(turn);
      } else {
        this.endpoints.failed(turn);
      }
    } else if (error instanceof Refused && UNFIT.has(error.status)) {
      this.endpoints.failed(turn);
    } else {
      this.endpoints.succeeded(turn);
      // Another replica may have numbers in memory. A limit holds for this replica.
      if (error instanceof Refused && error.status === 429 && error.limit === undefined) {
        this.endpoints.movedOn(turn);
      }
    }
  }

  async #headers(traceparent: string | undefined): Promise<Record<string, string>> {
    const token = await this.#token.read();
    return {
      Accept: "application/json",
      "User-Agent": `odometer-client-typescript/${VERSION}`,
      ...(token ? { Authorization: `Bearer ${token}` } : {}),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
  }
}

function answerOf(reply: Reply, endpoint: string): Answer {
  const body = objectOf(reply.body);
  if (reply.status < 200 || reply.status >= 300) {
    throw refusal(reply, body ?? {}, endpoint);
  }
  if (body === undefined) {
    const what = `${endpoint} answered ${reply.status} without a JSON object`;
    throw new InvalidReply(what, endpoint);
  }
  return { body, endpoint };
}

function objectOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns whether a value of JSON is an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function refusal(reply: Reply, body: Record<string, unknown>, endpoint: string): Refused {
  const { limit } = body;
  const retryAfter = Number.parseFloat(reply.retryAfter ?? "");
  return new Refused({
    status: reply.status,
    code: String(body["code"] ?? `http_${reply.status}`),
    detail: String(body["detail"] ?? "no reason given"),
    endpoint,
    limit: typeof limit === "string" && /^\d+$/.test(limit) ? Number(limit) : undefined,
    retryAfter: Number.isNaN(retryAfter) ? undefined : retryAfter,
  });
}
