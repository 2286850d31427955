// The sequences that the database lists and memory does not have.

import { Refusal, Unreachable, call, linkTo, withQuery } from './api.js';
import { chips, h, put } from './dom.js';
import { chipsOf } from './facts.js';
import { kept } from './kept.js';

/** Names that are asked for at once. */
const PAGE = 100;
/** Between two looks into the database, which is not asked for every second. */
const BETWEEN_LISTS_MS = 10000;
/** What a name may begin with. */
const BEGINNING = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

/** What the database lists and memory does not have; `wantedNow` is what the filter says. */
export function othersCard(seen, wantedNow) {
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
  let inMemory = { sequences: [], next: null, isCut: false, isByTime: false };
  /** Whether the database listed nothing at all, so that there is no sequence that memory lacks. */
  let isNone = false;

  function clear(words) {
    isNone = false;
    put(note, words);
    showOthers([]);
  }

  /** Asks again at the next look, and what is on its way counts no more. */
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
    const { sequences, next, isCut, isByTime } = inMemory;
    const here = new Set(sequences.map((sequence) => sequence.sequence));
    const others = listed.sequences.filter((sequence) => !here.has(sequence.sequence));
    // Of a page that goes on in memory nobody knows what follows, and of one by time what is between.
    const known = !isCut ? others : isByTime ? [] : others.filter((sequence) => sequence.sequence <= next);
    showOthers(known);
    isNone = wanted === '' && listed.sequences.length === 0 && listed.next === null;
    put(note, noteOf(known.length, wanted, listed.next === null && !isCut));
  }

  return {
    node,
    forget,
    isNone: () => isNone,
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
