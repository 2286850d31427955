// All sequences: those in this replica's memory live, the others as the database lists them.

import { Refusal, Unreachable, call, withQuery } from './api.js';
import { arrange, bar, chips, h, put, set } from './dom.js';
import { NOTHING, ago, count, duration, end, plural, rate, runway } from './format.js';
import { chipsOf, lookOfReserve, lookOfRunway, outlasts, withWord } from './facts.js';

const PAGE = 100;
/** Pages that are asked for until one is full: a filter may pass over many names. */
const MOST_PAGES = 10;
/** Between two looks into the database, which is not asked for every second. */
const BETWEEN_LISTS_MS = 10000;
/** What a name may begin with. */
const BEGINNING = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

export function overview(seen, look) {
  const rows = new Map();
  const facts = {};
  let shownAtMost = PAGE;
  let listedAt = 0;
  /** What the names not in memory were asked for by. */
  let listedFor = '';
  /** How often they were asked for, and which of the answers is the newest that was shown. */
  let nAsked = 0;
  let nShown = 0;
  /** What memory said last. */
  let inMemory = { sequences: [], next: null };
  let timer = null;

  const filter = h('input', {
    type: 'search', id: 'filter', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off',
    maxlength: 128, placeholder: 'Part of a name', oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => { shownAtMost = PAGE; listedAt = 0; look(); }, 150);
    },
  });
  const body = h('tbody', { role: 'rowgroup' });
  const table = h('table', { class: 'live', role: 'table' },
    h('caption', { class: 'hidden' }, 'Sequences in the memory of this replica'),
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, 'Sequence'),
      h('th', { scope: 'col' }, 'Block used'),
      h('th', { scope: 'col', class: 'number', title: 'Numbers a second, smoothed over five minutes' }, 'Rate'),
      h('th', { scope: 'col', class: 'number' }, 'Reserve'),
      h('th', { scope: 'col', class: 'number' }, 'Runway'))),
    body);
  const empty = h('p', { class: 'empty' });
  const more = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => { shownAtMost += PAGE; look(); } }, 'Show more');
  const resting = h('ul', { class: 'resting' });
  const restingNote = h('p', { class: 'muted' });
  const problem = h('p', { class: 'error', role: 'status', 'aria-live': 'polite' });
  const heading = h('span', { class: 'muted' });

  const node = h('div', { class: 'stack' },
    h('h1', { class: 'hidden' }, 'This replica and its sequences'),
    h('section', { class: 'card', 'aria-labelledby': 'this-replica' },
      h('h2', { id: 'this-replica' }, 'This replica'),
      h('dl', { class: 'tiles' }, ...['Holder', 'Version', 'Up since', 'Counters in memory', 'Ready'].map((name) => {
        facts[name] = h('dd');
        return h('div', {}, h('dt', {}, name), facts[name]);
      })),
      facts.stores = h('ul', { class: 'stores', 'aria-label': 'Stores' })),
    h('section', { class: 'card', 'aria-labelledby': 'in-memory' },
      h('div', { class: 'bar-of-card' },
        h('h2', { id: 'in-memory' }, 'Sequences ', heading),
        h('div', { class: 'field' }, h('label', { for: 'filter' }, 'Filter by name'), filter)),
      problem, table, empty, more),
    h('section', { class: 'card', 'aria-labelledby': 'at-rest' },
      h('h2', { id: 'at-rest' }, 'Not in memory here'), restingNote, resting));

  async function refresh() {
    showReplica(seen.replica, facts);
    const wanted = filter.value.trim();
    if (wanted !== listedFor) {
      listedFor = wanted;
      clearResting('');
    }
    try {
      inMemory = await live(wanted, shownAtMost);
      const { sequences, next } = inMemory;
      put(problem, '');
      showRows(sequences, wanted, next);
      more.hidden = next === null;
      // Not waited for: while the database is slow, memory is shown all the same.
      showResting(wanted).catch(refused);
    } catch (error) {
      if (error instanceof Unreachable || !(error instanceof Refusal)) {
        throw error;
      }
      refused(error);
    }
  }

  function refused(error) {
    if (!(error instanceof Unreachable)) {
      put(problem, error.message);
    }
  }

  function showRows(sequences, wanted, next) {
    const present = sequences.map((sequence) => {
      if (!rows.has(sequence.sequence)) {
        rows.set(sequence.sequence, row(sequence.sequence));
      }
      const found = rows.get(sequence.sequence);
      found.show(sequence);
      return found.node;
    });
    const names = new Set(sequences.map((sequence) => sequence.sequence));
    for (const name of rows.keys()) {
      if (!names.has(name)) {
        rows.delete(name);
      }
    }
    arrange(body, present);
    table.hidden = present.length === 0;
    const rates = sequences.reduce((sum, sequence) => sum + sequence.rate, 0);
    put(heading, present.length === 0 ? '' : `${present.length}${next === null ? '' : ' and more'} · ${rate(rates)}`);
    put(empty, present.length > 0 ? '' : wanted === ''
      ? 'No sequence is in memory yet. The first call for a number creates one: POST /v1/sequences/orders/next'
      : `No sequence in memory has “${wanted}” in its name.`);
  }

  /** Nothing is listed, and no answer that is on its way counts any more. */
  function clearResting(note) {
    listedAt = 0;
    nShown = nAsked;
    put(restingNote, note);
    arrange(resting, []);
  }

  async function showResting(wanted) {
    if (!seen.databaseUp) {
      clearResting('No database answers: what is not in memory is not known now.');
      return;
    }
    if (wanted !== '' && !BEGINNING.test(wanted)) {
      clearResting(`No name begins with “${wanted}”.`);
      return;
    }
    if (performance.now() - listedAt < BETWEEN_LISTS_MS && listedAt > 0) {
      return;
    }
    listedAt = performance.now();
    nAsked += 1;
    const asked = nAsked;
    const listed = await call(withQuery('v1/sequences', { prefix: wanted, limit: PAGE }));
    if (asked <= nShown || wanted !== filter.value.trim()) {
      return;
    }
    nShown = asked;
    const { sequences, next } = inMemory;
    const here = new Set(sequences.map((sequence) => sequence.sequence));
    const others = listed.sequences.filter((sequence) => !here.has(sequence.sequence));
    // Of a page that goes on in memory nobody knows what follows.
    const known = next === null ? others : others.filter((sequence) => sequence.sequence <= next);
    arrange(resting, known.map((sequence) => h('li', {},
      h('a', { href: linkTo(sequence.sequence) }, sequence.sequence), ' ',
      ...chips(chipsOf({ ...sequence.definition, counts_by: sequence.definition.period, retired: sequence.state === 'retired' })))));
    const which = (verb) => (wanted === '' ? '' : ` that ${verb} with “${wanted}”`);
    const rest = `, known to the database and not used here lately${listed.next === null ? '' : '; the filter finds others'}.`;
    put(restingNote, known.length === 0 ? `The database lists no other sequences${which('begin')}.`
      : known.length === 1 ? `One sequence${which('begins')}${rest}` : `${known.length} sequences${which('begin')}${rest}`);
  }

  return { node, refresh, refused, stop: () => clearTimeout(timer) };
}

