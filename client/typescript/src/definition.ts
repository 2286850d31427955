/** Definition: whether a sequence may be buffered, and how its numbers are asked for and read. */

import { type Item, NumberRange, Run } from "./buffer.js";
import { monotonic } from "./clock.js";
import { Refused } from "./errors.js";
import { type Answer, type Body, isObject, type Service } from "./service.js";

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

/** Each number is a call. */
export const UNBUFFERED: Definition = { isBuffered: false, printsValues: false };

/** The numbers of one reply, of which there is at least one. */
export interface Numbers {
  readonly runs: readonly Run[];
  /** A template may share another sequence's numbers: then it is that sequence. */
  readonly sequence: string | undefined;
  /** Numbers of a period are wrong in the next one, so they must not be buffered. */
  readonly hasPeriod: boolean;
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

function pathOf(name: string): string {
  return `/v1/sequences/${encodeURIComponent(name).replaceAll("%3A", ":")}`;
}

/** Finds out what a sequence is. Call `learn` again after a failure that can be retried. */
export class Learner {
  /** Numbers that came before the definition could be read. To take them, clear it. */
  taken: readonly Run[] = [];
  /** When the first number was asked for. */
  asked = monotonic();
  #name: string;
  readonly #said: Kind | undefined;
  readonly #takeFirst: () => Promise<Answer<Numbers>>;

  /** `takeFirst` asks for one number and its printed form. */
  constructor(name: string, said: Kind | undefined, takeFirst: () => Promise<Answer<Numbers>>) {
    this.#name = name;
    this.#said = said;
    this.#takeFirst = takeFirst;
  }

  /**
   * Reads the definition. A name that was never seen is created by taking its first number, which
   * is in `taken` then.
   */
  async learn(service: Service): Promise<Definition> {
    try {
      return await this.#read(service);
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

  async #read(service: Service): Promise<Definition> {
    const ask = (): Promise<Answer<Definition>> =>
      service.ask("GET", pathOf(this.#name), definitionOf);
    try {
      return (await ask()).value;
    } catch (error) {
      const isUnknown = error instanceof Refused && error.code === "sequence_not_found";
      if (!isUnknown || this.taken.length > 0) {
        throw error;
      }
    }
    this.asked = monotonic();
    const { value } = await this.#takeFirst();
    this.taken = value.runs;
    this.#name = value.sequence ?? this.#name;
    return (await ask()).value;
  }
}

// These read what a reply has. If it is no reply of Odometer, they throw any error.

/** Reads a definition. */
export function definitionOf(body: Body): Definition {
  const { definition } = body;
  if (!isObject(definition)) {
    throw new TypeError("there is no definition");
  }
  const { kind, order, period, format } = definition;
  return {
    isBuffered: kind === "block" && order === "relaxed" && period === "none",
    printsValues: format === "{value}",
  };
}

/** Reads a batch or a block. */
export function numbersOf(body: Body, withIds: boolean): Numbers {
  const { sequence, period, ranges = [body] } = body;
  if (!Array.isArray(ranges) || ranges.length === 0) {
    throw new TypeError("there is no number");
  }
  const all = ranges.map(rangeOf);
  const ids = withIds ? idsOf(body["ids"], all) : undefined;
  let at = 0;
  const runs = all.map((range) => {
    const begin = at;
    at += range.count;
    return new Run(range, ids?.slice(begin, at));
  });
  return {
    runs,
    sequence: typeof sequence === "string" ? sequence : undefined,
    hasPeriod: period !== undefined && period !== null,
  };
}

/** Reads so many unbroken numbers. */
export function unbrokenOf(body: Body, count: number): NumberRange {
  const [run, ...others] = numbersOf(body, false).runs;
  const range = others.length === 0 ? run?.takeRange(count) : undefined;
  if (range === undefined || run?.left !== 0) {
    throw new TypeError(`these are not ${count} unbroken numbers`);
  }
  return range;
}

/** Reads the reply to a call for one number. */
export function oneOf(body: Body): Item {
  return { value: numberOf(body["value"]), id: idOf(body["id"]) };
}

function idsOf(value: unknown, ranges: readonly NumberRange[]): string[] {
  const count = ranges.reduce((sum, range) => sum + range.count, 0);
  if (!Array.isArray(value) || value.length !== count) {
    throw new TypeError(`there are not ${count} ids`);
  }
  return value.map(idOf);
}

function idOf(value: unknown): string {
  if (typeof value !== "string") {
    throw new TypeError("an id is no string");
  }
  return value;
}

function rangeOf(value: unknown): NumberRange {
  if (!isObject(value)) {
    throw new TypeError("a range is no object");
  }
  const [first, last] = [numberOf(value["first"]), numberOf(value["last"])];
  const step = integer(value["step"]);
  const count = Number(integer(value["count"]));
  const range = new NumberRange(first, step, count);
  if (count < 1 || !Number.isSafeInteger(count) || step === 0n || range.last !== last) {
    throw new RangeError(`${first} to ${last} by ${step} are not ${count}`);
  }
  return range;
}

/** Reads a number of a sequence. */
function numberOf(value: unknown): bigint {
  const number = integer(value);
  if (number < LOWEST || number > HIGHEST) {
    throw new RangeError(`${number} is beyond 64 bits`);
  }
  return number;
}

/** Reads a whole number, which is a string of JSON if it may be large. */
function integer(value: unknown): bigint {
  const isWhole =
    typeof value === "string" ? /^-?\d{1,19}$/.test(value) : Number.isSafeInteger(value);
  if (!isWhole) {
    throw new TypeError("a number is no whole number");
  }
  return BigInt(value as number | string);
}
