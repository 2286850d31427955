// Retiring a sequence, and restoring it.

import { pathOf } from './api.js';
import { action, ask, withToken } from './dialog.js';
import { h, put, set } from './dom.js';
import { clock, duration } from './format.js';

/** One form for both; `refreshSeconds` says how long another replica may take to hear of it. */
export function lifecycle(name, refreshSeconds, done) {
  let isRetired = false;
  /** The first number that nobody has reserved; null where that is not known or there is none. */
  let mark = null;
  const elsewhere = () => `on the other replicas within ${duration(refreshSeconds())}`;
  const made = action('', 'quiet', () => (isRetired ? restored() : retired()));
  const words = h('p', { class: 'muted' });
  made.form.classList.add('defines');
  made.form.prepend(words, made.button, made.result);

  async function retired() {
    const consent = await ask({
      title: `Retire ${name}?`,
      words: `Calls for a number then get status 410: here at once, ${elsewhere()}. The counter stays, and you can restore the sequence.`,
      yes: 'Retire', isGrave: true,
    });
    if (consent === null) {
      return h('p', { class: 'muted' }, 'Not retired.');
    }
    await withToken(made.form, pathOf(name), { method: 'DELETE' });
    show(true, mark);
    done();
    return h('p', {}, `Retired: nothing is issued here any more, and ${elsewhere()}.`);
  }

  async function restored() {
    const from = mark === null ? 'above everything that was ever reserved' : `from its high-water mark, ${mark}`;
    const consent = await ask({
      title: `Restore ${name}?`,
      words: `It goes on ${from}. No number is issued twice. It takes calls here at once, and ${elsewhere()}.`,
      yes: 'Restore',
    });
    if (consent === null) {
      return h('p', { class: 'muted' }, 'Not restored.');
    }
    const answer = await withToken(made.form, pathOf(name, '/restore'), { method: 'POST' });
    show(false, answer.high_water_mark);
    done();
    return h('p', {}, answer.restored
      ? `Restored: it goes on from ${answer.high_water_mark} here; everywhere by ${clock(new Date(answer.everywhere_by))}.`
      : 'It was not retired.');
  }

  function show(isRetiredNow, markNow) {
    isRetired = isRetiredNow;
    mark = markNow;
    put(made.button, isRetired ? 'Restore…' : 'Retire…');
    set(made.button, 'class', isRetired ? 'main' : 'quiet');
    put(words, isRetired ? 'The sequence is retired: it issues nothing until you restore it.' : 'A retired sequence issues nothing until you restore it.');
  }

  show(false, null);
  return { node: made.form, show };
}
