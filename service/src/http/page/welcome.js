// What stands in place of the list while there is no sequence at all.

import { CREATION, GUIDE } from './api.js';
import { copyable } from './copy.js';
import { h, instead } from './dom.js';

export function welcome() {
  const address = new URL('v1/sequences/orders/next', document.baseURI).href;
  return h('section', { class: 'card welcome', 'aria-labelledby': 'welcome', hidden: true },
    h('h2', { id: 'welcome' }, 'There is no sequence yet'),
    instead(),
    h('p', { class: 'changes takes' }, 'Take the first number. Unless the configuration forbids it, this call creates the sequence ', h('code', {}, 'orders'), ':'),
    h('div', { class: 'changes takes' }, copyable(`curl -X POST ${address}`, 'A call that takes a number')),
    h('p', { class: 'changes takes for-roles' }, 'The call needs a token, too: add ', h('code', {}, '-H "Authorization: Bearer $TOKEN"'), '.'),
    h('p', { class: 'changes defines' }, 'Or say first how the numbers should look and where they should begin.'),
    h('div', { class: 'ways' },
      h('button', { type: 'button', class: 'main changes defines', onclick: () => { location.hash = CREATION; } }, 'Create a sequence'),
      h('a', { href: GUIDE }, 'Read the guide')));
}
