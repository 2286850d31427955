/** Prisma: an extension, which fills ids in before each query. */

import { PrismaPg } from "@prisma/adapter-pg";
import type { Sequence } from "odometer-client";
import { Pool } from "pg";

import { PrismaClient } from "./generated/client.js";

export async function insert(
  orders: Sequence,
  database: string,
  nAtOnce: number,
  nTogether: number,
): Promise<bigint[]> {
  const pool = new Pool({ connectionString: database });
  await pool.query("CREATE TABLE with_default (id bigint PRIMARY KEY, note text NOT NULL)");
  await pool.end();
  const adapter = new PrismaPg({ connectionString: database });
  const prisma = new PrismaClient({ adapter }).$extends({
    query: {
      order: {
        async create({ args, query }) {
          args.data.id ??= await orders.next();
          return query(args);
        },
        async createMany({ args, query }) {
          for (const row of [args.data].flat()) {
            row.id ??= await orders.next();
          }
          return query(args);
        },
      },
    },
  });
  const notes = (count: number): { note: string }[] => Array(count).fill({ note: "a row" });
  const rows = await Promise.all(notes(nAtOnce).map((data) => prisma.order.create({ data })));
  const note = "one of many";
  const data = Array.from({ length: nTogether }, () => ({ note }));
  await prisma.order.createMany({ data });
  // It reports no ids.
  const together = await prisma.order.findMany({ where: { note } });
  await prisma.$disconnect();
  return [...rows, ...together].map((row) => row.id as bigint);
}
