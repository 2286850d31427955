// All sequences: those in this replica's memory live, the others as the database lists them.

import { Refusal, SOON_MS, Unreachable, call, linkTo, report, withQuery } from './api.js';
import { arrange, bar, chips, h, put, set } from './dom.js';
import { ago, count, plural, rate } from './format.js';
import { chipsOf, outlasts, recoveryOf, showReserve, showRunway } from './facts.js';

const PAGE = 100;
/** Pages that are asked for until one is full: a filter may pass over many names. */
const MOST_PAGES = 10;
/** Between two looks into the database, which is not asked for every second. */
const BETWEEN_LISTS_MS = 10000;
/** What a name may begin with. */
const BEGINNING = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

export function overview(seen, look) {
  let shownAtMost = PAGE;
  let timer = null;
  const filter = h('input', {
    type: 'search', id: 'filter', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off',
    maxlength: 128, placeholder: 'Part of a name', oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => { shownAtMost = PAGE; others.forget(); look(); }, 150);
    },
  });
  // No name has a space at its ends.
  const wantedNow = () => filter.value.trim();
  const replica = replicaCard();
  const table = liveTable();
  const others = othersCard(seen, wantedNow);
  const empty = h('p', { class: 'empty' });
  const more = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => { shownAtMost += PAGE; look(); } }, 'Show more');
  const problem = h('p', { class: 'error', role: 'status', 'aria-live': 'polite' });
  const heading = h('span', { class: 'muted' });

  const node = h('div', { class: 'stack' },
    h('h1', { class: 'hidden' }, 'This replica and its sequences'),
    replica.node,
    h('section', { class: 'card', 'aria-labelledby': 'in-memory' },
      h('div', { class: 'bar-of-card' },
        h('h2', { id: 'in-memory' }, 'Sequences ', heading),
        h('div', { class: 'field' }, h('label', { for: 'filter' }, 'Filter by name'), filter)),
      problem, table.node, empty, more),
    others.node);

  async function refresh() {
    replica.show(seen.replica);
    const wanted = wantedNow();
    others.expect(wanted);
    try {
      const inMemory = await live(wanted, shownAtMost);
      put(problem, '');
      showLive(inMemory, wanted);
      // Not waited for: while the database is slow, memory is shown all the same.
      others.show(wanted, inMemory).catch(refused);
    } catch (error) {
      if (!(error instanceof Refusal)) {
        throw error;
      }
      refused(error);
    }
  }

  function refused(error) {
    report(error);
    put(problem, error.message);
  }

  function showLive({ sequences, next }, wanted) {
    table.show(sequences);
    const rates = sequences.reduce((sum, sequence) => sum + sequence.rate, 0);
    put(heading, sequences.length === 0 ? '' : `${sequences.length}${next === null ? '' : ' and more'} · ${rate(rates)}`);
    // Where it ended before there were enough, it would end there again.
    const isCutOff = next !== null && sequences.length < shownAtMost;
    more.hidden = next === null || isCutOff;
    put(empty, isCutOff ? `${sequences.length === 0 ? 'Nothing found' : 'All that was found'} up to “${next}”, and no further was looked.`
      : sequences.length > 0 ? ''
      : wanted === '' ? 'No sequence is in memory yet. The first call for a number creates one: POST /v1/sequences/orders/next'
      : `No sequence in memory has “${wanted}” in its name.`);
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
    }), { patience: SOON_MS });
    sequences.push(...page.sequences);
    next = page.next;
    if (next === null) {
      break;
    }
  }
  return { sequences, next };
}

/** A place for things with names, whose nodes are kept and only written over, so that focus and selection stay. */
function kept(parent, make) {
  const nodes = new Map();
  return (things) => {
    const present = things.map((thing) => {
      if (!nodes.has(thing.sequence)) {
        nodes.set(thing.sequence, make(thing.sequence));
      }
      const found = nodes.get(thing.sequence);
      found.show(thing);
      return found.node;
    });
    const names = new Set(things.map((thing) => thing.sequence));
    for (const name of nodes.keys()) {
      if (!names.has(name)) {
        nodes.delete(name);
      }
    }
    arrange(parent, present);
  };
}

