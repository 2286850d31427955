/**
 * Buffer: the numbers in memory, in runs. No I/O, no clock.
 *
 * Each run knows by one field which numbers are left, and nothing counts along with it. So an
 * exception in the middle of a take, such as that of a full stack, costs one number at most.
 */

/** A number, and its printed form if the service printed it. */
export interface Item {
  readonly value: bigint;
  readonly id: string | undefined;
}

/** Numbers at an even distance: `first`, `first + step`, … It has one number at least. */
export class NumberRange implements Iterable<bigint> {
  constructor(
    readonly first: bigint,
    readonly step: bigint,
    /** How many numbers. */
    readonly count: number,
  ) {}

  get last(): bigint {
    return this.first + this.step * BigInt(this.count - 1);
  }

  *[Symbol.iterator](): Iterator<bigint> {
    let value = this.first;
    for (let left = this.count; left > 0; left -= 1) {
      yield value;
      value += this.step;
    }
  }
}

/** A range of which numbers are taken. */
export class Run {
  readonly #range: NumberRange;
  readonly #ids: readonly string[] | undefined;
  #nTaken = 0;

  /** `ids` are the printed forms, one for each number. */
  constructor(range: NumberRange, ids?: readonly string[]) {
    this.#range = range;
    this.#ids = ids;
  }

  /** How many numbers can be taken. */
  get left(): number {
    return this.#range.count - this.#nTaken;
  }

  /** Takes the first number. */
  take(): Item | undefined {
    const at = this.#nTaken;
    if (this.left === 0) {
      return undefined;
    }
    this.#nTaken = at + 1;
    const { first, step } = this.#range;
    return { value: first + step * BigInt(at), id: this.#ids?.[at] };
  }

  /** Takes the first numbers, if there are so many. */
  takeRange(count: number): NumberRange | undefined {
    if (this.left < count) {
      return undefined;
    }
    const { first, step } = this.#range;
    const range = new NumberRange(first + step * BigInt(this.#nTaken), step, count);
    this.#nTaken += count;
    return range;
  }
}

/** What the runs of one refill have in common. */
interface Block {
  /** How many numbers it had at first. */
  readonly size: number;
  readonly born: number;
}

/** A run of a block. */
interface Part {
  readonly run: Run;
  readonly block: Block;
}

/** The current block, the next one, and what a warm start added. */
export class Buffer {
  #parts: Part[] = [];

  /** How many numbers can be taken. */
  get left(): number {
    let left = 0;
    for (const { run } of this.#parts) {
      left += run.left;
    }
    return left;
  }

  /** Whether another block is behind the current one. */
  get hasNext(): boolean {
    return this.#parts[0]?.block !== this.#parts.at(-1)?.block;
  }

  /** How many numbers the current block had at first. */
  get currentSize(): number {
    return this.#parts[0]?.block.size ?? 0;
  }

  /** Adds a block behind the others. `born` is when it was asked for. */
  add(runs: readonly Run[], born: number): void {
    const block = { size: countOf(runs), born };
    this.#parts = [...this.#parts, ...runs.map((run) => ({ run, block }))];
  }

  /** Takes the next number. */
  take(): Item | undefined {
    for (;;) {
      const run = this.#parts[0]?.run;
      const item = run?.take();
      if (run?.left === 0) {
        this.#parts.shift();
      }
      if (run === undefined || item !== undefined) {
        return item;
      }
    }
  }

  /** Takes an unbroken range, of the first run that has so many. Nothing else moves. */
  takeRange(count: number): NumberRange | undefined {
    for (const { run } of this.#parts) {
      const range = run.takeRange(count);
      if (range !== undefined) {
        this.#parts = this.#parts.filter((part) => part.run.left > 0);
        return range;
      }
    }
    return undefined;
  }

  /** Drops the blocks that were asked for before this time. Returns how many numbers. */
  dropOlder(than: number): number {
    const young = this.#parts.findIndex(({ block }) => block.born >= than);
    const old = this.#parts.splice(0, young < 0 ? this.#parts.length : young);
    return countOf(old.map(({ run }) => run));
  }
}

/** Returns how many numbers are left in these runs. */
export function countOf(runs: readonly Run[]): number {
  return runs.reduce((sum, run) => sum + run.left, 0);
}
