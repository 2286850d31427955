/**
 * Inserts rows by a package that maps objects to tables, and prints the ids that it reports.
 *
 * Its arguments are the package, the address of PostgreSQL, and that of the service. The numbers of
 * the sequence `orders` become the ids.
 */

import { Client } from "odometer-client";

import * as drizzle from "./with_drizzle.js";
import * as prisma from "./with_prisma.js";
import * as sequelize from "./with_sequelize.js";
import * as typeorm from "./with_typeorm.js";

/** How many rows are inserted at once, and how many of them by one statement. */
const N_AT_ONCE = 20;
const N_TOGETHER = 30;

const packages = new Map(Object.entries({ drizzle, prisma, sequelize, typeorm }));
const [, , name = "", database = "", service = ""] = process.argv;
const found = packages.get(name);
if (found === undefined) {
  throw new TypeError(`no package ${name}`);
}
// A busy machine may be slow.
const client = new Client({ endpoints: service, deadline: 20_000 });
const orders = client.sequence("orders");
await orders.warm(100);
const ids = await found.insert(orders, database, N_AT_ONCE, N_TOGETHER);
client.close();
console.log(JSON.stringify(ids.map(String)));
