// The last minutes as a line: drawn by hand, described in words.

import { arrange, h, put, set, svg } from './dom.js';

const SPAN_S = 300;
const HEIGHT = 132;
const MARGIN = { top: 10, right: 10, bottom: 22, left: 58 };

/** Where an axis of durations may end. */
export const TIMES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 432000, 864000];

/** A chart of values a second, the newest at the right; `writer` gives what prints values up to the end of the axis, `ends` are where that may be. */
export function chart(title, writer, ends = []) {
  const drawing = svg('svg', { class: 'drawing', role: 'img', height: HEIGHT });
  const reading = h('span', { class: 'reading' });
  const words = h('p', { class: 'muted' });
  const node = h('figure', { class: 'chart' },
    h('figcaption', {}, h('span', { class: 'name' }, title), reading), drawing, words);
  let values = [];
  let pointed = null;

  drawing.addEventListener('pointermove', (event) => {
    pointed = event.clientX - drawing.getBoundingClientRect().left;
    draw();
  });
  drawing.addEventListener('pointerleave', () => {
    pointed = null;
    draw();
  });

  function draw() {
    const width = Math.max(240, drawing.clientWidth || 600);
    const at = placing(width, values, ends);
    set(drawing, 'viewBox', `0 0 ${width} ${HEIGHT}`);
    arrange(drawing, [...axes(width, at, writer(at.top)), ...lines(values, at), ...pointer(at, writer(at.top))]);
  }

  function pointer(at, write) {
    const n = pointed === null ? values.length - 1 : Math.round((pointed - at.x(0)) / (at.x(1) - at.x(0)));
    const value = values[n];
    if (value === null || value === undefined) {
      put(reading, '');
      return [];
    }
    const secondsAgo = values.length - 1 - n;
    put(reading, pointed === null ? write(value) : `${write(value)} · ${secondsAgo} s ago`);
    const dot = svg('circle', { class: 'dot-now', cx: at.x(n), cy: at.y(value), r: 3.5 });
    return pointed === null ? [dot] : [svg('line', { class: 'cursor', x1: at.x(n), x2: at.x(n), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }), dot];
  }

  return {
    node,
    /** `isUnrecorded`: there was something, and it was not written down. */
    show(given, isUnrecorded = false) {
      values = given.slice(-SPAN_S);
      const text = isUnrecorded ? 'Not recorded here.' : summary(values, writer(topOf(values, ends)));
      put(words, text);
      set(drawing, 'aria-label', `${title}, the last five minutes. ${text}`);
      draw();
    },
  };
}

function summary(values, write) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) {
    return 'Nothing in the last five minutes.';
  }
  const sum = known.reduce((total, value) => total + value, 0);
  return `Average ${write(sum / known.length)}, least ${write(Math.min(...known))}, most ${write(Math.max(...known))}.`;
}

/** Where the axis ends. */
function topOf(values, ends) {
  const highest = Math.max(0, ...values.filter((value) => value !== null));
  return ends.find((end) => end >= highest) ?? ceiling(highest);
}

function placing(width, values, ends) {
  const top = topOf(values, ends);
  const across = width - MARGIN.left - MARGIN.right;
  const down = HEIGHT - MARGIN.top - MARGIN.bottom;
  const first = SPAN_S - values.length;
  return {
    top,
    x: (n) => MARGIN.left + (across * (first + n)) / (SPAN_S - 1),
    y: (value) => MARGIN.top + down * (1 - value / top),
  };
}

/** A round number at or above `value`. */
function ceiling(value) {
  if (value <= 0) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999) ?? 10 * power;
}

function axes(width, at, write) {
  const right = width - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const levels = [0, at.top / 2, at.top].flatMap((value) => [
    svg('line', { class: 'grid', x1: MARGIN.left, x2: right, y1: at.y(value), y2: at.y(value) }),
    svg('text', { class: 'tick', x: MARGIN.left - 8, y: at.y(value) + 4, 'text-anchor': 'end' }, write(value)),
  ]);
  const minutes = (width < 420 ? [4, 2, 0] : [5, 4, 3, 2, 1, 0]).map((minute) => {
    const x = right - ((right - MARGIN.left) * minute) / 5;
    const anchor = minute === 5 ? 'start' : minute === 0 ? 'end' : 'middle';
    return svg('text', { class: 'tick', x, y: bottom + 16, 'text-anchor': anchor }, minute === 0 ? 'now' : `−${minute} min`);
  });
  return [...levels, ...minutes];
}

/** A line for each run of known values, and what lies below it. */
function lines(values, at) {
  const runs = [];
  values.forEach((value, n) => {
    if (value === null) {
      return;
    }
    if (n === 0 || values[n - 1] === null) {
      runs.push([]);
    }
    runs.at(-1).push([at.x(n), at.y(value)]);
  });
  return runs.flatMap((run) => {
    const path = run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join('L');
    const [from, to, floor] = [run[0][0].toFixed(1), run.at(-1)[0].toFixed(1), at.y(0).toFixed(1)];
    return [
      svg('path', { class: 'area', d: `M${from},${floor}L${path}L${to},${floor}Z` }),
      svg('path', { class: 'line', d: `M${path}` }),
    ];
  });
}
