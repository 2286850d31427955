/** A stub of the service, which answers as a test says. */

import * as http from "node:http";
import type { AddressInfo, Socket } from "node:net";

import { Refused } from "../src/errors.js";

const DEFINITION = { kind: "block", order: "relaxed", period: "none", format: "{value}" };

export interface StubReply {
  readonly status: number;
  readonly body: object;
  readonly headers?: http.OutgoingHttpHeaders;
}

/** What a stub does with a call: `lose` closes the connection, and `go on` gives numbers. */
export type Deed = StubReply | "lose" | "go on";

/** Gives the numbers 1, 2, 3 …, unless `answer` says something else first. */
export class Stub {
  next = 1n;
  step = 1n;
  period: string | null = null;
  nConnections = 0;
  nOpen = 0;
  definition: Record<string, unknown> = { ...DEFINITION };
  calls: string[] = [];
  headers: http.IncomingHttpHeaders[] = [];
  /** Called with each call; it may answer instead of the stub. */
  answer: (call: string) => Deed | Promise<Deed> = () => "go on";
  readonly #server: http.Server;

  private constructor(server: http.Server) {
    this.#server = server;
    server.on("connection", (socket: Socket) => {
      this.nConnections += 1;
      this.nOpen += 1;
      socket.once("close", () => (this.nOpen -= 1));
    });
    server.on("request", (request: http.IncomingMessage, response: http.ServerResponse) => {
      void this.#serve(request, response);
    });
  }

  static async start(): Promise<Stub> {
    // As the service: it closes connections that were idle for so long.
    const server = http.createServer({ keepAliveTimeout: 75_000 });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Stub(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The calls for numbers. */
  get posts(): string[] {
    return this.calls.filter((call) => call.startsWith("POST"));
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  /** Takes numbers, and returns the first one. */
  take(count: number): bigint {
    const first = this.next;
    this.next += BigInt(count) * this.step;
    return first;
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", this.url);
    const call = `${request.method} ${url.pathname.split("/").at(-1)}${url.search}`;
    this.calls.push(call);
    this.headers.push(request.headers);
    const said = await this.answer(call);
    if (said === "lose") {
      response.destroy();
      return;
    }
    const { status, body, headers } = said === "go on" ? this.#give(request, url) : said;
    const text = JSON.stringify(body);
    response.writeHead(status, { "content-length": Buffer.byteLength(text), ...headers });
    response.end(text);
  }

  #give(request: http.IncomingMessage, url: URL): StubReply {
    if (request.method === "GET") {
      return { status: 200, body: { sequence: "orders", definition: this.definition } };
    }
    const query = url.searchParams;
    const count = Number(query.get("count") ?? query.get("size") ?? 1);
    const first = this.take(count);
    const last = first + BigInt(count - 1) * this.step;
    const range = { first: `${first}`, last: `${last}`, count, step: Number(this.step) };
    const whole = { sequence: "orders", period: this.period };
    if (query.has("size")) {
      return { status: 200, body: { ...whole, ...range } };
    }
    if (!query.has("count")) {
      return { status: 200, body: { ...whole, value: `${first}`, id: `${first}` } };
    }
    const values = Array.from({ length: count }, (_, at) => first + BigInt(at) * this.step);
    const ids = query.get("ids") === "false" ? {} : { ids: values.map((it) => `#${it}`) };
    return { status: 200, body: { ...whole, count, ranges: [range], ...ids } };
  }
}

/** Returns a reply that refuses a call. */
export function refusal(status: number, code: string, more: object = {}): StubReply {
  return { status, body: { status, code, detail: "The stub said so.", ...more } };
}

/** Answers the first call that is wanted. */
export function once(deed: Deed, isWanted: (call: string) => boolean): (call: string) => Deed {
  let isDone = false;
  return (call) => {
    const isNow = !isDone && isWanted(call);
    isDone ||= isNow;
    return isNow ? deed : "go on";
  };
}

/** Holds the calls that are wanted until `open` is called. Then they go on. */
export function gate(isWanted: (call: string) => boolean): {
  answer: (call: string) => Deed | Promise<Deed>;
  open: () => void;
} {
  let open: () => void = () => undefined;
  const opened = new Promise<Deed>((resolve) => (open = () => resolve("go on")));
  return { answer: (call) => (isWanted(call) ? opened : "go on"), open: () => open() };
}

export function isPost(call: string): boolean {
  return call.startsWith("POST");
}

export function isRefused(code: string): (error: unknown) => boolean {
  return (error) => error instanceof Refused && error.code === code;
}

/** Waits until something is true. */
export async function until(isTrue: () => boolean): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!isTrue()) {
    if (performance.now() > deadline) {
      throw new Error("it never became true");
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
