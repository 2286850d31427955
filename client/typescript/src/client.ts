/** Client: the endpoints, how to call them, and the sequences of a program. */

import { readFileSync } from "node:fs";

import { Endpoints } from "./endpoints.js";
import { type Hooks, SafeHooks } from "./hooks.js";
import { Sequence, type SequenceOptions, type Terms } from "./sequence.js";
import { Service } from "./service.js";
import { Token } from "./token.js";
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
  /** The longest wait of a caller who finds nothing in memory: 2,000 by default. */
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
    for (const [index, url] of urls.entries()) {
      if (!isAddress(url)) {
        // It may have a password, so it is not shown.
        throw new TypeError(`endpoint ${index + 1} is no address such as http://host:8080`);
      }
    }
    this.#terms = termsOf(options);
    const { caFile } = options;
    const ca = options.ca ?? (caFile === undefined ? undefined : readFileSync(caFile, "utf8"));
    const token = new Token(options.token, options.tokenFile);
    const { refillTimeout = DEFAULT_REFILL_TIMEOUT_MS } = options;
    this.#service = new Service(new Endpoints(urls), new Transport(ca), token, refillTimeout);
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

  /**
   * Returns a sequence. The same name gives the same one, with the same numbers in memory.
   *
   * Throws `TypeError` if there is no name, if you said another kind before, or if numbers of a
   * period are to be buffered.
   */
  sequence(name: string, options: SequenceOptions = {}): Sequence {
    if (typeof name !== "string" || name === "") {
      throw new TypeError("a sequence needs a name");
    }
    const { kind } = options;
    // Programs in JavaScript may say `null`.
    const period = options.period ?? undefined;
    if (period !== undefined) {
      if (kind === "buffered") {
        throw new TypeError("numbers of a period cannot be buffered");
      }
      // It has nothing to keep.
      return new Sequence(name, this.#service, this.#hooks, this.#terms, options);
    }
    let sequence = this.#sequences.get(name);
    if (sequence === undefined) {
      sequence = new Sequence(name, this.#service, this.#hooks, this.#terms, { kind });
      this.#sequences.set(name, sequence);
    }
    if (kind !== undefined) {
      sequence.say(kind);
    }
    return sequence;
  }

  /**
   * Drops all numbers in memory, the connections, and the numbers of calls in flight.
   *
   * Call it after the machine was resumed from a snapshot, or the process from a checkpoint:
   * otherwise two copies give the same numbers.
   */
  forget(): void {
    // Also for calls of periods, whose sequences are not kept.
    this.#service.forget();
    for (const sequence of this.#sequences.values()) {
      sequence.forget();
    }
  }

  /**
   * Drops all numbers in memory, and closes the connections. Callers who wait get an error.
   *
   * Some numbers are never in memory. A call for one that is under way may still give it, but is
   * not tried again.
   */
  close(): void {
    for (const sequence of this.#sequences.values()) {
      sequence.close();
    }
    this.#service.close();
  }
}

function termsOf(options: ClientOptions): Terms {
  const { deadline = DEFAULT_DEADLINE_MS, refillTimeout, maxAge } = options;
  const { initialSize = DEFAULT_INITIAL_SIZE } = options;
  for (const [name, ms] of Object.entries({ deadline, refillTimeout, maxAge })) {
    if (ms !== undefined && !(ms >= 0)) {
      throw new RangeError(`${name} is a time in milliseconds, not ${ms}`);
    }
  }
  if (!Number.isSafeInteger(initialSize) || initialSize < 1) {
    throw new RangeError(`initialSize is 1 at least, not ${initialSize}`);
  }
  return { deadline, maxAge, initialSize };
}

function isAddress(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return (
    url !== undefined &&
    ["http:", "https:"].includes(url.protocol) &&
    url.port !== "0" &&
    !(url.search || url.hash || url.username || url.password)
  );
}
