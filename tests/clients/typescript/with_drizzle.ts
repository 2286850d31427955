/** Drizzle: a default of the column, and ids for many rows. */

import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";
import type { Sequence } from "odometer-client";
import { Pool } from "pg";

export async function insert(
  orders: Sequence,
  database: string,
  nAtOnce: number,
  nTogether: number,
): Promise<bigint[]> {
  const pool = new Pool({ connectionString: database });
  await pool.query("CREATE TABLE with_default (id bigint PRIMARY KEY, note text NOT NULL)");
  const db = drizzle(pool);
  const table = pgTable("with_default", {
    id: bigint({ mode: "bigint" })
      .primaryKey()
      .$defaultFn(() => orders.take()),
    note: text().notNull(),
  });
  const notes = (count: number): { note: string }[] => Array(count).fill({ note: "a row" });
  const rows = await Promise.all(
    notes(nAtOnce).map((row) => db.insert(table).values(row).returning({ id: table.id })),
  );
  const many: { id?: bigint; note: string }[] = notes(nTogether).map((row) => ({ ...row }));
  for (const row of many) {
    row.id ??= await orders.next();
  }
  const together = await db.insert(table).values(many).returning({ id: table.id });
  await pool.end();
  return [...rows.flat(), ...together].map((row) => row.id);
}
