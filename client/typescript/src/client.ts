/** Client: the endpoints, how to call them, and the sequences of a program. */

import { readFileSync } from "node:fs";

import { Endpoints } from "./endpoints.js";
import { type Hooks, SafeHooks } from "./hooks.js";
import { Sequence, type SequenceOptions, type Terms } from "./sequence.js";
import { Service, Token } from "./service.js";
import { Transport } from "./transport.js";

const DEFAULT_URL = "http://127.0.0.1:8080";
const DEFAULT_DEADLINE_MS = 2_000;
const DEFAULT_REFILL_TIMEOUT_MS = 7_000;
const DEFAULT_INITIAL_SIZE = 100;

/** How a client calls, and what its callers wait for. Times are in milliseconds. */
export interface ClientOptions {
  /** The addresses of the replicas, as `http://host:8080`. */
  readonly endpoints?: string | readonly string[] | undefined;
  /** The bearer token. */
  readonly token?: string | undefined;
  /** A file with the token, which is read at each call. */
  readonly tokenFile?: string | undefined;
  /** The certificate of the authority for `https`, in PEM. */
  readonly ca?: string | undefined;
  /** A file with the certificate of the authority. */
  readonly caFile?: string | undefined;
  /** How long a caller waits who finds nothing in memory: 2,000 by default. */
  readonly deadline?: number | undefined;
  /** How long one call may take: 7,000 by default. The service holds a call for 5,000 at most. */
  readonly refillTimeout?: number | undefined;
  /** Drops numbers that were asked for longer ago. Off by default. */
  readonly maxAge?: number | undefined;
  /** How many numbers the first refill asks for: 100 by default. */
  readonly initialSize?: number | undefined;
  /** What your program wants to know. */
  readonly hooks?: Hooks | undefined;
}

/**
 * Takes numbers from one installation of Odometer. Make one for a process, and share it.
 *
 * A worker thread and a process of a cluster have their own client, with their own numbers.
 */
export class Client {
  readonly #service: Service;
  readonly #hooks: SafeHooks;
  readonly #terms: Terms;
  readonly #sequences = new Map<string, Sequence>();

  /** Throws if an option is wrong, or a file cannot be read. Makes no call. */
  constructor(options: ClientOptions = {}) {
    const { endpoints = DEFAULT_URL } = options;
    const urls = typeof endpoints === "string" ? [endpoints] : [...endpoints];
    if (urls.length === 0) {
      throw new TypeError("a client needs an endpoint");
    }
    urls.forEach(checkUrl);
    this.#terms = termsOf(options);
    const { caFile } = options;
    const ca = options.ca ?? (caFile === undefined ? undefined : readFileSync(caFile, "utf8"));
    const token = new Token(options.token, options.tokenFile);
    this.#service = new Service(new Endpoints(urls), new Transport(ca), token);
    this.#hooks = new SafeHooks(options.hooks ?? {});
  }

  /**
   * Makes a client from `ODOMETER_URL` (addresses, with commas between them), `ODOMETER_TOKEN`,
   * `ODOMETER_TOKEN_FILE` and `ODOMETER_CA_FILE`. Options come first.
   */
  static fromEnvironment(options: ClientOptions = {}): Client {
    const { ODOMETER_URL, ODOMETER_TOKEN, ODOMETER_TOKEN_FILE, ODOMETER_CA_FILE } = process.env;
    const listed = (ODOMETER_URL || DEFAULT_URL).split(",").map((url) => url.trim());
    const endpoints = options.endpoints ?? listed.filter((url) => url !== "");
    let { token, tokenFile, caFile } = options;
    if (token === undefined && tokenFile === undefined) {
      token = ODOMETER_TOKEN || undefined;
      tokenFile = token === undefined ? ODOMETER_TOKEN_FILE || undefined : undefined;
    }
    if (options.ca === undefined) {
      caFile ??= ODOMETER_CA_FILE || undefined;
    }
    return new Client({ ...options, endpoints, token, tokenFile, caFile });
  }

  /** Returns a sequence. The same name gives the same one, with the same numbers in memory. */
  sequence(name: string, options: SequenceOptions = {}): Sequence {
    const key = JSON.stringify([name, options.period]);
    let sequence = this.#sequences.get(key);
    if (sequence === undefined) {
      sequence = new Sequence(name, this.#service, this.#hooks, this.#terms, options);
      this.#sequences.set(key, sequence);
    }
    return sequence;
  }

  /**
   * Drops all numbers in memory, and the connections.
   *
   * Call it after the machine was resumed from a snapshot, or the process from a checkpoint:
   * otherwise two copies give the same numbers.
   */
  forget(): void {
    this.#drop("forget");
  }

  /** Drops all numbers in memory, and closes the connections. */
  close(): void {
    this.#drop("close");
  }

  #drop(cause: string): void {
    // First, so that no refill of those who wait uses a connection of the time before.
    this.#service.closeIdle();
    for (const sequence of this.#sequences.values()) {
      sequence.drop(cause);
    }
  }
}

function termsOf(options: ClientOptions): Terms {
  const { deadline = DEFAULT_DEADLINE_MS, refillTimeout = DEFAULT_REFILL_TIMEOUT_MS } = options;
  const { maxAge, initialSize = DEFAULT_INITIAL_SIZE } = options;
  for (const [name, ms] of Object.entries({ deadline, refillTimeout, maxAge: maxAge ?? 0 })) {
    if (!(ms >= 0)) {
      throw new RangeError(`${name} is a time in milliseconds, not ${ms}`);
    }
  }
  if (!Number.isSafeInteger(initialSize) || initialSize < 1) {
    throw new RangeError(`initialSize is 1 at least, not ${initialSize}`);
  }
  return { deadline, refillTimeout, maxAge, initialSize };
}

function checkUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isRight =
    url !== undefined && ["http:", "https:"].includes(url.protocol) && url.port !== "0";
  if (!isRight || url.search || url.hash || url.username || url.password) {
    throw new TypeError(`"${text}" is no address as http://host:8080`);
  }
}
