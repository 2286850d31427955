/** Context: work that belongs to no caller. */

import { AsyncResource } from "node:async_hooks";

const own = new AsyncResource("odometer-client");

/**
 * Does work outside of the caller's asynchronous context. Connections and refills serve others
 * after this caller, and would keep what an `AsyncLocalStorage` has for it.
 */
export function detached<T>(work: () => T): T {
  return own.runInAsyncScope(work);
}
