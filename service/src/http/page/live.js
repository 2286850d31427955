// The sequences in the memory of this replica, a row each.

import { linkTo } from './api.js';
import { bar, chips, h, put, set } from './dom.js';
import { chipsOf, outlasts, showReserve, showRunway } from './facts.js';
import { count, plural, rate } from './format.js';
import { kept } from './kept.js';
import { withMeaning } from './words.js';

export function liveTable() {
  const body = h('tbody', { role: 'rowgroup' });
  const headings = {
    reserve: h('th', { scope: 'col', class: 'number' }, withMeaning('Reserve')),
    runway: h('th', { scope: 'col', class: 'number' }, withMeaning('Runway')),
  };
  const node = h('table', { class: 'live', role: 'table' },
    h('caption', { class: 'hidden' }, 'Sequences in the memory of this replica'),
    h('thead', {}, h('tr', {},
      h('th', { scope: 'col' }, 'Sequence'),
      h('th', { scope: 'col' }, withMeaning('Block', 'Block left')),
      h('th', { scope: 'col', class: 'number' }, withMeaning('Rate')),
      headings.reserve, headings.runway)),
    body);
  const showRows = kept(body, row);
  // On a telephone the line of headings is not there.
  const narrow = h('p', { class: 'words-of-list only-narrow' },
    ['Block', 'Rate', 'Reserve', 'Runway'].map((word) => h('span', {}, withMeaning(word))));
  const marks = h('p', { class: 'words-of-list' });
  let marked = '';
  const all = h('div', {}, narrow, node, marks);

  /** Explains the words that are in the rows now. */
  function explainMarks() {
    const words = [['warming', 'Warming up'], ['warn', 'Low'], ['bad', 'Low']]
      .filter(([look]) => body.querySelector(`td[data-look="${look}"]`))
      .map(([, word]) => word);
    const wanted = [...new Set(words)];
    if (marked !== wanted.join()) {
      marked = wanted.join();
      marks.replaceChildren(...wanted.map((word) => h('span', {}, withMeaning(word))));
    }
  }

  return {
    node: all,
    /** `sort` is what the rows are in the order of. */
    show(sequences, sort) {
      showRows(sequences);
      for (const [name, heading] of Object.entries(headings)) {
        set(heading, 'aria-sort', name === sort ? 'ascending' : null);
      }
      explainMarks();
      all.hidden = sequences.length === 0;
    },
  };
}

function row(name) {
  const left = bar();
  const marks = chips();
  const leftText = h('span', { class: 'left' });
  const rateCell = h('td', { class: 'number', 'data-label': 'Rate', role: 'cell' });
  const reserve = h('td', { class: 'number', 'data-label': 'Reserve', role: 'cell' });
  const runway = h('td', { class: 'number', 'data-label': 'Runway', role: 'cell' });
  const node = h('tr', { role: 'row' },
    h('th', { scope: 'row', role: 'rowheader' }, h('a', { href: linkTo(name) }, name), marks.node),
    h('td', { class: 'block', 'data-label': 'Block left', role: 'cell' }, left.node, leftText),
    rateCell, reserve, runway);
  return {
    node,
    show(sequence) {
      marks.show(chipsOf(sequence));
      const hasBar = sequence.block !== null && !sequence.retired;
      left.node.hidden = !hasBar;
      if (hasBar) {
        const { remaining, size } = sequence.block;
        left.show(remaining / Math.max(1, size), 'Block left', leftOf(sequence));
      }
      put(leftText, leftOf(sequence));
      put(rateCell, rate(sequence.rate));
      showReserve(reserve, sequence);
      showRunway(runway, sequence.runway, outlasts(sequence));
    },
  };
}

function leftOf(sequence) {
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
