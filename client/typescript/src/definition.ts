/** Definition: whether a sequence may be buffered, and how its numbers are asked for and read. */

import { type Item, NumberRange, Run } from "./buffer.js";
import { InvalidReply, OdometerError, Refused } from "./errors.js";
import { type Answer, isObject, type Service } from "./service.js";

/** Whether numbers are kept in memory. */
export type Kind = "buffered" | "unbuffered";

/** The most numbers that one call of `next` gives. */
export const MAX_COUNT = 10_000;
const SAY_THE_KIND =
  "Without the right `look`, say the kind: { kind: 'buffered' }, or { kind: 'unbuffered' } for " +
  "strict, period and time-ordered sequences.";
const LOWEST = -(2n ** 63n);
const HIGHEST = 2n ** 63n - 1n;

/** What a client must know of a sequence. It never changes. */
export interface Definition {
  readonly isBuffered: boolean;
  /** Whether a printed number is its bare value. If not, or not known, the service prints. */
  readonly printsValues: boolean;
}

/** The paths of a sequence's calls. */
export class Paths {
  readonly #base: string;
  readonly #period: string | undefined;

  constructor(name: string, period?: string) {
    this.#base = pathOf(name);
    this.#period = period;
  }

  one(): string {
    return this.#path("next", []);
  }

  batch(count: number, withIds: boolean): string {
    return this.#path("next", [`count=${count}`, ...(withIds ? [] : ["ids=false"])]);
  }

  unbroken(count: number): string {
    if (count > MAX_COUNT) {
      return this.block(count);
    }
    return this.#path("next", [`count=${count}`, "contiguous=true", "ids=false"]);
  }

  block(size: number): string {
    return this.#path("blocks", [`size=${size}`]);
  }

  #path(call: string, parameters: string[]): string {
    if (this.#period !== undefined) {
      parameters.push(`period=${encodeURIComponent(this.#period)}`);
    }
    const query = parameters.length > 0 ? `?${parameters.join("&")}` : "";
    return `${this.#base}/${call}${query}`;
  }
}

export function pathOf(name: string): string {
  return `/v1/sequences/${encodeURIComponent(name).replaceAll("%3A", ":")}`;
}

/** Finds out what a sequence is. Call `learn` again after a failure that can be retried. */
export class Learner {
  #name: string;
  readonly #said: Kind | undefined;
  readonly #takeFirst: () => Promise<Answer>;
  #taken: Run[] = [];

  /** `takeFirst` asks for one number and its printed form. */
  constructor(name: string, said: Kind | undefined, takeFirst: () => Promise<Answer>) {
    this.#name = name;
    this.#said = said;
    this.#takeFirst = takeFirst;
  }

  /**
   * Reads the definition. A name that was never seen is created by taking its first number: see
   * `giveTaken`.
   */
  async learn(service: Service, timeoutMs: number): Promise<Definition> {
    try {
      return definitionOf(await this.#read(service, timeoutMs));
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 403) {
        throw error;
      }
      if (this.#said === undefined) {
        throw error.withAdvice(SAY_THE_KIND);
      }
      return { isBuffered: this.#said === "buffered", printsValues: false };
    }
  }

  /** Gives away the numbers that came before the definition could be read. */
  giveTaken(): Run[] {
    const taken = this.#taken;
    this.#taken = [];
    return taken;
  }

  async #read(service: Service, timeoutMs: number): Promise<Answer> {
    try {
      return await service.ask("GET", pathOf(this.#name), { timeoutMs });
    } catch (error) {
      const isUnknown = error instanceof Refused && error.code === "sequence_not_found";
      if (!isUnknown || this.#taken.length > 0) {
        throw error;
      }
    }
    const first = await this.#takeFirst();
    this.#taken = numbersOf(first, true);
    // A template may share another sequence's numbers: then that one has the definition.
    const shared = first.body["sequence"];
    if (typeof shared === "string") {
      this.#name = shared;
    }
    return service.ask("GET", pathOf(this.#name), { timeoutMs });
  }
}

function definitionOf(answer: Answer): Definition {
  const { definition } = answer.body;
  if (!isObject(definition)) {
    throw new InvalidReply(`${answer.endpoint} gave no definition`, answer.endpoint);
  }
  const { kind, order, period, format } = definition;
  return {
    isBuffered: kind === "block" && order === "relaxed" && period === "none",
    printsValues: format === "{value}",
  };
}

/** Reads a batch or a block. There is at least one number. */
export function numbersOf(answer: Answer, withIds: boolean): Run[] {
  const { body, endpoint } = answer;
  try {
    const ranges = Array.isArray(body["ranges"]) ? body["ranges"] : [body];
    const ids = withIds ? idsOf(body["ids"]) : undefined;
    let at = 0;
    const runs = ranges.map((each: unknown) => {
      const range = rangeOf(each);
      const printed = ids?.slice(at, at + range.count);
      if (printed !== undefined && printed.length !== range.count) {
        throw new Error("there are fewer ids than numbers");
      }
      at += range.count;
      return new Run(range, printed);
    });
    if (runs.length === 0) {
      throw new Error("numbers are missing");
    }
    return runs;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const what = `${endpoint} gave numbers that cannot be read: ${why}`;
    throw new InvalidReply(what, endpoint, { cause });
  }
}

function idsOf(value: unknown): string[] {
  if (!Array.isArray(value)) {
    throw new Error("ids are missing");
  }
  return value.map(String);
}

function rangeOf(value: unknown): NumberRange {
  if (!isObject(value)) {
    throw new Error("a range is no object");
  }
  const [first, last] = [integer(value["first"]), integer(value["last"])];
  const step = integer(value["step"]);
  const count = Number(integer(value["count"]));
  const isRight = count >= 1 && Number.isSafeInteger(count) && step !== 0n;
  const range = new NumberRange(first, step, count);
  if (!isRight || range.last !== last) {
    throw new Error(`${first} to ${last} by ${step} are not ${count}`);
  }
  if ([first, last].some((it) => it < LOWEST || it > HIGHEST)) {
    throw new Error(`${first} to ${last} are beyond 64 bits`);
  }
  return range;
}

/** Reads a whole number, which is a string of JSON if it may be large. */
function integer(value: unknown): bigint {
  if (typeof value === "number" ? !Number.isSafeInteger(value) : !isDigits(value)) {
    throw new Error(`${String(value)} is no whole number`);
  }
  return BigInt(value as number | string);
}

function isDigits(value: unknown): value is string {
  return typeof value === "string" && /^-?\d+$/.test(value);
}

/** Reads the reply to a call for one number. */
export function oneOf(answer: Answer): Item {
  const { value, id } = answer.body;
  if (!isDigits(value) || typeof id !== "string") {
    throw new InvalidReply(`${answer.endpoint} gave no number`, answer.endpoint);
  }
  return { value: BigInt(value), id };
}

/** Refuses to buffer the numbers of a period, which are wrong in the next one. */
export function checkNoPeriod(answer: Answer): void {
  const { sequence, period } = answer.body;
  if (period !== undefined && period !== null) {
    throw new OdometerError(
      `the sequence ${String(sequence)} has periods, so its numbers cannot be buffered: give ` +
        "{ kind: 'unbuffered' }",
    );
  }
}
