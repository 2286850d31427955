// Who the page is to a service with roles: the caller, its role, and what that role may do and use up.

import { CALLER, Refusal, SOON_MS, Unreachable, call, tokenNow } from './api.js';
import { h, put } from './dom.js';
import { count } from './format.js';

const RIGHTS = {
  take: 'Take numbers', block: 'Reserve blocks', create: 'Use new names',
  define: 'Define and change', lease: 'Lease worker ids', look: 'Look',
};

/** Asks who calls; `seen.caller` is null without roles, and as long as the service does not say. */
export async function askCaller(seen) {
  const { isShown } = tokenNow();
  try {
    const caller = await call('v1/me', { patience: SOON_MS });
    if (typeof caller.caller !== 'string') {
      throw new Unreachable('GET', 200);
    }
    // An administrator has no role, with roles and without: what was said without a token decides.
    seen.hasRoles = caller.role !== null || (isShown && seen.hasRoles);
    seen.caller = seen.hasRoles ? caller : null;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) {
      // Without a token, only a service with roles refuses to say.
      seen.hasRoles ||= !isShown;
      seen.caller = null;
    }
    throw error;
  }
}

/** Whether the service lets this caller look at all names, which every view needs. */
export function mayLook(caller) {
  return caller === null || caller.rights.look.includes('*');
}

/** What the actions of the page need a right for: it marks them by `.takes` and `.defines`. */
const ACTIONS = { take: 'take numbers', define: 'create or change sequences' };

/** Those rights that the role of the caller has on no name. */
export function lackedRights(caller) {
  return caller === null ? [] : Object.keys(ACTIONS).filter((right) => caller.rights[right].length === 0);
}

/** What stands in place of the actions that need a right which the role of the caller lacks. */
export function lacking(right) {
  return h('p', { class: `no-${right}` }, `You cannot ${ACTIONS[right]} here: `, h('a', { href: CALLER }, 'your role'), ' has no right ', h('code', {}, right), '.');
}

/** What the service says of the caller. */
export function callerCard() {
  const words = h('p');
  const rights = h('dl', { class: 'facts', 'aria-label': 'Rights' });
  const quotas = h('dl', { class: 'facts', 'aria-label': 'Quotas' });
  const shared = h('p', { class: 'muted' });
  const node = h('section', { class: 'card', 'aria-label': 'You', hidden: true }, words, rights, quotas, shared);
  let shown = '';
  return {
    node,
    show(caller) {
      node.hidden = caller === null;
      if (shown === JSON.stringify(caller)) {
        return;
      }
      shown = JSON.stringify(caller);
      if (caller === null) {
        // What is hidden is in the document all the same.
        [words, rights, quotas, shared].forEach((part) => part.replaceChildren());
        return;
      }
      const { caller: name, role } = caller;
      words.replaceChildren('You are ', h('code', {}, name),
        ...(role === null ? [', and may do everything.'] : [', with the role ', h('code', {}, role), '.']));
      rights.replaceChildren(...Object.entries(RIGHTS).map(([right, title]) => fact(title, names(caller.rights[right]))));
      quotas.replaceChildren(...(role === null ? [] : [
        fact('Numbers a second', bound(caller.numbers_per_second)),
        fact('Names and keys', bound(caller.names)),
        fact('Worker ids', bound(caller.workers)),
        fact('Share in one call', caller.share ?? 'No bound'),
      ]));
      put(shared, role === null ? '' : 'A right holds for the names that fit. All callers of a role share its quotas.');
    },
  };
}

function fact(title, value) {
  return h('div', {}, h('dt', {}, title), h('dd', {}, value));
}

function names(globs) {
  return globs.length === 0 ? 'None' : globs.includes('*') ? 'All names' : h('code', {}, globs.join(', '));
}

function bound(most) {
  return most === null ? 'No bound' : count(most);
}
