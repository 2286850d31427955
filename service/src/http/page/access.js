// Who the caller is, and the field for another token; it stands in place of all views while the service shows nothing.

import { Refusal, call, tokenNow, useToken } from './api.js';
import { callerCard, mayLook } from './caller.js';
import { action, wrongToken } from './dialog.js';
import { h, put } from './dom.js';

export function access(seen, look) {
  const back = h('nav', { class: 'back', 'aria-label': 'Back' }, h('a', { href: '#/' }, '← All sequences'));
  const title = h('h1');
  const reason = h('p', { class: 'description', role: 'status' });
  const form = tokenForm(look);
  const card = callerCard();
  return {
    node: h('div', { class: 'stack narrow' }, back, title, reason, form.node, card.node),
    focus: form.focus,
    async refresh() {
      back.hidden = seen.isShut;
      put(title, seen.isShut ? 'This service needs a token' : 'Who you are');
      put(reason, seen.isShut ? reasonOf(seen.caller) : seen.hasRoles ? '' : 'This service has no roles, so it does not say who you are.');
      form.show(seen.hasRoles);
      card.show(seen.caller);
    },
    refused() {},
  };
}

/** Why nothing is shown to this caller. */
function reasonOf(caller) {
  return caller === null || caller.caller === 'anonymous'
    ? 'Give the token of a caller whose role has the right to look at all names, or the administrator’s token.'
    : mayLook(caller)
    ? 'The service showed nothing, although your role has the right to look at all names. The page asks again within 30 seconds.'
    : 'Your role has no right to look at all names, which this page needs. Give the token of a caller whose role has it.';
}

function tokenForm(look) {
  const state = h('p', { role: 'status' });
  const input = h('input', { id: 'token', type: 'password', autocomplete: 'new-password', required: true });
  const made = action('Use this token', 'main', async () => {
    const given = input.value;
    input.value = '';
    const wrong = wrongToken(given) ?? (await refusalOf(given));
    if (wrong !== null) {
      return h('p', { class: 'error' }, wrong);
    }
    useToken(given);
    await look();
    return null;
  });
  made.form.append(
    h('div', { class: 'field' }, h('label', { for: 'token' }, 'Token'), h('div', { class: 'beside' }, input, made.button)),
    made.result,
    h('p', { class: 'muted' }, 'The page keeps it in memory until you close or reload the page, and sends it to this service alone.'));
  const node = h('section', { class: 'card', 'aria-label': 'Token', hidden: true }, state, made.form);
  return {
    node,
    focus: () => input.focus(),
    show(isOfUse) {
      node.hidden = !isOfUse;
      const { isShown, isRefused } = tokenNow();
      put(state, isRefused ? 'The service refused the token that you gave. The page sends none now.'
        : isShown ? 'The page sends the token that you gave.'
        : 'The page sends no token.');
    },
  };
}

/** What the service has against a token, asked before all calls show it; null if it is right. */
async function refusalOf(given) {
  try {
    await call('v1/me', { token: given });
    return null;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) {
      return 'The service does not accept this token: it is wrong, has expired, or was withdrawn.';
    }
    throw error;
  }
}
