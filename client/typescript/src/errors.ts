/** The errors of the client: what happened, and a word for it in `code`. */

const RETRYABLE_STATUSES: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Why an error came to be. */
export interface Reason {
  readonly cause?: unknown;
}

/** Any failure of this client. */
export class OdometerError extends Error {
  /** A word for programs. */
  readonly code: string = "client";

  constructor(message: string, reason?: Reason) {
    super(message, reason);
    this.name = new.target.name;
  }
}

/**
 * No number is in memory. A refill is on its way. `cause` is the last failure, if there is one.
 */
export class Empty extends OdometerError {
  override readonly code: string = "empty";
}

/** The numbers of this sequence are never in memory, so only calls that wait can give one. */
export class WouldBlock extends OdometerError {
  override readonly code: string = "would_block";
}

/** No number came within the deadline. The refill goes on. `cause` is its last failure. */
export class DeadlinePassed extends OdometerError {
  override readonly code: string = "deadline";
}

/** One call to one replica gave no numbers. */
export class CallFailed extends OdometerError {
  /** The address that was called. */
  readonly endpoint: string;

  constructor(message: string, endpoint: string, reason?: Reason) {
    super(message, reason);
    this.endpoint = endpoint;
  }

  /** What hooks are told. */
  get outcome(): string {
    return this.code;
  }

  /** Whether the same call may succeed later, or at another replica. */
  get isRetryable(): boolean {
    return false;
  }

  /** In seconds, if the service said so. */
  get retryAfter(): number | undefined {
    return undefined;
  }
}

/** A replica gave no reply. Numbers that were on their way are a gap. */
export class Unreachable extends CallFailed {
  override readonly code: string = "unreachable";
  readonly timedOut: boolean;

  constructor(message: string, endpoint: string, timedOut: boolean, reason?: Reason) {
    super(message, endpoint, reason);
    this.timedOut = timedOut;
  }

  override get outcome(): string {
    return this.timedOut ? "timeout" : "connection";
  }

  override get isRetryable(): boolean {
    return true;
  }
}

/** A replica had too little time for a reply. One such call says nothing about the replica. */
export class Hurried extends Unreachable {
  /** How long the replica had the call. `undefined`: other calls had all connections. */
  readonly hadMs: number | undefined;

  constructor(message: string, endpoint: string, hadMs: number | undefined) {
    super(message, endpoint, true);
    this.hadMs = hadMs;
  }
}

/** A replica answered with something that is no answer of Odometer. */
export class InvalidReply extends CallFailed {
  override readonly code: string = "invalid_reply";
}

/** What a refusal says. */
export interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly endpoint: string;
  /** How many numbers the call could have now, if its size was refused. */
  readonly limit?: number | undefined;
  /** In seconds. */
  readonly retryAfter?: number | undefined;
}

/** The service refused a call. `code` is the service's, from its closed list. */
export class Refused extends CallFailed {
  override readonly code: string;
  readonly status: number;
  readonly detail: string;
  /** How many numbers the call could have now, if its size was refused. */
  readonly limit: number | undefined;
  readonly #refusal: Refusal;

  constructor(refusal: Refusal, reason?: Reason) {
    const { status, code, detail, endpoint } = refusal;
    super(`${endpoint} answered ${status} ${code}: ${detail}`, endpoint, reason);
    this.code = code;
    this.status = status;
    this.detail = detail;
    this.limit = refusal.limit;
    this.#refusal = refusal;
  }

  /** Returns the same refusal, with a sentence about what to do. */
  withAdvice(advice: string): Refused {
    const detail = `${this.detail} ${advice}`;
    return new Refused({ ...this.#refusal, detail }, { cause: this });
  }

  /** Whether this is no answer about a sequence: another service may be at the address. */
  get isForeign(): boolean {
    return this.code === "route_not_found" || this.code.startsWith("http_");
  }

  override get isRetryable(): boolean {
    return RETRYABLE_STATUSES.has(this.status);
  }

  override get retryAfter(): number | undefined {
    return this.#refusal.retryAfter;
  }
}
