/** Tests of calls over connections of which the tests say every byte. */

import assert from "node:assert/strict";
import * as http from "node:http";
import * as net from "node:net";
import { describe, it } from "node:test";

import { monotonic } from "../src/clock.js";
import { InvalidReply, Unreachable } from "../src/errors.js";
import { type Reply, Transport } from "../src/transport.js";

const BODY = '{"count":1}';
const WHOLE =
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${BODY.length}\r\n\r\n` +
  BODY;
const CHUNKED =
  `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n` +
  `${BODY}\r\n0\r\n\r\n`;

/** A server that answers each connection as a test says. */
async function withServer<T>(
  serve: (socket: net.Socket) => void,
  use: (url: string) => Promise<T>,
): Promise<T> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://127.0.0.1:${(server.address() as net.AddressInfo).port}`);
  } finally {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  }
}

function call(transport: Transport, endpoint: string, timeoutMs = 5_000): Promise<Reply> {
  const manner = { headers: {}, timeoutMs, keepsAlive: true };
  return transport.call({ endpoint, method: "POST", path: "/next", ...manner });
}

/** Makes a call, to which a server sends this before it closes the connection. */
async function called(reply: string): Promise<Reply> {
  const transport = new Transport();
  const answer = (socket: net.Socket): void => {
    socket.once("data", () => socket.end(reply));
  };
  try {
    return await withServer(answer, (url) => call(transport, url));
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

  it("is none if only the end of the connection ends it", async () => {
    await assert.rejects(called(`HTTP/1.1 200 OK\r\n\r\n${BODY}`), isCut);
  });

  it("is read if it is whole", async () => {
    for (const whole of [WHOLE, CHUNKED]) {
      const { status, body, isLast } = await called(whole);
      assert.deepEqual([status, body, isLast], [200, BODY, false]);
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
