/** Tests of calls over connections of which the tests say every byte. */

import assert from "node:assert/strict";
import dns from "node:dns";
import { once } from "node:events";
import * as http from "node:http";
import * as net from "node:net";
import { after, before, describe, it, mock } from "node:test";
import { Worker } from "node:worker_threads";

import { monotonic, sleep } from "../src/clock.js";
import { Hurried, InvalidReply, Unreachable } from "../src/errors.js";
import { type Reply, Transport } from "../src/transport.js";
import { closing, withServer } from "./server.js";

const BODY = '{"count":1}';
const WHOLE =
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${BODY.length}\r\n\r\n` +
  BODY;
const CHUNKED =
  `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n` +
  `${BODY}\r\n0\r\n\r\n`;

function call(
  transport: Transport,
  endpoint: string,
  timeoutMs = 5_000,
  patientMs = 0,
): Promise<Reply> {
  const manner = { headers: {}, timeoutMs, patientMs, keepsAlive: true };
  return transport.call({ endpoint, method: "POST", path: "/next", ...manner });
}

/** Makes a call, to which a server sends this before it closes the connection. */
async function called(reply: string): Promise<Reply> {
  const transport = new Transport();
  try {
    return await withServer(closing(reply), (url) => call(transport, url));
  } finally {
    transport.closeIdle();
  }
}

function isCut(error: unknown): boolean {
  return error instanceof Unreachable && !error.timedOut && error.isRetryable;
}

describe("a reply", () => {
  it("is none if it is cut anywhere", async () => {
    for (let nBytes = 0; nBytes < WHOLE.length; nBytes += 1) {
      await assert.rejects(called(WHOLE.slice(0, nBytes)), isCut, `${nBytes} bytes`);
    }
  });

  it("is none if it has chunks and is cut", async () => {
    for (let nBytes = 0; nBytes < CHUNKED.indexOf("\r\n0\r\n"); nBytes += 1) {
      await assert.rejects(called(CHUNKED.slice(0, nBytes)), isCut, `${nBytes} bytes`);
    }
  });

  it("may be cut if only the end of the connection ends it", async () => {
    const { body, isWhole } = await called(`HTTP/1.1 200 OK\r\n\r\n${BODY}`);
    assert.deepEqual([body, isWhole], [BODY, false]);
  });

  it("is read if it is whole", async () => {
    for (const whole of [WHOLE, CHUNKED]) {
      const { status, body, isWhole, isLast } = await called(whole);
      assert.deepEqual([status, body, isWhole, isLast], [200, BODY, true, false]);
    }
  });

  it("is the last one if the server says so", async () => {
    const close = WHOLE.replace("\r\n", "\r\nconnection: close\r\n");
    assert.equal((await called(close)).isLast, true);
    assert.equal((await called(WHOLE.replace("HTTP/1.1", "HTTP/1.0"))).isLast, true);
  });

  it("is none of Odometer if it has too many bytes", async () => {
    const transport = new Transport();
    const head = `HTTP/1.1 200 OK\r\ncontent-length: ${2 ** 30}\r\n\r\n`;
    const chunk = Buffer.alloc(1024 * 1024);
    const flood = (socket: net.Socket): void => {
      const more = (): void => {
        while (socket.writable && socket.write(chunk));
      };
      socket.on("drain", more);
      socket.once("data", () => {
        socket.write(head);
        more();
      });
    };
    const failed = withServer(flood, (url) => call(transport, url, 60_000));
    await assert.rejects(failed, InvalidReply);
  });
});

describe("a call", () => {
  it("ends at its timeout, however slowly the bytes come", async () => {
    const transport = new Transport();
    const drip = (socket: net.Socket): void => {
      let at = 0;
      const timer = setInterval(() => socket.write(WHOLE.charAt(at++)), 20);
      socket.on("close", () => clearInterval(timer));
    };
    const began = monotonic();
    const failed = withServer(drip, (url) => call(transport, url, 200));
    await assert.rejects(failed, (error) => error instanceof Unreachable && error.timedOut);
    assert.ok(monotonic() - began >= 199);
  });

  it("is not late if its program did not look at the reply", async () => {
    const transport = new Transport();
    const answer = (socket: net.Socket): void => {
      socket.once("data", () => {
        socket.write(WHOLE);
        // The program is busy now, for longer than the call may take.
        const until = monotonic() + 400;
        while (monotonic() < until);
      });
    };
    const { body } = await withServer(answer, (url) => call(transport, url, 200));
    assert.equal(body, BODY);
    transport.closeIdle();
  });

  it("uses the connection of the call before", async () => {
    const transport = new Transport();
    let nConnections = 0;
    const answer = (socket: net.Socket): void => {
      nConnections += 1;
      socket.on("data", () => socket.write(WHOLE));
    };
    await withServer(answer, async (url) => {
      for (let calls = 0; calls < 5; calls += 1) {
        await call(transport, url);
      }
      assert.equal(nConnections, 1);
      transport.closeIdle();
      await call(transport, url);
      assert.equal(nConnections, 2);
      transport.closeIdle();
    });
  });

  it("never uses a connection that its server has closed", async () => {
    const transport = new Transport();
    const opened: net.Socket[] = [];
    const answer = (socket: net.Socket): void => {
      opened.push(socket);
      socket.on("data", () => socket.write(WHOLE));
    };
    await withServer(answer, async (url) => {
      for (let calls = 0; calls < 20; calls += 1) {
        assert.equal((await call(transport, url)).body, BODY);
        // The client has not read the end when it makes the next call.
        opened.at(-1)?.destroy();
      }
      assert.equal(opened.length, 20);
    });
  });

  it("closes its connection at its end if the transport was closed meanwhile", async () => {
    const transport = new Transport();
    let isClosed = false;
    const answer = (socket: net.Socket): void => {
      socket.on("close", () => (isClosed = true));
      socket.on("data", () => {
        transport.closeIdle();
        socket.write(WHOLE);
      });
    };
    await withServer(answer, async (url) => {
      assert.equal((await call(transport, url)).body, BODY);
      const deadline = monotonic() + 5_000;
      while (!isClosed && monotonic() < deadline) {
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      assert.equal(isClosed, true);
    });
  });

  it("says nothing about a replica that had too little time", async () => {
    const transport = new Transport();
    const isHurried = async (url: string, patientMs: number): Promise<boolean> => {
      const error = await call(transport, url, 100, patientMs).catch((it: unknown) => it);
      assert.ok(error instanceof Unreachable && error.timedOut);
      return error instanceof Hurried && error.hadMs !== undefined;
    };
    const silent = (): void => undefined;
    await withServer(silent, async (url) => {
      assert.equal(await isHurried(url, 60_000), true);
      assert.equal(await isHurried(url, 0), false);
    });
  });

  it("says nothing about a replica if others have all connections", async () => {
    const transport = new Transport();
    let nConnections = 0;
    const silent = (): void => void (nConnections += 1);
    await withServer(silent, async (url) => {
      const others = Array.from({ length: 64 }, () => call(transport, url, 60_000));
      others.forEach((it) => it.catch(() => undefined));
      const deadline = monotonic() + 20_000;
      while (nConnections < 64 && monotonic() < deadline) {
        await sleep(1, true);
      }
      const queued = /no reply within 0\.1 s: 64 other calls were under way/;
      const isHurried = (error: unknown): boolean =>
        error instanceof Hurried && error.hadMs === undefined && queued.test(error.message);
      await assert.rejects(call(transport, url, 100), isHurried);
      assert.equal(nConnections, 64);
    });
  });

  it("ends nothing but itself if it cannot be bounded", async () => {
    const transport = new Transport();
    const server = net.createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as net.AddressInfo;
    const wrong = Symbol("no time") as unknown as number;
    await assert.rejects(call(transport, `http://127.0.0.1:${port}`, wrong), TypeError);
    // The error of its connection comes now. It would end this process if nobody listened.
    await once(server, "connection");
    await sleep(50, true);
    server.close();
  });

  it("looks no name up for an address of IPv6", async () => {
    const failed = call(new Transport(), "http://[::1]:1");
    await assert.rejects(failed, /no reply: connect E[A-Z]+ ::1:1/);
  });

  it("goes to the path of its endpoint", async () => {
    const paths: (string | undefined)[] = [];
    const server = http.createServer((request, response) => {
      paths.push(`${request.method} ${request.url} ${request.headers["content-length"]}`);
      response.end("{}");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as net.AddressInfo;
    const transport = new Transport();
    await call(transport, `http://127.0.0.1:${port}/behind/`);
    await call(transport, `http://localhost:${port}`);
    transport.closeIdle();
    server.close();
    assert.deepEqual(paths, ["POST /behind/next 0", "POST /next 0"]);
  });
});

