// What is said of a sequence in words: chips, warnings, definition, blocks, what became of a number.

import { arrange, bar, h, put, set } from './dom.js';
import { NOTHING, ago, between, count, duration, end, moment, passed, runway } from './format.js';
import { withMeaning } from './words.js';

/** As long before the end as the alerts say. */
const RUNWAY_WARN_DAYS = 30;
const RUNWAY_BAD_DAYS = 7;

/** The short words beside a name. */
export function chipsOf({ kind, order, counts_by, store, retired }) {
  const words = [];
  if (retired) {
    words.push(['retired', 'bad']);
  }
  if (kind === 'snowflake') {
    words.push(['time-ordered', 'kind']);
  }
  if (order === 'strict') {
    words.push(['strict', 'kind']);
  }
  if (counts_by && counts_by !== 'none') {
    words.push([counts_by === 'keyed' ? 'by key' : `by ${counts_by}`, 'kind']);
  }
  if (store && store !== 'default') {
    words.push([store, 'store']);
  }
  return words;
}

/** Whether memory lasts neither for `hold`, of a lease, which is renewed each minute, a third of it, nor to the end of the period. */
export function lookOfReserve({ kind, reserve_seconds: seconds, rate, hold_seconds: hold, period_ends: ends }) {
  const left = ends === null ? Infinity : (Date.parse(ends) - Date.now()) / 1000;
  const wanted = Math.min(left, hold * (kind === 'snowflake' ? 1 / 3 : 1));
  return seconds !== null && rate >= 0.1 && seconds < wanted ? 'warn' : null;
}

/** Shows for how long memory lasts: in the list as on a page of its own; of what is retired, nothing does. */
export function showReserve(node, live) {
  const isKnown = live !== null && !live.retired && live.reserve_seconds !== null;
  const isShort = isKnown && lookOfReserve(live) !== null;
  const look = !isShort ? null : live.warming_up ? 'warming' : 'warn';
  put(node, isKnown ? withWord(duration(live.reserve_seconds), look) : NOTHING);
  set(node, 'data-look', look);
}

/** Shows how long numbers last; `lasts` where they start again before. */
export function showRunway(node, given, lasts = false) {
  const look = lasts ? null : lookOfRunway(given);
  put(node, lasts ? 'beyond its period' : withWord(runway(given), look));
  set(node, 'data-look', look);
  set(node, 'title', given ? `${count(given.numbers_left)} numbers ${end(given.limit)}` : null);
}

/** What a colour says, said in a word too. */
function withWord(text, look) {
  const word = { bad: 'very low', warn: 'low', warming: 'warming up' }[look];
  return word ? `${text} · ${word}` : text;
}

function lookOfRunway(runway) {
  if (!runway) {
    return null;
  }
  if (runway.numbers_left === 0) {
    return 'bad';
  }
  if (runway.days_left === null || runway.days_left >= RUNWAY_WARN_DAYS) {
    return null;
  }
  return runway.days_left < RUNWAY_BAD_DAYS ? 'bad' : 'warn';
}

/** Whether numbers start again before these are used up. */
export function outlasts({ runway, period_ends: ends }) {
  if (!runway || !ends) {
    return false;
  }
  return runway.days_left === null ? runway.numbers_left > 0 : Date.now() + runway.days_left * 86400000 >= new Date(ends).getTime();
}

/** What became of a number, in a sentence. */
export function fateOf({ value, fate }) {
  const said = {
    not_reserved: 'Nobody has reserved it: it has not been issued.',
    held: 'Its holder has not told what became of it, and may still have it in memory.',
    issued: 'It was given to a caller.',
    issued_or_lost: 'It left its holder’s memory: to a caller, or with the holder.',
    returned: 'It was given back, and waits to be adopted.',
    adopted: 'It was given back and taken over by another holder; no more is known.',
    abandoned: 'It is a gap: reserved, neither issued nor given back.',
    no_record: 'The journal has no row of it: skipped, or its row was pruned.',
  };
  return `${value}: ${said[fate] ?? fate}`;
}