/** So many names in memory, from as many pages as that takes. */
async function live(contains, wanted) {
  const sequences = [];
  let next = null;
  for (let n = 0; n < MOST_PAGES && sequences.length < wanted; n += 1) {
    const page = await call(withQuery('v1/replica/sequences', {
      contains, after: next, limit: Math.min(1000, wanted - sequences.length),
    }));
    sequences.push(...page.sequences);
    next = page.next;
    if (next === null) {
      break;
    }
  }
  return { sequences, next };
}

function linkTo(name) {
  return `#/sequences/${encodeURIComponent(name)}`;
}

/** One line of the table, kept and only written over, so that focus and selection stay. */
function row(name) {
  const used = bar();
  const marks = h('span', { class: 'chips' });
  const usedText = h('span', { class: 'used' });
  const rateCell = h('td', { class: 'number', 'data-label': 'Rate', role: 'cell' });
  const reserve = h('td', { class: 'number', 'data-label': 'Reserve', role: 'cell' });
  const left = h('td', { class: 'number', 'data-label': 'Runway', role: 'cell' });
  const node = h('tr', { role: 'row' },
    h('th', { scope: 'row', role: 'rowheader' }, h('a', { href: linkTo(name) }, name), marks),
    h('td', { class: 'block', 'data-label': 'Block used', role: 'cell' }, used.node, usedText),
    rateCell, reserve, left);
  let marked = '';
  return {
    node,
    show(sequence) {
      const words = chipsOf(sequence);
      if (marked !== JSON.stringify(words)) {
        marked = JSON.stringify(words);
        marks.replaceChildren(...chips(words));
      }
      used.node.hidden = sequence.utilization === null;
      if (sequence.utilization !== null) {
        used.show(sequence.utilization, 'Block used', `${count(sequence.block.remaining)} of ${count(sequence.block.size)} left`);
      }
      put(usedText, usedOf(sequence));
      put(rateCell, rate(sequence.rate));
      // The list knows no `hold`: what issues from memory for less than two minutes is in need, whatever that is.
      const look = sequence.retired ? null : lookOfReserve(sequence, sequence.kind === 'snowflake' ? null : '2m');
      put(reserve, sequence.reserve_seconds === null || sequence.retired ? NOTHING : withWord(duration(sequence.reserve_seconds), look));
      set(reserve, 'data-look', look);
      const lasts = outlasts(sequence);
      const lookOfLeft = lasts ? null : lookOfRunway(sequence.runway);
      put(left, lasts ? 'its period' : withWord(runway(sequence.runway), lookOfLeft));
      set(left, 'title', sequence.runway ? `${count(sequence.runway.numbers_left)} numbers ${end(sequence.runway.limit)}` : null);
      set(left, 'data-look', lookOfLeft);
    },
  };
}

