// Questions in dialogs, the token of calls, and forms that say what came of them.

import { Refusal, call, canBeSent, report, useToken } from './api.js';
import { h, put, set } from './dom.js';

/**
 * Asks in a dialog; resolves with the field's text, or true where there is none, or null when it is refused.
 * `words` are a text or elements. Where `field.wrong` has something against the text, that is said and the dialog stays.
 */
export function ask({ title, words, error, field, yes, isGrave = false }) {
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
        h('div', { id: 'dialog-words', class: 'words' }, typeof words === 'string' ? h('p', {}, words) : words),
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

/** Closes each dialog that is open, as its Cancel does. */
export function dismiss() {
  document.querySelectorAll('dialog').forEach((dialog) => dialog.dispatchEvent(new Event('cancel')));
}

/** Why a text can be no token; null if it can be one. */
export function wrongToken(given) {
  return canBeSent(given) ? null : 'A token is of letters, digits and signs of ASCII.';
}

/** Makes a call; if it needs a token, or another one, asks for it, unless `place` is gone by then. */
export async function withToken(place, path, options) {
  let error = null;
  for (;;) {
    try {
      return await call(path, options);
    } catch (refusal) {
      if (!(refusal instanceof Refusal) || refusal.status !== 401 || !place.isConnected) {
        throw refusal;
      }
      const given = await ask({
        title: 'Token',
        words: 'This service needs a token here: the administrator’s, or that of a caller with the right to do this. The page keeps it until you close the page, and sends it to this service alone.',
        error: error ? refusal.message : null,
        field: {
          label: 'Token', type: 'password', autocomplete: 'new-password',
          wrong: wrongToken,
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
export function action(label, look, work) {
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
