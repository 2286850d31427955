/** TypeORM: a method of the entity, which runs before each insert. */

import "reflect-metadata";

import type { Sequence } from "odometer-client";
import { BeforeInsert, Column, DataSource, Entity, PrimaryColumn } from "typeorm";

export async function insert(
  orders: Sequence,
  database: string,
  nAtOnce: number,
  nTogether: number,
): Promise<string[]> {
  @Entity("with_default")
  class Order {
    @PrimaryColumn("bigint")
    id!: string;

    @Column("text")
    note = "a row";

    @BeforeInsert()
    async number(): Promise<void> {
      this.id ??= String(await orders.next());
    }
  }
  const source = new DataSource({
    type: "postgres",
    url: database,
    entities: [Order],
    synchronize: true,
  });
  await source.initialize();
  const repository = source.getRepository(Order);
  const made = (count: number): Order[] => Array.from({ length: count }, () => new Order());
  const rows = await Promise.all(made(nAtOnce).map((row) => repository.save(row)));
  const together = await repository.save(made(nTogether));
  await source.destroy();
  return [...rows, ...together].map((row) => row.id);
}
