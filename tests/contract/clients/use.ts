// What a program in TypeScript does with the types that are made of /openapi.json.
//
// Takes the address of a service and a token, prints what it was given as JSON.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type Schemas = components["schemas"];

const [address = "", token = ""] = process.argv.slice(2);
const client = createClient<paths>({
  baseUrl: address,
  headers: { Authorization: `Bearer ${token}` },
});

interface Reply<Data> {
  data?: Data;
  error?: Schemas["Problem"] | undefined;
  response: Response;
}

function given<Data>(reply: Reply<Data>): Data {
  if (reply.data === undefined) {
    throw new Error(`${reply.response.status}: ${reply.error?.code}: ${reply.error?.detail}`);
  }
  return reply.data;
}

const definition: Schemas["DefinitionChange"] = {
  start: "1000",
  format: "TS-{value:06}",
  block: { hold: "15m" },
  description: "Defined by a client in TypeScript",
};
const path = { name: "typescript" };
const defined = given(
  await client.PUT("/v1/sequences/{name}", { params: { path }, body: definition }),
);

const one = given(await client.POST("/v1/sequences/{name}/next", { params: { path } }));
if (typeof one === "string" || !("value" in one)) {
  throw new Error("not one number as JSON");
}

const batch = given(
  await client.POST("/v1/sequences/{name}/next", { params: { path, query: { count: 3 } } }),
);
if (typeof batch === "string" || !("ranges" in batch)) {
  throw new Error("not a batch as JSON");
}

const block = given(
  await client.POST("/v1/sequences/{name}/blocks", { params: { path, query: { size: 10 } } }),
);

const lease: Schemas["WorkerLease"] = given(
  await client.POST("/v1/workers", {
    body: { pool: "typescript", bits: 10, ttl_ms: 30_000, holder: "client" },
  }),
);
const held = {
  path: { pool: lease.pool, worker: lease.worker },
  header: { "Odometer-Lease": lease.token },
};
const renewed = given(
  await client.POST("/v1/workers/{pool}/{worker}/renew", {
    params: held,
    body: { ttl_ms: 60_000 },
  }),
);
const ended = await client.DELETE("/v1/workers/{pool}/{worker}", {
  params: held,
  body: { unused_from_ms: renewed.until_ms },
});

const missing = await client.GET("/v1/sequences/{name}", { params: { path: { name: "no-one" } } });
const code: Schemas["Problem"]["code"] | undefined = missing.error?.code;

console.log(
  JSON.stringify({
    kind: defined.definition.kind,
    one,
    batch,
    block,
    lease,
    renewed,
    ended: ended.response.status,
    refused: code,
  }),
);
