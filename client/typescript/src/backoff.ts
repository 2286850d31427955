/** Backoff: how long to wait before the next attempt. */

const MIN_CEILING_MS = 50;
const MAX_CEILING_MS = 2_000;
const MAX_RETRY_AFTER_MS = 60_000;
const MAX_DOUBLINGS = 16;

/**
 * Returns the wait after so many failures in a row: full jitter, 50 ms doubling to 2 s.
 *
 * `retryAfter` is what the service asked for, in seconds, if no other replica can be asked
 * meanwhile. `random` draws a number from 0 up to 1.
 */
export function pauseMs(
  nFailures: number,
  retryAfter: number | undefined,
  random: () => number = Math.random,
): number {
  const doublings = Math.max(0, Math.min(nFailures - 1, MAX_DOUBLINGS));
  const ceiling = Math.min(MAX_CEILING_MS, MIN_CEILING_MS * 2 ** doublings);
  const asked = Math.min(Math.max((retryAfter ?? 0) * 1_000, 0), MAX_RETRY_AFTER_MS);
  return asked + random() * ceiling;
}
