/** Tests of what a program says of its client: addresses, the token, times and sizes. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it, mock } from "node:test";

import { Client, type ClientOptions } from "../src/client.js";
import { Transport } from "../src/transport.js";
import { Stub } from "./stub.js";

let stub: Stub;
let clients: Client[];
let folder: string;
let file: string;

function client(options: ClientOptions): Client {
  const made = new Client({ endpoints: stub.url, deadline: 20_000, ...options });
  clients.push(made);
  return made;
}

/** Replaces the file of the token, as its rotation does. */
function put(token: string | Buffer): void {
  writeFileSync(`${file}.new`, token);
  renameSync(`${file}.new`, file);
}

/** Returns the tokens of all calls. */
function sent(): (string | undefined)[] {
  return stub.headers.map((it) => it.authorization);
}

function messageOf(options: ClientOptions): string {
  try {
    new Client(options);
  } catch (error) {
    return String(error);
  }
  return assert.fail("it was accepted");
}

beforeEach(async () => {
  stub = await Stub.start();
  clients = [];
  folder = mkdtempSync(join(tmpdir(), "odometer-"));
  file = join(folder, "token");
});

afterEach(async () => {
  mock.restoreAll();
  clients.forEach((it) => it.close());
  await stub.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("options", () => {
  it("are refused if they are wrong", () => {
    const wrong: ClientOptions[] = [
      { endpoints: [] },
      { endpoints: "a:8080" },
      { endpoints: "http://a:0" },
      { endpoints: "http://a/?b" },
      { deadline: -1 },
      { refillTimeout: Number.NaN },
      { maxAge: -1 },
      { initialSize: 0 },
      { tokenFile: "/nowhere/token" },
      { caFile: "/nowhere/ca.pem" },
    ];
    for (const options of wrong) {
      assert.throws(() => new Client(options), `${JSON.stringify(options)}`);
    }
  });

  it("of a sequence are refused if it has no name", () => {
    for (const name of ["", undefined as unknown as string]) {
      assert.throws(() => client({}).sequence(name), TypeError);
    }
  });

  it("come from the environment", async () => {
    process.env["ODOMETER_URL"] = ` ${stub.url} ,`;
    process.env["ODOMETER_TOKEN"] = "of-the-environment";
    try {
      const one = Client.fromEnvironment({ deadline: 20_000 });
      clients.push(one);
      assert.equal(await one.sequence("orders").next(), 1n);
      assert.equal(sent()[0], "Bearer of-the-environment");
    } finally {
      delete process.env["ODOMETER_URL"];
      delete process.env["ODOMETER_TOKEN"];
    }
  });

  it("that are wrong are not shown, because they may be secret", () => {
    const secret = "s3cret";
    const wrong: ClientOptions[] = [
      { endpoints: ["http://a", `http://user:${secret}@a:8080`] },
      { endpoints: ["http://a", `http://${secret}@a:8080`] },
      { endpoints: ["http://a", `http://a:8080/?token=${secret}`] },
      { endpoints: ["http://a", `http://a:8080/#${secret}`] },
      { token: `${secret}\nand another line` },
      { token: `${secret} ä` },
    ];
    for (const options of wrong) {
      const message = messageOf(options);
      assert.ok(!message.includes(secret), message);
      assert.match(message, /endpoint 2 is no address|token has characters/);
    }
  });
});

describe("a token", () => {
  it("is sent without the space around it", async () => {
    await client({ token: " secret\r\n" }).sequence("orders").next();
    assert.deepEqual(new Set(sent()), new Set(["Bearer secret"]));
  });

  it("is none if it is empty", async () => {
    await client({ token: "" }).sequence("orders").next();
    assert.deepEqual(new Set(sent()), new Set([undefined]));
  });

  it("is read again from its file", async () => {
    writeFileSync(file, "first\n");
    const one = client({ tokenFile: file }).sequence("orders");
    await one.warm(1);
    put("second\n");
    await one.range(200);
    rmSync(file);
    await one.range(200);
    assert.deepEqual(sent(), ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]);
  });

  it("is the last good one while its file has none", async () => {
    writeFileSync(file, "good\n");
    const one = client({ tokenFile: file }).sequence("orders", { period: "a" });
    for (const bad of ["", " \n", "two\nlines", Buffer.from([0xff, 0xfe, 0x41]), "ä"]) {
      put(bad);
      await one.next();
    }
    put("better");
    await one.next();
    assert.deepEqual(sent(), [...Array<string>(5).fill("Bearer good"), "Bearer better"]);
  });

  it("is needed in its file at the start", () => {
    for (const bad of ["", "two\nlines"]) {
      writeFileSync(file, bad);
      assert.match(messageOf({ tokenFile: file }), /has no token/);
    }
  });

  it("is the last good one while its file cannot be read in time", async () => {
    writeFileSync(file, "good\n");
    const one = client({ tokenFile: file, deadline: 5_000 });
    rmSync(file);
    execFileSync("mkfifo", [file]);
    // Nobody writes to it, so a reader waits for ever.
    assert.equal(await one.sequence("orders").next(), 1n);
    const call = mock.method(Transport.prototype, "call");
    const other = one.sequence("other", { period: "a" });
    for (let number = 101n; number < 105n; number += 1n) {
      assert.equal(await other.next(), number);
    }
    assert.deepEqual(new Set(sent()), new Set(["Bearer good"]));
    // The wait for the file is a part of the time of each call.
    const times = call.mock.calls.map(({ arguments: [{ timeoutMs }] }) => timeoutMs);
    assert.equal(times.length, 4);
    assert.ok(Math.max(...times) < 4_910, `${times}`);
    // The threads of the process are free for others.
    assert.ok((await readFile(__filename)).length > 0);
    // The reader goes on, and with it the end of this process.
    writeFileSync(file, "better\n");
    rmSync(file);
    writeFileSync(file, "better\n");
    await other.next();
    assert.equal(sent().at(-1), "Bearer better");
  });
});
