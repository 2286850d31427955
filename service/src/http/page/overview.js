// All sequences: those in this replica's memory live, the others as the database lists them.

import { CREATION, Refusal, SOON_MS, call, report, withQuery } from './api.js';
import { h, put } from './dom.js';
import { plural, rate } from './format.js';
import { liveTable } from './live.js';
import { othersCard } from './others.js';
import { replicaCard } from './replica.js';
import { welcome } from './welcome.js';

const PAGE = 100;
/** Pages that are asked for until one is full: a filter may pass over many names. */
const MOST_PAGES = 10;
/** The most names that one call lists. */
const MOST_AT_ONCE = 1000;

const SORTS = [['name', 'Name'], ['reserve', 'Shortest reserve'], ['runway', 'Shortest runway']];

/** As it was chosen last, until the page is loaded again. */
let sortedBy = 'name';

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
  const sort = h('select', {
    id: 'sort', onchange: () => { sortedBy = sort.value; shownAtMost = PAGE; look(); },
  }, SORTS.map(([value, words]) => h('option', { value, selected: value === sortedBy }, words)));
  // No name has a space at its ends.
  const wantedNow = () => filter.value.trim();
  const replica = replicaCard();
  const table = liveTable();
  const others = othersCard(seen, wantedNow);
  const greeting = welcome();
  const empty = h('p', { class: 'empty' });
  const more = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => { shownAtMost += PAGE; look(); } }, 'Show more');
  const problem = h('p', { class: 'error', role: 'status', 'aria-live': 'polite' });
  const heading = h('span', { class: 'muted' });
  const sequences = h('section', { class: 'card', 'aria-labelledby': 'in-memory' },
    h('div', { class: 'bar-of-card' },
      h('h2', { id: 'in-memory' }, 'Sequences ', heading),
      h('div', { class: 'tools' },
        h('div', { class: 'field' }, h('label', { for: 'filter' }, 'Filter by name'), filter),
        h('div', { class: 'field' }, h('label', { for: 'sort' }, 'Sort by'), sort),
        h('button', { type: 'button', class: 'quiet changes defines', onclick: () => { location.hash = CREATION; } }, 'New sequence'))),
    problem, table.node, empty, more);

  const node = h('div', { class: 'stack' },
    h('h1', { class: 'hidden' }, 'This replica and its sequences'),
    replica.node, greeting, sequences, others.node);

  async function refresh() {
    replica.show(seen.replica);
    const wanted = wantedNow();
    const by = sortedBy;
    others.expect(wanted);
    try {
      const inMemory = await live(wanted, by, shownAtMost);
      put(problem, '');
      showLive(inMemory, wanted, by);
      // Not waited for: while the database is slow, memory is shown all the same.
      others.show(wanted, inMemory).then(() => showGreeting(inMemory, wanted)).catch(refused);
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

  /** Where there is no sequence at all, the way to the first one stands in place of the lists. */
  function showGreeting(inMemory, wanted) {
    const isFirst = wanted === '' && inMemory.sequences.length === 0 && inMemory.next === null && others.isNone();
    greeting.hidden = !isFirst;
    sequences.hidden = isFirst;
    others.node.hidden = isFirst;
  }

  function showLive({ sequences: all, next, isCut, isByTime }, wanted, by) {
    const shown = all.slice(0, shownAtMost);
    table.show(shown, by);
    const rates = shown.reduce((sum, sequence) => sum + sequence.rate, 0);
    const isMore = shown.length < all.length || next !== null;
    put(heading, shown.length === 0 ? '' : `${shown.length}${isMore ? ' and more' : ''} · ${rate(rates)}`);
    // Where it ended before there were enough, it would end there again.
    const isCutOff = next !== null && all.length < shownAtMost;
    more.hidden = isByTime ? shown.length === all.length : next === null || isCutOff;
    put(empty, isByTime && isCut ? sortedAmong(all, next)
      : isCutOff ? `${all.length === 0 ? 'Nothing found' : 'All that was found'} up to “${next}”, and no further was looked.`
      : all.length > 0 ? ''
      : wanted === '' ? 'No sequence is in memory now.'
      : `No sequence in memory has “${wanted}” in its name.`);
  }

  return { node, refresh, refused, stop: () => clearTimeout(timer) };
}

/** What a list by time does not say where there are more names than one call looks at, or lists. */
function sortedAmong(all, next) {
  return next === null
    ? `These are the ${plural(all.length, 'sequence', 'sequences')} with the least time. The filter finds others.`
    : `This is the order of the names up to “${next}”. The filter finds others.`;
}

/** So many names in memory, from as many pages as that takes; by time, all that one call lists. */
async function live(contains, sort, wanted) {
  if (sort !== 'name') {
    const { sequences, next } = await page({ contains, sort, limit: MOST_AT_ONCE });
    const isCut = next !== null || sequences.length === MOST_AT_ONCE;
    return { sequences, next, isCut, isByTime: true };
  }
  const sequences = [];
  let next = null;
  for (let n = 0; n < MOST_PAGES && sequences.length < wanted; n += 1) {
    const found = await page({ contains, after: next, limit: Math.min(MOST_AT_ONCE, wanted - sequences.length) });
    sequences.push(...found.sequences);
    next = found.next;
    if (next === null) {
      break;
    }
  }
  return { sequences, next, isCut: next !== null, isByTime: false };
}

function page(query) {
  return call(withQuery('v1/replica/sequences', query), { patience: SOON_MS });
}
