// Elements, made of text and never of markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes, listeners (`onclick` and the like) and children; nothing of it is read as markup. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      node.addEventListener(name.slice(2), value);
    } else if (value === true) {
      node.setAttribute(name, '');
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Shows a text, and leaves the node alone where it shows it already. */
export function put(node, text) {
  const wanted = text === null || text === undefined ? '' : String(text);
  if (node.textContent !== wanted) {
    node.textContent = wanted;
  }
}

/** Sets an attribute where it is another one; null takes it away. */
export function set(node, name, value) {
  if (value === null || value === undefined) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

/** Has the children of `parent` be these, in this order; what is moved loses focus and selection, so what goes is taken away first. */
export function arrange(parent, children) {
  const kept = new Set(children);
  for (const node of [...parent.childNodes]) {
    if (!kept.has(node)) {
      node.remove();
    }
  }
  let at = parent.firstChild;
  for (const child of children) {
    if (child === at) {
      at = at.nextSibling;
    } else {
      parent.insertBefore(child, at);
    }
  }
}

/** A bar that is full to `part`, 0 to 1. */
export function bar() {
  const filled = h('span', { class: 'fill' });
  const node = h('span', { class: 'bar', role: 'meter', 'aria-valuemin': 0, 'aria-valuemax': 100 }, filled);
  return {
    node,
    show(part, label, text) {
      const percent = Math.round(Math.min(1, Math.max(0, part)) * 100);
      set(node, 'aria-label', label);
      set(node, 'aria-valuenow', percent);
      set(node, 'aria-valuetext', text);
      filled.style.inlineSize = `${percent}%`;
    },
  };
}

/** Short words beside a name. */
export function chips() {
  const node = h('span', { class: 'chips' });
  let shown = '';
  return {
    node,
    show(words) {
      const wanted = JSON.stringify(words);
      if (shown !== wanted) {
        shown = wanted;
        node.replaceChildren(...words.map(([text, look]) => h('span', { class: 'chip', 'data-look': look }, text)));
      }
    },
  };
}

/** What stands in place of `.changes` at an address that only shows. */
export function instead() {
  return h('p', { class: 'instead' }, 'This address only shows. Take numbers and make changes at the address for callers, ', h('code', {}, 'listen'), ' of the configuration.');
}
