/** Uses the types as strict programs do. It is compiled, and never runs. */

import {
  Client,
  type ClientOptions,
  type Hooks,
  OdometerError,
  type Sequence,
  type SequenceOptions,
} from "odometer-client";

declare const maybe: string | undefined;

const hooks: Hooks = {
  refill: async () => {
    await Promise.resolve();
  },
};
const options: ClientOptions = { endpoints: maybe, token: maybe, deadline: undefined, hooks };
const which: SequenceOptions = { kind: undefined, period: maybe };
const orders: Sequence = new Client(options).sequence("orders", which);
export const number: Promise<bigint> = orders.next();
export const error = new OdometerError("a text", { cause: maybe });
// @ts-expect-error: This is for the library alone.
orders.say("buffered");
