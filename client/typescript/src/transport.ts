/** Transport: one HTTP call over a connection that stays open for the next one. */

import * as http from "node:http";
import * as https from "node:https";
import { isIP, type Socket } from "node:net";

import { Alarm, oneRound } from "./clock.js";
import { InvalidReply, Unreachable } from "./errors.js";

// `fetch` has no option for an authority of one's own, and none for the age of idle connections.

const CONNECT_TIMEOUT_MS = 1_000;
/** The server closes connections that were idle for 75 s. */
const MAX_IDLE_MS = 60_000;
const MAX_IDLE_CONNECTIONS = 32;
/** The most connections to one endpoint. Further calls wait for one of them. */
const MAX_CONNECTIONS = 64;
const MAX_REPLY_BYTES = 64 * 1024 * 1024;

/** What a replica answered. */
export interface Reply {
  readonly status: number;
  readonly body: string;
  readonly retryAfter: string | undefined;
  /** The server will answer no further call on this connection. */
  readonly isLast: boolean;
}

/** One call to make. */
export interface Call {
  readonly endpoint: string;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  /** Whether a caller waits for it, so that the process must not end before. */
  readonly keepsAlive: boolean;
}

/** The connections of one client. */
interface Agents {
  readonly plain: http.Agent;
  readonly secure: https.Agent;
}

/** Makes calls, and keeps connections for the calls after them. */
export class Transport {
  readonly #authority: string | undefined;
  #agents: Agents;

  /** `authority` is the certificate of the one authority for `https`, in PEM. */
  constructor(authority?: string) {
    this.#authority = authority;
    this.#agents = this.#newAgents();
  }

  /** Closes what no call uses. Calls in flight close theirs when they end. */
  closeIdle(): void {
    const { plain, secure } = this.#agents;
    this.#agents = this.#newAgents();
    for (const agent of [plain, secure]) {
      agent.keepSocketAlive = () => false;
      for (const idle of Object.values(agent.freeSockets).flat()) {
        idle?.destroy();
      }
    }
  }

  /** Makes one call, or throws a `CallFailed`. It ends after its timeout at most. */
  async call(call: Call): Promise<Reply> {
    // Connections that ended, or were idle for too long, must be noticed before one is chosen.
    await oneRound();
    return new Promise((resolve, reject) => {
      new Exchange(call, this.#request(call), resolve, reject);
    });
  }

  /** Resolves the name at each connect. */
  #request(call: Call): http.ClientRequest {
    const url = new URL(call.endpoint);
    const isSecure = url.protocol === "https:";
    const options: http.RequestOptions = {
      agent: isSecure ? this.#agents.secure : this.#agents.plain,
      host: hostOf(url),
      port: url.port || (isSecure ? 443 : 80),
      method: call.method,
      path: url.pathname.replace(/\/+$/, "") + call.path,
      headers: call.headers,
    };
    return isSecure ? https.request(options) : http.request(options);
  }

  #newAgents(): Agents {
    const options: http.AgentOptions = {
      keepAlive: true,
      maxSockets: MAX_CONNECTIONS,
      maxFreeSockets: MAX_IDLE_CONNECTIONS,
      scheduling: "lifo",
      timeout: MAX_IDLE_MS,
    };
    const ca = this.#authority;
    const secure = ca === undefined ? options : { ...options, ca };
    return { plain: new http.Agent(options), secure: new https.Agent(secure) };
  }
}

/** A call under way. */
class Exchange {
  readonly #call: Call;
  readonly #request: http.ClientRequest;
  readonly #reject: (error: Error) => void;
  readonly #resolve: (reply: Reply) => void;
  readonly #deadline: Alarm;
  #connecting: Alarm | undefined;

  constructor(
    call: Call,
    request: http.ClientRequest,
    resolve: (reply: Reply) => void,
    reject: (error: Error) => void,
  ) {
    this.#call = call;
    this.#request = request;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#deadline = new Alarm(call.timeoutMs, call.keepsAlive, () => this.#isLate(call.timeoutMs));
    request.on("error", (cause) => this.#isLost(cause));
    request.on("socket", (socket) => this.#watch(socket));
    request.on("response", (response) => this.#read(response));
    request.end();
  }

  /** Lets the process end, unless somebody waits, and bounds the time of a connect. */
  #watch(socket: Socket): void {
    socket.unref();
    if (!socket.connecting) {
      return;
    }
    const limit = (): void => {
      this.#connecting = new Alarm(CONNECT_TIMEOUT_MS, false, () => {
        this.#isLate(CONNECT_TIMEOUT_MS);
      });
    };
    if (isIP(hostOf(new URL(this.#call.endpoint))) !== 0) {
      limit();
    } else {
      socket.once("lookup", limit);
    }
    socket.once("connect", () => {
      this.#connecting?.cancel();
      socket.unref();
    });
  }

  #read(response: http.IncomingMessage): void {
    const chunks: Buffer[] = [];
    let nBytes = 0;
    response.on("error", (cause) => this.#isLost(cause));
    response.on("data", (chunk: Buffer) => {
      nBytes += chunk.length;
      chunks.push(chunk);
      if (nBytes > MAX_REPLY_BYTES) {
        const { endpoint } = this.#call;
        this.#fail(new InvalidReply(`${endpoint} answered with too many bytes`, endpoint));
      }
    });
    response.on("end", () => {
      if (!isWhole(response)) {
        this.#isLost(new Error("the reply was cut"));
        return;
      }
      this.#end();
      this.#resolve({
        status: response.statusCode ?? 0,
        body: Buffer.concat(chunks).toString(),
        retryAfter: response.headers["retry-after"],
        isLast: isLast(response),
      });
    });
  }

  #isLate(ms: number): void {
    const { endpoint } = this.#call;
    const seconds = (ms / 1_000).toFixed(1);
    this.#fail(new Unreachable(`${endpoint} gave no reply within ${seconds} s`, endpoint, true));
  }

  #isLost(cause: Error): void {
    const { endpoint } = this.#call;
    const message = `${endpoint} gave no reply: ${cause.message || cause.name}`;
    this.#fail(new Unreachable(message, endpoint, false, { cause }));
  }

  #fail(error: Error): void {
    this.#end();
    this.#request.destroy();
    this.#reject(error);
  }

  #end(): void {
    this.#deadline.cancel();
    this.#connecting?.cancel();
  }
}

/** Returns the host, as sockets want it: an address of IPv6 is without brackets. */
function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, "");
}

/** Returns whether the end of a reply is known by more than the end of its connection. */
function isWhole(response: http.IncomingMessage): boolean {
  const isBare = response.statusCode === 204 || response.statusCode === 304;
  const isChunked = /\bchunked\b/i.test(response.headers["transfer-encoding"] ?? "");
  const isCounted = response.headers["content-length"] !== undefined;
  return response.complete && (isBare || isChunked || isCounted);
}

function isLast(response: http.IncomingMessage): boolean {
  const connection = response.headers.connection ?? "";
  const keepsAlive = response.httpVersion !== "1.0" || /\bkeep-alive\b/i.test(connection);
  return /\bclose\b/i.test(connection) || !keepsAlive;
}
