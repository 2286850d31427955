// The words of the page that a reader may not know, each with one sentence.

import { h, put, set } from './dom.js';

const SENTENCES = {
  'Holder': 'The name that the journal has for this process: host, process and start.',
  'Counters in memory': 'Sequences in the memory of this replica; each period and each key counts as one more.',
  'Block': 'A range of numbers that this replica reserved in the database with one write.',
  'Rate': 'Numbers that this replica issues per second, averaged over five minutes.',
  'Reserve': 'How long the numbers in memory last if the database does not answer.',
  'Runway': 'How long the numbers last that no replica has reserved yet.',
  'In memory': 'Numbers that this replica can issue without the database.',
  'High-water mark': 'The first number that no replica has reserved yet.',
  'Floor': 'No number below the floor is issued, for example because another system used those numbers.',
  'Fate': 'What became of a block: held in memory, spent, returned to the database, adopted by another replica, or abandoned.',
  'Low': 'The reserve is shorter than the definition asks for, or the runway is shorter than 30 days.',
  'Warming up': 'The sequence has only just become busy, so its blocks are still small and each one is larger than the last.',
  'kind': 'Whether numbers are counted from blocks, or composed of time, worker id and a counter (snowflake).',
  'start': 'The first number of the sequence, and of each of its periods.',
  'step': 'The distance between two numbers.',
  'max': 'No number is above this one.',
  'order': 'Relaxed numbers ascend on one replica; strict numbers ascend across all replicas.',
  'period': 'When the sequence starts again: each day, week, month or year, or for each key of a caller.',
  'time zone': 'Where the days, weeks, months and years of the periods begin.',
  'cutover': 'The time of day at which a period begins.',
  'year starts': 'The day on which a year begins.',
  'period back': 'How far back a caller may name a period.',
  'period ahead': 'How far ahead a caller may name a period.',
  'retain': 'For how long a period is kept after its end.',
  'block': 'How many numbers one write reserves, and how early the next block is fetched.',
  'format': 'How a number is printed.',
  'overflow': 'Whether a number that is too long for the format is refused, or printed in more characters.',
  'declared rate': 'Numbers per second that you expect.',
  'limit': 'How fast numbers may be reserved: so many per second, and so many at once after a rest.',
  'store': 'The store of the configuration that keeps the sequence.',
  'layout': 'How the bits of a time-ordered id are divided between time, worker id and counter.',
};

/** Between a word and its sentence, and between the sentence and the edge of the window. */
const GAP_PX = 8;

let nMade = 0;

/** A `?` that opens the sentence of a word; what is pressed elsewhere closes it, and Escape does. */
export function meaning(word, shown = word) {
  if (!Object.hasOwn(SENTENCES, word)) {
    return null;
  }
  nMade += 1;
  const id = `meaning-${nMade}`;
  const sentence = h('span', { id, class: 'meaning', popover: 'auto', role: 'status' });
  const button = h('button', { type: 'button', class: 'what', popovertarget: id, 'aria-label': `What is “${shown}”?`, 'aria-expanded': 'false' }, '?');
  sentence.addEventListener('beforetoggle', (event) => {
    // It is written when it opens, so that it is read out then.
    put(sentence, event.newState === 'open' ? SENTENCES[word] : '');
  });
  sentence.addEventListener('toggle', (event) => {
    const isOpen = event.newState === 'open';
    set(button, 'aria-expanded', isOpen);
    if (isOpen) {
      place(sentence, button);
    }
    set(sentence, 'data-placed', isOpen ? '' : null);
  });
  return h('span', { class: 'what-is' }, button, sentence);
}

/** A word with its `?`, where it has one. */
export function withMeaning(word, shown = word) {
  return [h('span', {}, shown), meaning(word, shown)];
}

/** Below the button, or above it where there is no room, and never past the edges. */
function place(sentence, button) {
  const at = button.getBoundingClientRect();
  const { width, height } = sentence.getBoundingClientRect();
  const left = Math.max(GAP_PX, Math.min(at.left, document.documentElement.clientWidth - width - GAP_PX));
  const isRoom = at.bottom + GAP_PX + height <= document.documentElement.clientHeight;
  const top = isRoom ? at.bottom + GAP_PX : Math.max(GAP_PX, at.top - GAP_PX - height);
  sentence.style.left = `${left + scrollX}px`;
  sentence.style.top = `${top + scrollY}px`;
}