/** When a database was recovered last, by whom, and how far that raised its counters. */
export function recoveryOf(recovery) {
  if (!recovery) {
    return null;
  }
  const { at, lost_since: since, highest_rise: rise, holder } = recovery;
  const lost = since === null ? '' : ` Commits of the last ${duration((Date.parse(at) - Date.parse(since)) / 1000)} before may be lost.`;
  const what = since === null ? 'Recovered' : 'Failed over';
  return `${what}: at ${moment(at)} ${holder ?? 'odometer recover'} raised counters by up to ${count(rise)}.${lost}`;
}

/** Names with their values. */
export function list(pairs) {
  return h('dl', { class: 'facts' }, pairs.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

/** A block in memory, with how much of it is left. */
export function heldBlock() {
  const part = bar();
  const title = h('span', { class: 'name' });
  const range = h('code', { class: 'range' });
  const left = h('span', { class: 'muted' });
  return {
    node: h('div', { class: 'held' }, h('div', { class: 'held-words' }, title, range, left), part.node),
    show(name, block) {
      put(title, name);
      put(range, `${block.first} – ${block.last}`);
      const text = `${count(block.remaining)} of ${count(block.size)} left`;
      put(left, text);
      part.show(block.remaining / Math.max(1, block.size), `${name}: left`, text);
    },
  };
}

/** The lease of a worker id. */
export function heldLease() {
  const cells = ['Worker id', 'Time reserved until', 'Lasts without the database', 'Renewed', 'Database’s clock ahead by']
    .map((name) => [name, h('span')]);
  return {
    node: list(cells),
    show(lease) {
      const texts = [
        lease.worker, moment(lease.until), duration(lease.seconds_left),
        lease.renewed_at ? ago(lease.renewed_at) : NOTHING, `${count(lease.clock_skew_ms)} ms`,
      ];
      cells.forEach(([, cell], n) => put(cell, texts[n]));
    },
  };
}

const LOOK_OF_FATE = { held: 'good', spent: 'plain', returned: 'kind', adopted: 'kind', abandoned: 'bad' };

/** Rows of the journal, of all replicas. */
export function journal(holder) {
  const body = h('tbody', { role: 'rowgroup' });
  const node = h('table', { class: 'journal', role: 'table' },
    h('caption', { class: 'hidden' }, 'Blocks of all replicas, from the journal'),
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, 'Numbers'),
      h('th', { scope: 'col', class: 'number' }, 'Count'),
      h('th', { scope: 'col' }, withMeaning('Holder')),
      h('th', { scope: 'col' }, 'Reserved'),
      h('th', { scope: 'col' }, withMeaning('Fate')))),
    body);
  let shown = '';
  return {
    node,
    show(blocks) {
      const wanted = JSON.stringify(blocks) + holder();
      if (shown === wanted) {
        return;
      }
      shown = wanted;
      arrange(body, blocks.map((block) => rowOf(block, holder())));
    },
  };
}

function rowOf(block, holder) {
  const isHere = block.holder === holder;
  const gone = passed(block.first, block.last, block.next_unissued);
  const fate = h('span', { class: 'chip', 'data-look': LOOK_OF_FATE[block.fate] ?? 'plain' }, block.fate);
  return h('tr', { role: 'row' },
    h('th', { scope: 'row', role: 'rowheader' },
      block.period === null ? null : h('span', { class: 'period' }, block.period),
      h('code', { class: 'range' }, `${block.first} – ${block.last}`)),
    h('td', { class: 'number', 'data-label': 'Count', role: 'cell' }, between(block.first, block.last, block.step)),
    h('td', { 'data-label': 'Holder', role: 'cell', class: 'holder' },
      h('code', {}, block.holder), isHere ? h('span', { class: 'chip', 'data-look': 'good' }, 'this replica') : null),
    h('td', { 'data-label': 'Reserved', role: 'cell' }, moment(block.reserved_at)),
    h('td', { 'data-label': 'Fate', role: 'cell' }, fate,
      block.fate === 'returned' || block.fate === 'abandoned' ? h('span', { class: 'muted' }, ` with ${Math.round((1 - gone) * 100)} % left`) : null));
}
