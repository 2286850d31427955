// Rows for things with names.

import { arrange } from './dom.js';

/** A place for things with names, whose nodes are kept and only written over, so that focus and selection stay. */
export function kept(parent, make) {
  const nodes = new Map();
  return (things) => {
    const present = things.map((thing) => {
      if (!nodes.has(thing.sequence)) {
        nodes.set(thing.sequence, make(thing.sequence));
      }
      const found = nodes.get(thing.sequence);
      found.show(thing);
      return found.node;
    });
    const names = new Set(things.map((thing) => thing.sequence));
    for (const name of nodes.keys()) {
      if (!names.has(name)) {
        nodes.delete(name);
      }
    }
    arrange(parent, present);
  };
}
