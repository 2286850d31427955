// One sequence: what memory has of it each second, and now and then what the database says.

import { CREATION, Refusal, SOON_MS, call, linkTo, pathOf, report, withQuery } from './api.js';
import { explain, raise, take } from './actions.js';
import { lacking } from './caller.js';
import { TIMES, chart } from './chart.js';
import { definitionOf } from './definition.js';
import { chips, h, instead, put } from './dom.js';
import { chipsOf, journal } from './facts.js';
import { durationsUpTo, rate } from './format.js';
import { lifecycle } from './lifecycle.js';
import { nowCard } from './now.js';
import { withMeaning } from './words.js';

const BETWEEN_DESCRIPTIONS_MS = 5000;

export function sequence(seen, name, period, look) {
  const marks = chips();
  const description = h('p', { class: 'description' });
  const problem = h('p', { class: 'error', role: 'status', 'aria-live': 'polite' });
  const now = nowCard();
  const rates = chart('Numbers a second', () => rate);
  const reserves = chart('Reserve', durationsUpTo, TIMES);
  const minutes = h('section', { class: 'card charts', 'aria-label': 'The last minutes, on this replica' }, rates.node, reserves.node);
  const blocks = journal(() => seen.replica?.holder ?? '');
  const noBlocks = h('p', { class: 'empty' });
  // On a telephone the line of headings is not there.
  const words = h('p', { class: 'words-of-list only-narrow' }, ['Holder', 'Fate'].map((word) => h('span', {}, withMeaning(word))));
  const definition = h('div', { class: 'stack' });
  const actions = h('div', { class: 'actions' });
  const life = lifecycle(name, () => seen.replica?.definition_refresh_seconds ?? null, changed);
  const missing = h('section', { class: 'card', 'aria-label': 'There is no such sequence', hidden: true });
  const question = h('section', { class: 'card', 'aria-labelledby': 'question' },
    h('h2', { id: 'question' }, 'What became of a number'), explain(name, () => seen.replica?.holder ?? ''));
  // Whether it is retired is not known yet.
  life.node.hidden = true;
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

  const there = h('div', { class: 'stack' },
    now.node,
    minutes,
    h('div', { class: 'columns' },
      h('section', { class: 'card', 'aria-labelledby': 'actions' }, h('h2', { id: 'actions' }, 'Actions'), instead(), lacking('take'), lacking('define'), h('div', { class: 'changes stack' }, actions, life.node)),
      question),
    h('section', { class: 'card', 'aria-labelledby': 'journal' },
      h('h2', { id: 'journal' }, 'Blocks of all replicas'), words, blocks.node, noBlocks),
    h('section', { class: 'card', 'aria-labelledby': 'definition' },
      h('h2', { id: 'definition' }, 'Definition'), definition));
  const node = h('div', { class: 'stack' },
    h('nav', { class: 'back', 'aria-label': 'Back' }, h('a', { href: '#/' }, '← All sequences')),
    h('div', { class: 'title' }, h('h1', {}, name), marks.node),
    description, problem, missing, there);

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
        showMissing(null);
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
    if (error instanceof Refusal && error.code === 'sequence_not_found') {
      showMissing(error);
      return;
    }
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
      }
      throw error;
    }
    if (asked > nShown) {
      nShown = asked;
      showDescription(answer, isInMemory);
    }
  }

  /** Says that there is no such sequence, and leads to those that were meant; a misspelt name is not created from here. */
  function showMissing(refusal) {
    missing.hidden = refusal === null;
    there.hidden = refusal !== null;
    const text = JSON.stringify(refusal?.suggestions ?? null);
    if (missing.dataset.shown === text) {
      return;
    }
    missing.dataset.shown = text;
    if (refusal === null) {
      missing.replaceChildren();
    } else {
      put(problem, '');
      missing.replaceChildren(
        h('p', { role: 'status' }, `There is no sequence “${name}”.`),
        refusal.suggestions.length === 0 ? '' : h('p', { class: 'suggestions' }, 'Did you mean ',
          ...refusal.suggestions.flatMap((other, n) => [n === 0 ? '' : ' or ', h('a', { href: linkTo(other) }, other)]), '?'),
        h('p', { class: 'muted defines' }, 'If the name is right, you can ', h('a', { href: CREATION }, 'create a new sequence'), '.'));
    }
  }

  function showDescription(answer, isInMemory) {
    showMissing(null);
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
      definition.replaceChildren(...definitionOf(given));
      put(description, given.description);
    }
    showActions(given);
    actions.hidden = described.state.retired === true;
    life.node.hidden = false;
    life.show(described.state.retired === true, described.state.high_water_mark);
  }

  /** What can be done depends on what it is; it is made once, so that no half-written field is lost. */
  function showActions(given) {
    const wanted = `${given.kind} ${given.period}`;
    if (shape === wanted) {
      return;
    }
    shape = wanted;
    const needsKey = given.period === 'keyed' && period === '';
    actions.replaceChildren(...[
      given.period === 'none' ? null : choice(given.period),
      needsKey ? null : take(name, period, changed),
      needsKey ? null : given.kind === 'snowflake'
        ? h('p', { class: 'muted' }, 'Time-ordered ids go by the clock: there is no floor to raise.')
        : raise(name, () => (period === '' ? present : period), changed),
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
    // While the store does not answer, the page keeps what it said before.
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