function usedOf(sequence) {
  if (sequence.retired) {
    return 'Retired: nothing is issued';
  }
  if (sequence.kind === 'snowflake') {
    return sequence.lease ? `Stamps with worker id ${sequence.lease.worker}` : 'Holds no worker id';
  }
  if (sequence.order === 'strict') {
    return 'Keeps nothing in memory';
  }
  if (sequence.counts_by === 'keyed') {
    return `${plural(sequence.periods ?? 0, 'key', 'keys')} in memory, ${count(sequence.remaining)} numbers`;
  }
  return sequence.block ? `${count(sequence.block.remaining)} of ${count(sequence.block.size)} left` : 'No block in memory';
}

function showReplica(known, facts) {
  put(facts.Holder, known.holder);
  put(facts.Version, known.version);
  put(facts['Up since'], ago(known.started));
  set(facts['Up since'], 'title', known.started);
  put(facts['Counters in memory'], count(known.live_sequences));
  set(facts['Counters in memory'], 'title', 'Names, and periods of them');
  put(facts.Ready, known.ready ? 'Yes' : `No: ${known.why}`);
  set(facts.Ready, 'data-look', known.ready ? 'good' : 'bad');
  const lines = known.stores.flatMap((store) => [
    ...store.databases.map((database) => [store, database.database, database.up && !database.went_back,
      database.went_back ? 'went back' : database.up ? 'answers' : 'does not answer']),
    ...store.redis.map((server) => [store, server.server, server.up, server.up ? 'answers' : 'does not answer']),
  ]);
  const shown = JSON.stringify(lines.map(([store, ...rest]) => [store.name, ...rest]));
  if (facts.stores.dataset.shown !== shown) {
    facts.stores.dataset.shown = shown;
    arrange(facts.stores, lines.map(([store, place, isGood, word]) => h('li', {},
      h('span', { class: 'dot', 'data-state': isGood ? 'good' : 'bad', 'aria-hidden': 'true' }),
      h('span', { class: 'store' }, store.name), h('code', {}, place),
      h('span', { class: isGood ? 'muted' : 'wrong' }, word))));
  }
}
