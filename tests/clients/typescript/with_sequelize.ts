/** Sequelize: a default for each row, and hooks that wait for one row and for many. */

import type { Sequence } from "odometer-client";
import { DataTypes, Model, Sequelize } from "sequelize";

export async function insert(
  orders: Sequence,
  database: string,
  nAtOnce: number,
  nTogether: number,
): Promise<string[]> {
  const sequelize = new Sequelize(database, { logging: false });
  class Order extends Model {
    declare id: string;
  }
  class Invoice extends Model {
    declare id: string | bigint;
  }
  const note = { type: DataTypes.TEXT, allowNull: false };
  const id = { type: DataTypes.BIGINT, primaryKey: true };
  const table = { sequelize, timestamps: false };
  Order.init(
    { id: { ...id, defaultValue: () => orders.take() }, note },
    { ...table, tableName: "with_default" },
  );
  Invoice.init({ id, note }, { ...table, tableName: "with_hook" });
  Invoice.beforeValidate(async (invoice) => {
    invoice.id ??= await orders.next();
  });
  Invoice.beforeBulkCreate(async (invoices) => {
    for (const invoice of invoices) {
      invoice.id ??= await orders.next();
    }
  });
  await sequelize.sync();

  const notes = (count: number): { note: string }[] => Array(count).fill({ note: "a row" });
  const rows = await Promise.all([
    ...notes(nAtOnce).map((row) => Order.create(row)),
    ...notes(nAtOnce).map((row) => Invoice.create(row)),
  ]);
  const together = await Invoice.bulkCreate(notes(nTogether));
  await sequelize.close();
  return [...rows, ...together].map((row) => String(row.id));
}
