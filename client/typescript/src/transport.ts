/** Transport: one HTTP call over a connection that stays open for the next one. */

import * as http from "node:http";
import * as https from "node:https";
import { isIP, type Socket } from "node:net";

import { Alarm, monotonic, oneRound } from "./clock.js";
import { detached } from "./context.js";
import { Hurried, InvalidReply, Unreachable } from "./errors.js";

// `fetch` has no option for an authority of one's own, and none for the age of idle connections.

/** For each address of a host. */
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
  /** Whether the reply said where its body ends. If not, the body may be cut. */
  readonly isWhole: boolean;
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
  /** If the replica had the call for less time than this, its caller was in a hurry. */
  readonly patientMs: number;
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
    return detached(
      () =>
        new Promise((resolve, reject) => {
          new Exchange(call, this.#request(call), resolve, reject);
        }),
    );
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
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: CONNECT_TIMEOUT_MS,
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
  #deadline: Alarm | undefined;
  #connecting: Alarm | undefined;
  /** When it got a connection. Until then others had them all. */
  #began: number | undefined;

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
    // First, because an error of a request to which nobody listens would end the process.
    request.on("error", (cause) => this.#isLost(cause));
    request.on("socket", (socket) => this.#watch(socket));
    request.on("response", (response) => this.#read(response));
    this.#deadline = new Alarm(call.timeoutMs, call.keepsAlive, () => this.#isOver());
    request.end();
  }

  /** Lets the process end, unless a caller waits, and bounds the time of a connect. */
  #watch(socket: Socket): void {
    this.#began = monotonic();
    socket.unref();
    if (!socket.connecting) {
      return;
    }
    let limitMs = 0;
    const addAddress = (): void => {
      limitMs += CONNECT_TIMEOUT_MS;
      const ms = limitMs;
      this.#connecting?.cancel();
      this.#connecting = new Alarm(ms, false, () => this.#isLate(ms));
    };
    if (isIP(hostOf(new URL(this.#call.endpoint))) !== 0) {
      addAddress();
    } else {
      socket.on("lookup", addAddress);
    }
    socket.once("connect", () => {
      this.#connecting?.cancel();
      socket.off("lookup", addAddress);
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
      this.#end();
      this.#resolve({
        status: response.statusCode ?? 0,
        body: Buffer.concat(chunks).toString(),
        isWhole: isWhole(response),
        retryAfter: response.headers["retry-after"],
        isLast: isLast(response),
      });
    });
  }

  #isOver(): void {
    const { endpoint, timeoutMs, patientMs } = this.#call;
    const hadMs = this.#began === undefined ? undefined : monotonic() - this.#began;
    if (hadMs !== undefined && hadMs >= patientMs) {
      this.#isLate(timeoutMs);
      return;
    }
    const why = hadMs === undefined ? `: ${MAX_CONNECTIONS} other calls were under way` : "";
    this.#fail(new Hurried(noReply(endpoint, timeoutMs) + why, endpoint, hadMs));
  }

  #isLate(ms: number): void {
    const { endpoint } = this.#call;
    this.#fail(new Unreachable(noReply(endpoint, ms), endpoint, true));
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
    this.#deadline?.cancel();
    this.#connecting?.cancel();
  }
}

function noReply(endpoint: string, ms: number): string {
  return `${endpoint} gave no reply within ${(ms / 1_000).toFixed(1)} s`;
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
