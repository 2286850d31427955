// What can be done to a sequence: take a number, raise its floor, ask what became of a number.

import { Refusal, call, canBeSent, pathOf, report, useToken } from './api.js';
import { h, put, set } from './dom.js';
import { fateOf, list } from './facts.js';
import { clock, moment } from './format.js';

/**
 * Asks in a dialog; resolves with the field's text, or true where there is none, or null when it is refused.
 * Where `field.wrong` has something against the text, that is said and the dialog stays.
 */
function ask({ title, words, error, field, yes, isGrave = false }) {
  return new Promise((resolve) => {
    const input = field ? h('input', { id: 'answer', type: field.type, autocomplete: field.autocomplete, required: true }) : null;
    const said = h('p', { id: 'dialog-error', class: 'error', role: 'alert' }, error);
    const close = (answer) => {
      removeEventListener('hashchange', leave, { capture: true });
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    // Who goes elsewhere has not said yes.
    const leave = () => close(null);
    const submit = (event) => {
      event.preventDefault();
      const wrong = field?.wrong?.(input.value) ?? null;
      if (wrong === null) {
        close(input ? input.value : true);
      } else {
        put(said, wrong);
        input.focus();
      }
    };
    const refuse = h('button', { type: 'button', class: 'quiet', onclick: () => close(null) }, 'Cancel');
    const dialog = h('dialog', { 'aria-labelledby': 'dialog-title', 'aria-describedby': 'dialog-error dialog-words' },
      h('form', { onsubmit: submit },
        h('h2', { id: 'dialog-title' }, title),
        said,
        h('p', { id: 'dialog-words' }, words),
        input ? h('div', { class: 'field' }, h('label', { for: 'answer' }, field.label), input) : null,
        h('div', { class: 'buttons' }, refuse,
          h('button', { type: 'submit', class: isGrave ? 'grave' : 'main' }, yes))));
    dialog.addEventListener('cancel', (event) => { event.preventDefault(); close(null); });
    addEventListener('hashchange', leave, { capture: true });
    document.body.append(dialog);
    const before = document.activeElement;
    dialog.addEventListener('close', () => before?.focus?.());
    dialog.showModal();
    (input ?? refuse).focus();
  });
}

/** Carries out a change; where that needs the administrator's token, asks for it, unless `form` is gone by then. */
async function asAdministrator(form, change) {
  let error = null;
  for (;;) {
    try {
      return await change();
    } catch (refusal) {
      if (!(refusal instanceof Refusal) || refusal.status !== 401 || !form.isConnected) {
        throw refusal;
      }
      const given = await ask({
        title: 'Administrator’s token',
        words: 'Changes need the token that this service was started with. It is kept until the page is closed, and sent to this service alone.',
        error: error ? refusal.message : null,
        field: {
          label: 'Token', type: 'password', autocomplete: 'new-password',
          wrong: (given) => (canBeSent(given) ? null : 'A token is of letters, digits and signs of ASCII.'),
        },
        yes: 'Go on',
      });
      if (given === null) {
        throw refusal;
      }
      useToken(given);
      error = refusal;
    }
  }
}

/** A button that is off while its work is under way, and a place for what comes of it. */
function action(label, look, work) {
  const result = h('div', { class: 'result', role: 'status', 'aria-live': 'polite' });
  const button = h('button', { type: 'submit', class: look }, label);
  const form = h('form', {
    class: 'action', onsubmit: async (event) => {
      event.preventDefault();
      if (button.getAttribute('aria-disabled') === 'true') {
        return;
      }
      set(button, 'aria-disabled', 'true');
      try {
        result.replaceChildren(...[await work()].flat().filter(Boolean));
      } catch (error) {
        result.replaceChildren(h('p', { class: 'error' }, error.message));
        report(error);
      } finally {
        set(button, 'aria-disabled', null);
      }
    },
  });
  return { form, button, result };
}

export function take(name, period, done) {
  const made = action('Take a number', 'main', async () => {
    const taken = await call(pathOf(name, '/next', { period }), { method: 'POST' });
    done();
    return [
      h('p', { class: 'taken' }, h('output', { class: 'number-taken' }, taken.id)),
      taken.id === taken.value ? null : h('p', { class: 'muted' }, `Value ${taken.value}`, taken.period === null ? null : `, period ${taken.period}`),
    ];
  });
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
    const send = (confirm) => asAdministrator(made.form, () => call(pathOf(name, '/advance'), {
      method: 'POST', isAdministration: true, body: { floor, ...(confirm ? { confirm } : {}), ...(period === '' ? {} : { period }) },
    }));
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
  made.form.append(h('div', { class: 'field' }, h('label', { for: 'floor' }, 'Issue nothing below'), h('div', { class: 'beside' }, input, made.button)), made.result);
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
