// One sequence: what memory has of it each second, and now and then what the database says.

import { Refusal, SOON_MS, call, linkTo, pathOf, report, withQuery } from './api.js';
import { explain, raise, take } from './actions.js';
import { TIMES, chart } from './chart.js';
import { arrange, chips, h, put } from './dom.js';
import { chipsOf, definitionOf, heldBlock, heldLease, journal, outlasts, showReserve, showRunway } from './facts.js';
import { NOTHING, count, digits, duration, plural, rate, sentence } from './format.js';

const BETWEEN_DESCRIPTIONS_MS = 5000;

export function sequence(seen, name, period, look) {
  const marks = chips();
  const description = h('p', { class: 'description' });
  const problem = h('p', { class: 'error', role: 'status', 'aria-live': 'polite' });
  const now = nowCard();
  const rates = chart('Numbers a second', (value) => rate(value));
  const reserves = chart('Reserve', (value) => duration(value), TIMES);
  const minutes = h('section', { class: 'card charts', 'aria-label': 'The last minutes, on this replica' }, rates.node, reserves.node);
  const blocks = journal(() => seen.replica?.holder ?? '');
  const noBlocks = h('p', { class: 'empty' });
  const definition = h('div');
  const actions = h('section', { class: 'card', 'aria-labelledby': 'actions' }, h('h2', { id: 'actions' }, 'Actions'));
  const question = h('section', { class: 'card', 'aria-labelledby': 'question' },
    h('h2', { id: 'question' }, 'What became of a number'), explain(name, () => seen.replica?.holder ?? ''));
  let described = null;
  let describedAt = 0;
  /** Whether the database said last that there is no such sequence. */
  let isMissing = false;
  /** Whether the service refused the name or the period as such: there is nothing to wait for. */
  let isDeadEnd = false;
  /** How often the database was asked, and which of its answers is the newest that was shown. */
  let nAsked = 0;
  let nShown = 0;
  /** The period that numbers are given of now; '' where it counts without. */
  let present = '';
  let shape = '';

  const node = h('div', { class: 'stack' },
    h('nav', { class: 'back', 'aria-label': 'Back' }, h('a', { href: '#/' }, '← All sequences')),
    h('div', { class: 'title' }, h('h1', {}, name), marks.node),
    description, problem,
    now.node,
    minutes,
    h('div', { class: 'columns' }, actions, question),
    h('section', { class: 'card', 'aria-labelledby': 'journal' },
      h('h2', { id: 'journal' }, 'Blocks of all replicas'), blocks.node, noBlocks),
    h('section', { class: 'card', 'aria-labelledby': 'definition' },
      h('h2', { id: 'definition' }, 'Definition'), definition));

  /** At once, and from the database too: something was changed. */
  function changed() {
    describedAt = 0;
    // What was asked before may not be so any more.
    nShown = nAsked;
    look();
  }

  async function refresh() {
    if (isDeadEnd) {
      return;
    }
    try {
      const watched = await call(withQuery(`v1/replica/sequences/${encodeURIComponent(name)}`, { period }), { patience: SOON_MS });
      // Not waited for: while the database is slow, memory is shown all the same.
      describe(watched.live !== null).catch(refused);
      if (watched.live !== null) {
        showLive(watched.live);
      } else if (described) {
        showDescribed();
      } else {
        now.clear();
      }
      const isUnrecorded = watched.history.length === 0 && (watched.live?.rate ?? 0) > 0;
      rates.show(watched.history.map((second) => second.rate), isUnrecorded);
      reserves.show(watched.history.map((second) => second.reserve_seconds), isUnrecorded);
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
    if (error instanceof Refusal && error.status === 400) {
      isDeadEnd = true;
      problem.append(...(period === '' ? [] : [' ', h('a', { href: linkTo(name) }, `Show ${name} without a period`)]));
    }
  }

  async function describe(isInMemory) {
    const isDue = describedAt === 0 || (isMissing && isInMemory) || performance.now() - describedAt >= BETWEEN_DESCRIPTIONS_MS;
    if (!isDue) {
      return;
    }
    if (!isInMemory && !seen.databaseUp) {
      put(problem, 'No database answers, and this replica has nothing of the sequence in memory.');
      return;
    }
    describedAt = performance.now();
    isMissing = false;
    nAsked += 1;
    const asked = nAsked;
    let answer;
    try {
      answer = await call(pathOf(name, '', { period }));
    } catch (error) {
      if (asked <= nShown) {
        return;
      }
      if (error instanceof Refusal && error.code === 'sequence_not_found') {
        isMissing = true;
        showActions({ kind: 'block', period: 'none' });
      }
      throw error;
    }
    if (asked > nShown) {
      nShown = asked;
      showDescription(answer, isInMemory);
    }
  }

  function showDescription(answer, isInMemory) {
    described = answer;
    present = answer.state.period ?? '';
    put(problem, '');
    showDefinition(described.definition);
    showBlocks(described);
    now.mark(described.state.high_water_mark);
    if (!isInMemory) {
      showDescribed();
    }
  }

  function showDefinition(given) {
    const text = JSON.stringify(given);
    if (definition.dataset.shown !== text) {
      definition.dataset.shown = text;
      definition.replaceChildren(definitionOf(given));
      put(description, given.description);
    }
    showActions(given);
  }

  /** What can be done depends on what it is; it is made once, so that no half-written field is lost. */
  function showActions(given) {
    const wanted = `${given.kind} ${given.period}`;
    if (shape === wanted) {
      return;
    }
    shape = wanted;
    const needsKey = given.period === 'keyed' && period === '';
    const done = changed;
    actions.replaceChildren(h('h2', { id: 'actions' }, 'Actions'), ...[
      given.period === 'none' ? null : choice(given.period),
      needsKey ? null : take(name, period, done),
      needsKey ? null : given.kind === 'snowflake'
        ? h('p', { class: 'muted' }, 'Time-ordered ids go by the clock: there is no floor to raise.')
        : raise(name, () => (period === '' ? present : period), done),
    ].filter(Boolean));
  }

  function choice(kind) {
    const input = h('input', { id: 'period', autocomplete: 'off', spellcheck: 'false', maxlength: 64, value: period, placeholder: kind === 'keyed' ? 'A caller’s key' : 'The present one' });
    return h('form', {
      class: 'action', onsubmit: (event) => {
        event.preventDefault();
        location.hash = linkTo(name, input.value);
      },
    }, h('div', { class: 'field' }, h('label', { for: 'period' }, kind === 'keyed' ? 'Key that is counted by' : `Period (by ${kind})`),
      h('div', { class: 'beside' }, input, h('button', { type: 'submit', class: 'quiet' }, 'Show'))));
  }

  function showMarks(given) {
    marks.show(given.period ? [...chipsOf(given), [given.period, 'period']] : chipsOf(given));
  }

  function showLive(live) {
    const isOfAllKeys = live.counts_by === 'keyed' && period === '';
    // Memory may not have heard of it yet.
    const known = { ...live, retired: described?.state.retired ?? live.retired };
    present = live.period ?? '';
    showMarks(known);
    now.showLive(known, described?.state.runway, isOfAllKeys);
    reserves.node.hidden = live.order === 'strict';
    // Of all keys together there are no minutes to show.
    minutes.hidden = isOfAllKeys;
  }

  /** What the database knows of a name that is not in memory here. */
  function showDescribed() {
    const { definition: given, state } = described;
    showMarks({ kind: given.kind, order: given.order, counts_by: given.period, store: given.store, retired: state.retired, period: state.period });
    now.showDescribed(given, state);
  }

  function showBlocks({ blocks: rows, definition: given, state }) {
    // While the store does not answer, what it said before is still the best that is known.
    if (rows.length > 0 || state.high_water_mark !== null || given.kind === 'snowflake') {
      blocks.show(rows);
      blocks.node.hidden = rows.length === 0;
      put(noBlocks, rows.length > 0 ? '' : given.kind === 'snowflake'
        ? 'Time-ordered ids have no blocks: time is reserved with a worker id.'
        : 'The journal has no block of it yet.');
    }
  }

  return { node, refresh, refused };
}

/** What this replica has of it; the nodes are kept and only written over, so that focus and selection stay. */
function nowCard() {
  const tiles = {};
  const current = heldBlock();
  const next = heldBlock();
  const lease = heldLease();
  const why = h('p', { class: 'muted' });
  const ofKeys = h('p', { class: 'muted' });
  const held = h('div', { class: 'stack' });
  const node = h('section', { class: 'card', 'aria-label': 'Now, on this replica' },
    h('dl', { class: 'tiles' }, ['Rate, smoothed', 'Reserve', 'In memory', 'Runway', 'High-water mark'].map((title) => {
      tiles[title] = h('dd');
      return h('div', {}, h('dt', {}, title), tiles[title]);
    })),
    held);

  function showTiles({ kind, rate: given }, remaining) {
    put(tiles['Rate, smoothed'], rate(given));
    put(tiles['In memory'], kind === 'snowflake' ? NOTHING : count(remaining));
  }

  function showHeld(live, isOfAllKeys) {
    if (live.block) {
      current.show('Being issued', live.block);
    }
    if (live.next_block) {
      next.show('Next', live.next_block);
    }
    if (live.lease) {
      lease.show(live.lease);
    }
    if (live.why) {
      put(why, live.lease || live.order === 'strict' ? sentence(live.why) : `Last block: ${digits(live.why)}`);
    }
    if (isOfAllKeys) {
      put(ofKeys, `${plural(live.periods, 'key', 'keys')} in memory; the rate is that of all of them. Choose a key below to see its blocks and its last minutes.`);
    }
    arrange(held, [live.block && current.node, live.next_block && next.node, live.lease && lease.node, live.why && why, isOfAllKeys && ofKeys].filter(Boolean));
  }

  return {
    node,
    mark(number) {
      put(tiles['High-water mark'], number ?? NOTHING);
    },
    showLive(live, described, isOfAllKeys) {
      showTiles(live, live.remaining);
      showReserve(tiles.Reserve, live);
      showRunway(tiles.Runway, live.runway ?? described, outlasts(live));
      showHeld(live, isOfAllKeys);
    },
    showDescribed({ kind }, state) {
      showTiles({ kind, rate: state.rate }, 0);
      showReserve(tiles.Reserve, null);
      showRunway(tiles.Runway, state.runway);
      put(why, state.retired ? 'It is retired: nothing is issued until it is restored.' : 'Not in memory on this replica: the next call fetches it.');
      arrange(held, [why]);
    },
    /** Nobody knows anything of it. */
    clear() {
      put(tiles['High-water mark'], NOTHING);
      showTiles({ rate: null }, null);
      showReserve(tiles.Reserve, null);
      showRunway(tiles.Runway, null);
      arrange(held, []);
    },
  };
}
