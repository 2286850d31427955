/**
 * The client of Odometer: numbers that never repeat, counted in your program's memory.
 *
 *     const client = new Client({ endpoints: ["http://a:8080", "http://b:8080"] });
 *     const orders = client.sequence("orders");
 *     const number = await orders.next();
 *
 * Read first: `client.ts`, `sequence.ts`, `stock.ts`, `refill.ts`.
 *
 * Imports go one way: `errors`, `clock`, `context`, `hooks`, `backoff`, `endpoints`, `transport`,
 * `token`, `service`, `buffer`, `definition`, `size`, `waiter`, `stock`, `refill`, `direct`,
 * `sequence`, `client`.
 */

export { NumberRange } from "./buffer.js";
export { Client, type ClientOptions } from "./client.js";
export type { Kind } from "./definition.js";
export {
  CallFailed,
  DeadlinePassed,
  Empty,
  InvalidReply,
  OdometerError,
  Refused,
  Unreachable,
  WouldBlock,
} from "./errors.js";
export type { Hooks, Span } from "./hooks.js";
export type { Sequence, SequenceOptions } from "./sequence.js";
export { VERSION } from "./service.js";
