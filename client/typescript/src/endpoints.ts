/** Endpoints: which replica to call next, by how the calls before went. No I/O. */

import { type Clock, monotonic } from "./clock.js";

const MIN_REST_MS = 1_000;
const MAX_REST_MS = 30_000;
/** A rest is longer by up to this part of it, so that clients do not come back together. */
const REST_JITTER = 0.25;

/** How one endpoint does. */
class Endpoint {
  nFailures = 0;
  failedAt = 0;
  restsUntil = 0;
  isProbed = false;
  /** Since when callers in a hurry get no reply. A reply and a failure end this. */
  silentSince: number | undefined;

  constructor(
    readonly url: string,
    readonly index: number,
  ) {}

  /** Forgets all failures. */
  recover(): void {
    this.nFailures = 0;
    this.failedAt = 0;
    this.restsUntil = 0;
    this.isProbed = false;
  }
}

/** One call to one endpoint. Tell `Endpoints` how it ended. */
export interface Turn {
  readonly endpoint: Endpoint;
  readonly url: string;
  readonly started: number;
  readonly isProbe: boolean;
}

/** Begins at a random endpoint, and stays with it until it fails. */
export class Endpoints {
  readonly #endpoints: readonly Endpoint[];
  readonly #clock: Clock;
  readonly #random: () => number;
  #current: number;

  /** There must be one address at least. `random` draws a number from 0 up to 1. */
  constructor(
    urls: readonly string[],
    clock: Clock = monotonic,
    random: () => number = Math.random,
  ) {
    this.#endpoints = urls.map((url, index) => new Endpoint(url, index));
    this.#clock = clock;
    this.#random = random;
    this.#current = Math.floor(random() * urls.length);
  }

  get isSole(): boolean {
    return this.#endpoints.length === 1;
  }

  /** Returns the endpoint to call now. */
  choose(): Turn {
    const started = this.#clock();
    const endpoint = this.#pick(started);
    const isProbe = endpoint.nFailures > 0;
    if (isProbe) {
      endpoint.isProbed = true;
    }
    this.#current = endpoint.index;
    return { endpoint, url: endpoint.url, started, isProbe };
  }

  /** The endpoint answered. A refusal of the call is an answer, too. */
  succeeded(turn: Turn): void {
    turn.endpoint.silentSince = undefined;
    // A call from before the last failure proves nothing about the time after it.
    if (turn.isProbe || turn.started >= turn.endpoint.failedAt) {
      turn.endpoint.recover();
    }
  }

  /** The endpoint gave no reply, or said that it cannot serve now: it rests. */
  failed(turn: Turn): void {
    const { endpoint } = turn;
    const now = this.#clock();
    endpoint.silentSince = undefined;
    this.#endProbe(turn);
    // Calls in flight at the same time fail together, and count once.
    if (endpoint.nFailures === 0 || turn.started >= endpoint.failedAt) {
      const rest = Math.min(MAX_REST_MS, MIN_REST_MS * 2 ** endpoint.nFailures);
      endpoint.nFailures += 1;
      endpoint.failedAt = now;
      endpoint.restsUntil = now + rest * (1 + REST_JITTER * this.#random());
    }
    this.#leave(endpoint);
  }

  /**
   * A caller in a hurry got no reply, although the endpoint had the call for `hadMs`. This says
   * nothing about the endpoint, but it failed if such callers got none for `patientMs`.
   */
  hurried(turn: Turn, hadMs: number, patientMs: number): void {
    const { endpoint } = turn;
    const now = this.#clock();
    // Not the start of the turn: the call may have waited for a connection.
    endpoint.silentSince ??= now - hadMs;
    if (now - endpoint.silentSince >= patientMs) {
      this.failed(turn);
    } else {
      this.abandoned(turn);
    }
  }

  /** The endpoint works, but the next call goes to another one. */
  movedOn(turn: Turn): void {
    this.#endProbe(turn);
    this.#leave(turn.endpoint);
  }

  /** The call ended without saying anything about the endpoint. */
  abandoned(turn: Turn): void {
    this.#endProbe(turn);
  }

  #endProbe(turn: Turn): void {
    if (turn.isProbe) {
      turn.endpoint.isProbed = false;
    }
  }

  #leave(endpoint: Endpoint): void {
    if (this.#current === endpoint.index) {
      this.#current = (endpoint.index + 1) % this.#endpoints.length;
    }
  }

  #pick(now: number): Endpoint {
    const { length } = this.#endpoints;
    const inTurn = [...this.#endpoints, ...this.#endpoints].slice(this.#current);
    const fit = inTurn
      .slice(0, length)
      .find((it) => it.nFailures === 0 || (now >= it.restsUntil && !it.isProbed));
    // If all rest, call the one that has rested longest, and prefer one without a probe.
    return fit ?? this.#endpoints.reduce((one, other) => (isBetter(other, one) ? other : one));
  }
}

/** Returns whether a call to one resting endpoint promises more than to another one. */
function isBetter(one: Endpoint, other: Endpoint): boolean {
  if (one.isProbed !== other.isProbed) {
    return other.isProbed;
  }
  return one.failedAt < other.failedAt;
}
