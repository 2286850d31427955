/**
 * Driver: takes numbers as a test says, one step a line. Not in the package.
 *
 * Start it with one argument, a JSON object of options. It prints `ready`, and one line for each
 * step that it reads. It has one thread, so `threads` are callers at once. Node cannot fork, so
 * `fork` starts a second driver, which sends its numbers to the first one and ends.
 */

import { fork } from "node:child_process";
import { createInterface } from "node:readline";

import {
  Client,
  type Hooks,
  type Kind,
  OdometerError,
  type Sequence,
  WouldBlock,
} from "odometer-client";

/** What a test says. */
interface Options {
  endpoints: string[];
  sequence: string;
  kind?: Kind | undefined;
  token?: string;
  ca_file?: string;
  deadline_ms?: number;
  refill_timeout_ms?: number;
  max_age_ms?: number;
  initial_size?: number;
  /** The control of a test, for languages in which a hook protects a forked child. */
  without_fork_hook?: boolean;
}

interface Report {
  endpoint: string;
  outcome: string;
  seconds: number;
  count: number;
}

/** Keeps what the hooks report. */
class Recorder implements Hooks {
  #refills: Report[] = [];
  #waits: number[] = [];
  #drops: { count: number; cause: string }[] = [];

  refill(_: string, endpoint: string, outcome: string, seconds: number, count: number): void {
    this.#refills.push({ endpoint, outcome, seconds, count });
  }

  waited(seconds: number): void {
    this.#waits.push(seconds);
  }

  dropped(count: number, cause: string): void {
    this.#drops.push({ count, cause });
  }

  report(): string {
    const reports = { refills: this.#refills, waited: this.#waits, dropped: this.#drops };
    [this.#refills, this.#waits, this.#drops] = [[], [], []];
    return JSON.stringify(reports);
  }
}

/** What a second driver sends. */
type Sent = readonly [numbers: bigint[], error: string | undefined];

/** Numbers in the order given, and the first error. */
class Given {
  readonly numbers: bigint[];
  error: string | undefined;

  constructor(numbers: bigint[] = [], error?: string) {
    this.numbers = numbers;
    this.error = error;
  }

  static together(parts: readonly Given[]): Given {
    const whole = new Given();
    for (const part of parts) {
      whole.numbers.push(...part.numbers);
      whole.error ??= part.error;
    }
    return whole;
  }

  fail(error: unknown): void {
    this.error ??= codeOf(error);
  }

  toString(): string {
    const shown = `given ${ranges(this.numbers)}`;
    return this.error === undefined ? shown : `${shown} error ${this.error}`;
  }
}

function codeOf(error: unknown): string {
  return error instanceof OdometerError ? error.code : String(error).replaceAll(/\s+/g, "_");
}

function ranges(numbers: Iterable<bigint>): string {
  const joined: { first: bigint; last: bigint }[] = [];
  for (const number of numbers) {
    const last = joined.at(-1);
    if (last !== undefined && last.last + 1n === number) {
      last.last = number;
    } else {
      joined.push({ first: number, last: number });
    }
  }
  return joined.map(({ first, last }) => (first === last ? first : `${first}-${last}`)).join(",");
}

async function taken(count: number, take: () => bigint | Promise<bigint>): Promise<Given> {
  const given = new Given();
  try {
    for (let left = count; left > 0; left -= 1) {
      given.numbers.push(await take());
    }
  } catch (error) {
    given.fail(error);
  }
  return given;
}

/** Takes without waiting. The numbers of some sequences are calls: there a program must wait. */
function takeAtOnce(sequence: Sequence): bigint | Promise<bigint> {
  try {
    return sequence.take();
  } catch (error) {
    if (error instanceof WouldBlock) {
      return sequence.next();
    }
    throw error;
  }
}

async function atOnce(sequence: Sequence, nCallers: number, count: number): Promise<Given> {
  const callers = Array.from({ length: nCallers }, () => taken(count, () => sequence.next()));
  return Given.together(await Promise.all(callers));
}

/** Takes numbers in this process, and as many in a second one. */
async function inFork(sequence: Sequence, count: number): Promise<Given> {
  const options = process.argv[2] ?? "{}";
  const child = fork(__filename, [options, `${count}`], { serialization: "advanced" });
  const sent = new Promise<Sent>((resolve) => {
    child.once("message", (message) => resolve(message as Sent));
    child.once("exit", () => resolve([[], "child"]));
  });
  const own = await taken(count, () => sequence.next());
  return Given.together([own, new Given(...(await sent))]);
}

async function unbroken(sequence: Sequence, count: number): Promise<string> {
  try {
    return `given ${ranges(await sequence.range(count))}`;
  } catch (error) {
    return `given  error ${codeOf(error)}`;
  }
}

async function ids(sequence: Sequence, count: number): Promise<string> {
  const words = ["ids"];
  try {
    for (let left = count; left > 0; left -= 1) {
      words.push(await sequence.nextId());
    }
  } catch (error) {
    words.push("error", codeOf(error));
  }
  return words.join(" ");
}

async function warm(sequence: Sequence, count: number): Promise<string> {
  try {
    await sequence.warm(count);
    return "done";
  } catch (error) {
    return `error ${codeOf(error)}`;
  }
}

function forget(client: Client): string {
  client.forget();
  return "done";
}

/** What a driver has. */
interface Desk {
  readonly options: Options;
  readonly recorder: Recorder;
  readonly client: Client;
  readonly sequence: Sequence;
}

async function answer(desk: Desk, step: string): Promise<string> {
  const { options, recorder, client, sequence } = desk;
  const [word = "", ...numbers] = step.split(" ");
  const [first = 0, second = 0] = numbers.map(Number);
  switch (word) {
    case "take":
      return String(await taken(first, () => takeAtOnce(sequence)));
    case "next":
      return String(await taken(first, () => sequence.next()));
    case "async":
      return String(await atOnce(sequence, first, 1));
    case "threads":
      return String(await atOnce(sequence, first, second));
    case "fork":
      return options.without_fork_hook ? "unsupported" : String(await inFork(sequence, first));
    case "range":
      return unbroken(sequence, first);
    case "warm":
      return warm(sequence, first);
    case "forget":
      return forget(client);
    case "ids":
      return ids(sequence, first);
    case "readings":
      return `left ${sequence.left} rate ${sequence.rate.toFixed(1)}`;
    case "hooks":
      return recorder.report();
    default:
      return "unsupported";
  }
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

function deskOf(options: Options): Desk {
  const recorder = new Recorder();
  const client = new Client({
    endpoints: options.endpoints,
    token: options.token,
    caFile: options.ca_file,
    deadline: options.deadline_ms,
    refillTimeout: options.refill_timeout_ms,
    maxAge: options.max_age_ms,
    initialSize: options.initial_size,
    hooks: recorder,
  });
  const sequence = client.sequence(options.sequence, { kind: options.kind });
  return { options, recorder, client, sequence };
}

async function main(): Promise<void> {
  const [, , text = "{}", count] = process.argv;
  const desk = deskOf(JSON.parse(text) as Options);
  if (count !== undefined) {
    const { numbers, error } = await taken(Number(count), () => desk.sequence.next());
    process.send?.([numbers, error]);
    return;
  }
  say("ready");
  const lines = createInterface({ input: process.stdin });
  for await (const line of lines) {
    const step = line.trim();
    if (step === "exit") {
      say("bye");
      break;
    }
    say(await answer(desk, step));
  }
  // From here on only the library could keep the process alive, and it must not.
  lines.close();
}

void main();
