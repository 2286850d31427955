// What this replica has of one sequence now.

import { arrange, h, put } from './dom.js';
import { heldBlock, heldLease, outlasts, showReserve, showRunway } from './facts.js';
import { NOTHING, count, digits, plural, rate, sentence } from './format.js';
import { withMeaning } from './words.js';

/** The word that explains a title, where they differ. */
const WORDS = { 'Rate, smoothed': 'Rate' };

/** The nodes are kept and only written over, so that focus and selection stay. */
export function nowCard() {
  const tiles = {};
  const current = heldBlock();
  const next = heldBlock();
  const lease = heldLease();
  const why = h('p', { class: 'muted' });
  const ofKeys = h('p', { class: 'muted' });
  const held = h('div', { class: 'stack' });
  const marks = h('p', { class: 'words-of-list' });
  let marked = null;
  const node = h('section', { class: 'card', 'aria-label': 'Now, on this replica' },
    h('dl', { class: 'tiles' }, ['Rate, smoothed', 'Reserve', 'In memory', 'Runway', 'High-water mark'].map((title) => {
      tiles[title] = h('dd');
      return h('div', {}, h('dt', {}, withMeaning(WORDS[title] ?? title, title)), tiles[title]);
    })),
    marks, held);

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

  /** Explains the word that the reserve has, where it has one. */
  function explainReserve() {
    const word = { warn: 'Low', warming: 'Warming up' }[tiles.Reserve.dataset.look] ?? null;
    if (marked !== word) {
      marked = word;
      marks.replaceChildren(...(word === null ? [] : [h('span', {}, withMeaning(word))]));
    }
  }

  return {
    node,
    mark(number) {
      put(tiles['High-water mark'], number ?? NOTHING);
    },
    showLive(live, described, isOfAllKeys) {
      showTiles(live, live.remaining);
      showReserve(tiles.Reserve, live);
      explainReserve();
      showRunway(tiles.Runway, live.runway ?? described, outlasts(live));
      showHeld(live, isOfAllKeys);
    },
    showDescribed({ kind }, state) {
      showTiles({ kind, rate: state.rate }, 0);
      showReserve(tiles.Reserve, null);
      explainReserve();
      showRunway(tiles.Runway, state.runway);
      put(why, state.retired ? 'It is retired: it issues nothing until you restore it.' : 'Not in memory on this replica: the next call fetches it.');
      arrange(held, [why]);
    },
    /** Nothing is known of it. */
    clear() {
      put(tiles['High-water mark'], NOTHING);
      showTiles({ rate: null }, null);
      showReserve(tiles.Reserve, null);
      explainReserve();
      showRunway(tiles.Runway, null);
      arrange(held, []);
    },
  };
}
