/** Random: draws that spread the calls of many clients. */

/** Draws a number between two others. Tests give another one. */
export type Uniform = (low: number, high: number) => number;

/** Draws by `Math.random`. */
export const uniform: Uniform = (low, high) => low + Math.random() * (high - low);
