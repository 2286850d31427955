/** Buffer: the numbers in memory, in blocks of runs. No I/O, no clock. */

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
  #first: bigint;
  readonly #step: bigint;
  #count: number;
  /** Printed forms, the last number's first, so that taking one is cheap. */
  readonly #ids: string[] | undefined;

  constructor(range: NumberRange, ids?: readonly string[]) {
    this.#first = range.first;
    this.#step = range.step;
    this.#count = range.count;
    this.#ids = ids === undefined ? undefined : [...ids].reverse();
  }

  get count(): number {
    return this.#count;
  }

  /** Takes the first number. There must be one. */
  take(): Item {
    const value = this.#first;
    this.#first += this.#step;
    this.#count -= 1;
    return { value, id: this.#ids?.pop() };
  }

  /** Takes the first numbers. There must be so many. */
  takeRange(count: number): NumberRange {
    const range = new NumberRange(this.#first, this.#step, count);
    this.#first += this.#step * BigInt(count);
    this.#count -= count;
    this.#ids?.splice(this.#count);
    return range;
  }
}

/** The numbers of one refill, in the order of its reply. */
class Block {
  readonly runs: readonly Run[];
  /** How many numbers it had at first. */
  readonly size: number;
  /** How many numbers can be taken. */
  left: number;
  /** Before this run there is no number any more. */
  #at = 0;

  constructor(
    runs: readonly Run[],
    readonly born: number,
  ) {
    this.runs = runs;
    this.size = countOf(runs);
    this.left = this.size;
  }

  take(): Item | undefined {
    let run = this.runs[this.#at];
    while (run?.count === 0) {
      this.#at += 1;
      run = this.runs[this.#at];
    }
    if (run !== undefined) {
      this.left -= 1;
    }
    return run?.take();
  }

  takeRange(count: number): NumberRange | undefined {
    const range = this.runs.find((run) => run.count >= count)?.takeRange(count);
    if (range !== undefined) {
      this.left -= count;
    }
    return range;
  }
}

/** The current block, the next one, and what a warm start added. */
export class Buffer {
  #blocks: Block[] = [];
  #left = 0;

  /** How many numbers can be taken. */
  get left(): number {
    return this.#left;
  }

  get nBlocks(): number {
    return this.#blocks.length;
  }

  /** How many numbers the current block had at first. */
  get currentSize(): number {
    return this.#blocks[0]?.size ?? 0;
  }

  /** Adds a block behind the others. `born` is when it was asked for. */
  add(runs: readonly Run[], born: number): void {
    const block = new Block(runs, born);
    if (block.size > 0) {
      this.#blocks.push(block);
      this.#left += block.size;
    }
  }

  /** Takes the next number. */
  take(): Item | undefined {
    const block = this.#blocks[0];
    const item = block?.take();
    if (block !== undefined && item !== undefined) {
      this.#left -= 1;
      if (block.left === 0) {
        this.#blocks.shift();
      }
    }
    return item;
  }

  /** Takes an unbroken range, of the first run that has so many. Nothing else moves. */
  takeRange(count: number): NumberRange | undefined {
    for (const block of this.#blocks) {
      const range = block.takeRange(count);
      if (range !== undefined) {
        this.#left -= count;
        this.#blocks = this.#blocks.filter((it) => it.left > 0);
        return range;
      }
    }
    return undefined;
  }

  /** Drops the blocks that were asked for before this time. Returns how many numbers. */
  dropOlder(than: number): number {
    const young = this.#blocks.findIndex((block) => block.born >= than);
    const old = this.#blocks.splice(0, young < 0 ? this.#blocks.length : young);
    const nDropped = old.reduce((sum, block) => sum + block.left, 0);
    this.#left -= nDropped;
    return nDropped;
  }
}

/** Returns how many numbers are in these runs. */
export function countOf(runs: readonly Run[]): number {
  return runs.reduce((sum, run) => sum + run.count, 0);
}
