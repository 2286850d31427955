// A text that can be copied with one press.

import { h, put } from './dom.js';

/** The text in a box, and a button that copies it. */
export function copyable(text, label) {
  const code = h('code', {}, text);
  const said = h('span', { class: 'muted', role: 'status' });
  const copy = async () => {
    put(said, (await isCopied(text, code)) ? 'Copied.' : 'The text is selected. Press Ctrl+C to copy it.');
  };
  return h('div', { class: 'copyable' }, h('pre', { role: 'group', 'aria-label': label, tabindex: 0 }, code),
    h('button', { type: 'button', class: 'quiet', onclick: copy }, 'Copy'), said);
}

/** Browsers give pages the clipboard on loopback and over TLS; elsewhere the older way may work. */
async function isCopied(text, code) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return document.execCommand('copy');
  }
}
