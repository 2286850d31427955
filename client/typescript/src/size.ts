/** Size: how fast numbers are taken, how many to ask for, and when. No I/O. */

/** The rate is measured over this time at most. */
const WINDOW_MS = 10_000;
/** The distance of two samples at least. */
const SAMPLE_MS = 1_000;
/** A refill lasts this long at the present rate. */
const REFILL_SECONDS = 10;
/** So many of the last refills say how long the next one may take. */
const N_DURATIONS = 16;
/** A prefetch starts when less than this part of the block is left. */
const LOW_PART = 0.2;

/** A time, and how many numbers had been taken before. */
interface Sample {
  readonly at: number;
  readonly nBefore: number;
}

/** Numbers taken a second, of the last seconds. */
export class Rate {
  readonly #samples: Sample[] = [];
  #nTaken = 0;

  /** Counts numbers that are taken now. */
  note(now: number, count = 1): void {
    const last = this.#samples.at(-1);
    if (last === undefined || now - last.at >= SAMPLE_MS) {
      this.#forgetOld(now);
      this.#samples.push({ at: now, nBefore: this.#nTaken });
    }
    this.#nTaken += count;
  }

  /** Returns the rate. One number alone says nothing about a rate, so it is 0 then. */
  perSecond(now: number): number {
    this.#forgetOld(now);
    const first = this.#samples[0];
    if (first === undefined) {
      return 0;
    }
    const nTaken = this.#nTaken - first.nBefore;
    return Math.max(0, nTaken - 1) / Math.max(1, (now - first.at) / 1_000);
  }

  #forgetOld(now: number): void {
    while (now - (this.#samples[0]?.at ?? now) > WINDOW_MS) {
      this.#samples.shift();
    }
  }
}

/**
 * Decides the size of refills, and the low-water mark. Both follow the rate, so a program that is
 * quiet for some seconds has a small block after its next refill, whatever it had before.
 */
export class Size {
  readonly rate = new Rate();
  readonly #initial: number;
  readonly #durations: number[] = [];
  #slowestMs = 0;

  constructor(initial: number) {
    this.#initial = initial;
  }

  /** Whether a refill succeeded. */
  get hasRefilled(): boolean {
    return this.#durations.length > 0;
  }

  /** A refill of this duration succeeded. */
  noteRefill(ms: number): void {
    this.#durations.push(ms);
    if (this.#durations.length > N_DURATIONS) {
      this.#durations.shift();
    }
    this.#slowestMs = Math.max(...this.#durations);
  }

  /** Returns how many numbers the next refill asks for. */
  nextSize(now: number): number {
    if (!this.hasRefilled) {
      return this.#initial;
    }
    return Math.max(1, Math.floor(this.rate.perSecond(now) * REFILL_SECONDS));
  }

  /** Returns how many numbers must be left, or a prefetch starts. */
  lowWaterMark(now: number, blockSize: number): number {
    const duringRefill = (this.rate.perSecond(now) * this.#slowestMs) / 1_000;
    return Math.max(blockSize * LOW_PART, 2 * duringRefill);
  }
}
