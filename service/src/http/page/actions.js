// What can be done with numbers: take one, raise the floor, ask what became of one.

import { Refusal, call, pathOf } from './api.js';
import { action, ask, withToken } from './dialog.js';
import { h } from './dom.js';
import { fateOf, list } from './facts.js';
import { clock, moment } from './format.js';
import { meaning } from './words.js';

export function take(name, period, done) {
  const made = action('Take a number', 'main', async () => {
    const taken = await withToken(made.form, pathOf(name, '/next', { period }), { method: 'POST' });
    done();
    return [
      h('p', { class: 'taken' }, h('output', { class: 'number-taken' }, taken.id)),
      taken.id === taken.value ? null : h('p', { class: 'muted' }, `Value ${taken.value}`, taken.period === null ? null : `, period ${taken.period}`),
    ];
  });
  made.form.classList.add('takes');
  made.form.append(h('p', { class: 'muted' }, 'It is yours for good: nobody gets it again.'), made.button, made.result);
  return made.form;
}

/** `presentPeriod` says which period that would be, '' for none: it is asked at the moment of the click. */
export function raise(name, presentPeriod, done) {
  const input = h('input', { id: 'floor', inputmode: 'numeric', autocomplete: 'off', required: true, maxlength: 20 });
  const made = action('Raise…', 'quiet', async () => {
    const floor = input.value.trim();
    if (!/^\d{1,19}$/.test(floor)) {
      return h('p', { class: 'error' }, 'A floor is a whole number, written in digits only.');
    }
    const period = presentPeriod();
    const what = period === '' ? name : `${name}, period ${period},`;
    const send = (confirm) => withToken(made.form, pathOf(name, '/advance'), {
      method: 'POST', body: { floor, ...(confirm ? { confirm } : {}), ...(period === '' ? {} : { period }) },
    });
    const consent = await ask({
      title: `Raise ${what} to ${floor}?`,
      words: `Nothing below ${floor} is issued any more${period === '' ? '' : ` in period ${period}`}, by any replica. A floor never falls: this cannot be undone.`,
      yes: 'Raise',
    });
    if (consent === null) {
      return h('p', { class: 'muted' }, 'Not raised.');
    }
    let raised;
    try {
      raised = await send(false);
    } catch (refusal) {
      // Nobody is asked on another view than the one that was asked from.
      if (!(refusal instanceof Refusal) || refusal.code !== 'confirm_needed' || !made.form.isConnected) {
        throw refusal;
      }
      const insists = await ask({
        title: `Raise ${what} to ${floor} all the same?`, error: refusal.message,
        words: 'What is skipped is lost for good.', yes: 'Skip them and raise', isGrave: true,
      });
      if (insists === null) {
        return h('p', { class: 'muted' }, 'Not raised.');
      }
      raised = await send(true);
    }
    done();
    const of = period === '' ? '' : ` in period ${period}`;
    return h('p', {}, raised.advanced
      ? `Nothing below ${raised.floor} is issued any more here${of}; everywhere by ${clock(new Date(raised.everywhere_by))}.`
      : `Its floor${of} is ${raised.floor} already, and never falls.`);
  });
  made.form.classList.add('defines');
  made.form.append(h('div', { class: 'field' },
    h('div', {}, h('label', { for: 'floor' }, 'Issue nothing below'), ' ', meaning('Floor')),
    h('div', { class: 'beside' }, input, made.button)), made.result);
  return made.form;
}

export function explain(name, holder) {
  const input = h('input', { id: 'explained', autocomplete: 'off', spellcheck: 'false', required: true, maxlength: 300 });
  const made = action('Explain', 'quiet', async () => {
    // No id has a space at its ends.
    const told = await call(pathOf(name, '/explain', { id: input.value.trim() }));
    const whose = told.holder === null ? null : told.holder === holder() ? `${told.holder} (this replica)` : told.holder;
    return [
      h('p', { class: 'fate' }, fateOf(told)),
      list([
        ['Period', told.period],
        ['Holder', whose],
        ['Reserved', told.reserved_at === null ? null : moment(told.reserved_at)],
        ['Block', told.block === null ? null : `${told.block.first} – ${told.block.last}`],
      ].filter(([, value]) => value !== null)),
    ];
  });
  made.form.append(h('div', { class: 'field' }, h('label', { for: 'explained' }, 'A number, as it was printed'), h('div', { class: 'beside' }, input, made.button)), made.result);
  return made.form;
}