/** What is in memory. */
function liveTable() {
  const body = h('tbody', { role: 'rowgroup' });
  const node = h('table', { class: 'live', role: 'table' },
    h('caption', { class: 'hidden' }, 'Sequences in the memory of this replica'),
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, 'Sequence'),
      h('th', { scope: 'col' }, 'Block used'),
      h('th', { scope: 'col', class: 'number', title: 'Numbers a second, smoothed over five minutes' }, 'Rate'),
      h('th', { scope: 'col', class: 'number' }, 'Reserve'),
      h('th', { scope: 'col', class: 'number' }, 'Runway'))),
    body);
  const showRows = kept(body, row);
  return {
    node,
    show(sequences) {
      showRows(sequences);
      node.hidden = sequences.length === 0;
    },
  };
}

function row(name) {
  const used = bar();
  const marks = chips();
  const usedText = h('span', { class: 'used' });
  const rateCell = h('td', { class: 'number', 'data-label': 'Rate', role: 'cell' });
  const reserve = h('td', { class: 'number', 'data-label': 'Reserve', role: 'cell' });
  const left = h('td', { class: 'number', 'data-label': 'Runway', role: 'cell' });
  const node = h('tr', { role: 'row' },
    h('th', { scope: 'row', role: 'rowheader' }, h('a', { href: linkTo(name) }, name), marks.node),
    h('td', { class: 'block', 'data-label': 'Block used', role: 'cell' }, used.node, usedText),
    rateCell, reserve, left);
  return {
    node,
    show(sequence) {
      marks.show(chipsOf(sequence));
      used.node.hidden = sequence.utilization === null;
      if (sequence.utilization !== null) {
        used.show(sequence.utilization, 'Block used', `${count(sequence.block.remaining)} of ${count(sequence.block.size)} left`);
      }
      put(usedText, usedOf(sequence));
      put(rateCell, rate(sequence.rate));
      showReserve(reserve, sequence);
      showRunway(left, sequence.runway, outlasts(sequence));
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

/** What the database lists and memory does not have; `wantedNow` is what the filter says. */
function othersCard(seen, wantedNow) {
  const places = h('ul', { class: 'resting' });
  const note = h('p', { class: 'muted' });
  const node = h('section', { class: 'card', 'aria-labelledby': 'at-rest' },
    h('h2', { id: 'at-rest' }, 'Not in memory here'), note, places);
  const showOthers = kept(places, other);
  let listedAt = 0;
  /** What the names were asked for by. */
  let listedFor = '';
  /** How often they were asked for, and which of the answers is the newest that was shown. */
  let nAsked = 0;
  let nShown = 0;
  /** What memory said last. */
  let inMemory = { sequences: [], next: null };

  function clear(words) {
    put(note, words);
    showOthers([]);
  }

  /** Asks anew at the next look, and what is on its way counts no more. */
  function forget() {
    listedAt = 0;
    nShown = nAsked;
  }

  async function list(wanted) {
    listedAt = performance.now();
    nAsked += 1;
    const asked = nAsked;
    const isStale = () => asked <= nShown || wanted !== wantedNow();
    try {
      const listed = await call(withQuery('v1/sequences', { prefix: wanted, limit: PAGE }));
      if (!isStale()) {
        nShown = asked;
        showListed(listed, wanted);
      }
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof Unreachable)) {
        throw error;
      }
      if (!isStale()) {
        nShown = asked;
        clear(error.message);
      }
    }
  }

  function showListed(listed, wanted) {
    const { sequences, next } = inMemory;
    const here = new Set(sequences.map((sequence) => sequence.sequence));
    const others = listed.sequences.filter((sequence) => !here.has(sequence.sequence));
    // Of a page that goes on in memory nobody knows what follows.
    const known = next === null ? others : others.filter((sequence) => sequence.sequence <= next);
    showOthers(known);
    put(note, noteOf(known.length, wanted, listed.next === null && next === null));
  }

  return {
    node,
    forget,
    /** Of another filter than before nothing is known yet. */
    expect(wanted) {
      if (wanted !== listedFor) {
        listedFor = wanted;
        forget();
        clear('');
      }
    },
    async show(wanted, now) {
      inMemory = now;
      if (!seen.databaseUp) {
        forget();
        clear('No database answers: what is not in memory is not known now.');
      } else if (wanted !== '' && !BEGINNING.test(wanted)) {
        forget();
        clear(`No name begins with “${wanted}”.`);
      } else if (listedAt === 0 || performance.now() - listedAt >= BETWEEN_LISTS_MS) {
        await list(wanted);
      }
    },
  };
}

/** What is said of so many names; `isAll` where the database has no more of them. */
function noteOf(n, wanted, isAll) {
  const which = (verb) => (wanted === '' ? '' : ` that ${verb} with “${wanted}”`);
  const rest = `, known to the database and not used here lately${isAll ? '' : '; the filter finds others'}.`;
  if (n === 0) {
    return isAll ? `The database lists no other sequences${which('begin')}.` : 'None among the first names that were looked at; the filter finds others.';
  }
  return n === 1 ? `One sequence${which('begins')}${rest}` : `${n} sequences${which('begin')}${rest}`;
}

function other(name) {
  const marks = chips();
  return {
    node: h('li', {}, h('a', { href: linkTo(name) }, name), ' ', marks.node),
    show({ definition, state }) {
      marks.show(chipsOf({ ...definition, counts_by: definition.period, retired: state === 'retired' }));
    },
  };
}

/** The process that answers. */
function replicaCard() {
  const facts = {};
  const stores = h('ul', { class: 'stores', 'aria-label': 'Stores' });
  const node = h('section', { class: 'card', 'aria-labelledby': 'this-replica' },
    h('h2', { id: 'this-replica' }, 'This replica'),
    h('dl', { class: 'tiles' }, ['Holder', 'Version', 'Up since', 'Counters in memory', 'Ready'].map((name) => {
      facts[name] = h('dd');
      return h('div', {}, h('dt', {}, name), facts[name]);
    })),
    stores);
  let shown = '';
  return {
    node,
    show(known) {
      put(facts.Holder, known.holder);
      put(facts.Version, known.version);
      put(facts['Up since'], ago(known.started));
      set(facts['Up since'], 'title', known.started);
      put(facts['Counters in memory'], count(known.live_sequences));
      set(facts['Counters in memory'], 'title', 'Names, and periods of them');
      put(facts.Ready, known.ready ? 'Yes' : `No: ${known.why}`);
      set(facts.Ready, 'data-look', known.ready ? 'good' : 'bad');
      if (shown !== JSON.stringify(known.stores)) {
        shown = JSON.stringify(known.stores);
        stores.replaceChildren(...known.stores.flatMap(placesOf));
      }
    },
  };
}

/** A line for each database and each server of a store. */
function placesOf(store) {
  const lines = [
    ...store.databases.map(({ database, up, went_back: wentBack, recovery }) => [
      database, up && !wentBack, wentBack ? 'went back' : up ? 'answers' : 'does not answer', recoveryOf(recovery)]),
    ...store.redis.map(({ server, up }) => [server, up, up ? 'answers' : 'does not answer']),
  ];
  return lines.map(([place, isGood, word, note]) => h('li', {},
    h('span', { class: 'dot', 'data-state': isGood ? 'good' : 'bad', 'aria-hidden': 'true' }),
    h('span', { class: 'store' }, store.name), h('code', {}, place),
    h('span', { class: isGood ? 'muted' : 'wrong' }, word),
    note ? h('span', { class: 'muted' }, note) : null));
}
