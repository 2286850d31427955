// Figures for people: short, with units. Ids are strings and stay as they are.

export const NOTHING = '–';

const STEPS = ['', ' k', ' M', ' G', ' T', ' P', ' E'];

/** A count, exact below ten thousand. */
export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) {
    return NOTHING;
  }
  const number = Number(value);
  if (Math.abs(number) < 10000) {
    return Number.isInteger(number) ? grouped(String(number)) : significant(number);
  }
  let step = 0;
  let scaled = number;
  while (Math.abs(scaled) >= 999.5 && step < STEPS.length - 1) {
    scaled /= 1000;
    step += 1;
  }
  return `${significant(scaled)}${STEPS[step]}`;
}

/** Numbers a second. */
export function rate(value) {
  if (value === null || value === undefined) {
    return NOTHING;
  }
  if (value === 0) {
    return '0 /s';
  }
  if (value < 0.001) {
    return '< 0.001 /s';
  }
  const text = value < 10000 ? significant(value) : count(value);
  return / [A-Z]|k$/.test(text) ? `${text}/s` : `${text} /s`;
}

/** A time that passes, in the one unit that says most. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) {
    return NOTHING;
  }
  const minute = 60;
  const hour = 60 * minute;
  const day = 24 * hour;
  const year = 365.25 * day;
  if (seconds < 1) {
    return seconds <= 0 ? '0 s' : '< 1 s';
  }
  if (seconds < 120) {
    return `${Math.round(seconds)} s`;
  }
  if (seconds < 2 * hour) {
    return `${seconds < 10 * minute ? Number((seconds / minute).toFixed(1)) : Math.round(seconds / minute)} min`;
  }
  if (seconds < 2 * day) {
    return `${significant(seconds / hour)} h`;
  }
  if (seconds < 2 * year) {
    return `${significant(seconds / day)} days`;
  }
  return seconds < 1000 * year ? `${significant(seconds / year)} years` : '> 1000 years';
}

/** Writes times up to `top` seconds all in one unit, that of `top`. */
export function durationsUpTo(top) {
  const [unit, size] = [['s', 1, 601], ['min', 60, 7200], ['h', 3600, 172800], ['days', 86400, Infinity]].find(([, , end]) => top < end);
  return (seconds) => `${significant(seconds / size)} ${unit}`;
}

/** How long numbers last, of a runway. */
export function runway(runway) {
  if (!runway) {
    return NOTHING;
  }
  return runway.days_left === null ? `${count(runway.numbers_left)} numbers` : duration(runway.days_left * 86400);
}

const ENDS = {
  max: 'to max',
  width: 'to the width of the format',
  exact: 'to 2^53',
  time: 'to the end of its time bits',
};

/** Which end a runway leads to. */
export function end(limit) {
  return ENDS[limit] ?? limit;
}

/** A moment of the API (RFC 3339), in UTC whoever looks. */
export function moment(text) {
  const time = new Date(text);
  if (!text || Number.isNaN(time.getTime())) {
    return NOTHING;
  }
  return `${time.toISOString().slice(0, 10)} ${clock(time)}`;
}

/** Hours, minutes and seconds, in UTC. */
export function clock(time) {
  return `${time.toISOString().slice(11, 19)} UTC`;
}

/** How long ago. */
export function ago(text) {
  const time = new Date(text).getTime();
  return Number.isNaN(time) ? NOTHING : `${duration(Math.max(0, (Date.now() - time) / 1000))} ago`;
}

/** How many numbers lie from `first` to `last`, whose digits JavaScript's own numbers would lose. */
export function between(first, last, step) {
  try {
    return count((BigInt(last) - BigInt(first)) / BigInt(step) + 1n);
  } catch {
    return NOTHING;
  }
}

/** The part of a block that is behind `next`, 0 to 1. */
export function passed(first, last, next) {
  try {
    const whole = BigInt(last) - BigInt(first) + 1n;
    return Number(((BigInt(next) - BigInt(first)) * 1000n) / whole) / 1000;
  } catch {
    return 0;
  }
}

/** A sentence of the service as a line of its own. */
export function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`.replaceAll('`', '');
}

/** A text whose long numbers are grouped. */
export function digits(text) {
  return text.replace(/(?<![\d.])\d{5,}/g, grouped);
}

/** `1 key`, `3 keys`. */
export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function significant(value) {
  const size = Math.abs(value);
  if (size >= 99.95) {
    return grouped(value.toFixed(0));
  }
  const digits = size >= 9.995 ? 1 : size >= 0.1 ? 2 : 3;
  return String(Number(value.toFixed(digits)));
}

function grouped(digits) {
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}
