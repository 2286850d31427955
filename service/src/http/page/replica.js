// The process that answers, and what it stands on.

import { h, put, set } from './dom.js';
import { recoveryOf } from './facts.js';
import { ago, count } from './format.js';
import { withMeaning } from './words.js';

export function replicaCard() {
  const facts = {};
  const stores = h('ul', { class: 'stores', 'aria-label': 'Stores' });
  const node = h('section', { class: 'card', 'aria-labelledby': 'this-replica' },
    h('h2', { id: 'this-replica' }, 'This replica'),
    h('dl', { class: 'tiles' }, ['Holder', 'Version', 'Up since', 'Counters in memory', 'Ready'].map((name) => {
      facts[name] = h('dd');
      return h('div', {}, h('dt', {}, withMeaning(name)), facts[name]);
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
      // Why it is not is said above all views.
      put(facts.Ready, known.ready ? 'Yes' : 'No');
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