describe("a connect", () => {
  // Addresses whose server accepts no connection. A connect to one of them never ends.
  const dead = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"];
  const opened: net.Socket[] = [];
  let server: http.Server;
  let port: number;
  let worker: Worker;

  /** Lets as many connections wait at an address as it has places for. */
  async function fill(host: string): Promise<void> {
    const places = [1, 2, 3, 4].map(() => net.connect({ host, port }));
    opened.push(...places);
    let nConnected = 0;
    await new Promise<void>((resolve) => {
      for (const socket of places) {
        socket.on("error", () => undefined);
        socket.once("connect", () => {
          nConnected += 1;
          if (nConnected === 2) {
            resolve();
          }
        });
      }
    });
  }

  before(async () => {
    server = http.createServer((_, response) => response.end(BODY));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    ({ port } = server.address() as net.AddressInfo);
    // Its thread stands still once it listens, so it accepts nothing.
    const code = `
      const { createServer } = require("node:net");
      const { parentPort, workerData: { dead, port } } = require("node:worker_threads");
      let left = dead.length;
      for (const host of dead) {
        createServer().listen({ host, port, backlog: 1 }, () => {
          left -= 1;
          if (left === 0) {
            parentPort.postMessage("they listen");
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
          }
        });
      }`;
    worker = new Worker(code, { eval: true, workerData: { dead, port } });
    await new Promise((resolve) => worker.once("message", resolve));
    await Promise.all(dead.map(fill));
  });

  after(async () => {
    opened.forEach((socket) => socket.destroy());
    server.close();
    server.closeAllConnections();
    await worker.terminate();
  });

  it("ends after a second if the host has one address", async () => {
    const late = { timedOut: true, message: /no reply within 1\.0 s/ };
    await assert.rejects(call(new Transport(), `http://${dead[0]}:${port}`, 20_000), late);
  });

  it("has a second for each address of the host", async () => {
    const all = [...dead, "127.0.0.1"].map((address) => ({ address, family: 4 }));
    const lookup = (_: string, __: object, found: (error: null, all: object[]) => void): void => {
      setImmediate(() => found(null, all));
    };
    mock.method(dns, "lookup", lookup as unknown as typeof dns.lookup);
    try {
      const transport = new Transport();
      const { body } = await call(transport, `http://odometer.test:${port}`, 20_000);
      assert.equal(body, BODY);
      transport.closeIdle();
    } finally {
      mock.restoreAll();
    }
  });
});
