// What is wrong, a sentence each, above all views.

import { SOON_MS, call, withQuery } from './api.js';
import { h, put } from './dom.js';
import { clock, duration } from './format.js';

/** Between two questions how long memory lasts, while a database is away. */
const BETWEEN_QUESTIONS_MS = 3000;
/** Pages of names that are looked at for the shortest reserve. */
const MOST_PAGES = 10;
const PAGE = 1000;

const isAway = (database) => !database.up && !database.went_back;

/** The names of the stores of which no database answers. */
export function storesAway(known) {
  const away = known.stores.filter(({ databases }) => databases.length > 0 && databases.every((database) => !database.up));
  return away.map((store) => store.name);
}

/** Asks memory now and then which numbers run out first; undefined while no store is away. */
export function shortestReserve() {
  let askedAt = 0;
  let found;
  return async (stores) => {
    if (stores.length === 0) {
      askedAt = 0;
      found = undefined;
    } else if (askedAt === 0 || performance.now() - askedAt >= BETWEEN_QUESTIONS_MS) {
      askedAt = performance.now();
      found = await shortest(stores);
    }
    return found;
  };
}

/** The sequence in use whose reserve is the shortest; null if these stores have none, undefined if too many were looked at to know. */
async function shortest(stores) {
  let found = null;
  let after = null;
  for (let n = 0; n < MOST_PAGES; n += 1) {
    const { sequences, next } = await call(withQuery('v1/replica/sequences', { sort: 'reserve', limit: PAGE, after }), { patience: SOON_MS });
    const inUse = sequences.find(({ retired, store, rate, reserve_seconds: seconds }) => (
      !retired && stores.includes(store) && rate > 0 && seconds !== null));
    if (inUse && (found === null || inUse.reserve_seconds < found.reserve_seconds)) {
      found = inUse;
    }
    if (next === null) {
      return found;
    }
    after = next;
  }
  return found ?? undefined;
}

/** What is wrong: the colour, the sentences, and where memory counts, how long it lasts. */
export function notesOf(seen) {
  const notes = [];
  const known = seen.replica;
  const meanwhile = known ? ' The page shows what it said last.' : '';
  if (seen.lostAt) {
    notes.push({ look: 'bad', text: `No connection to this replica since ${clock(seen.lostAt)}.${meanwhile}` });
  }
  if (seen.refusal) {
    notes.push({ look: 'bad', text: `This replica does not say how it is: ${seen.refusal}${meanwhile}` });
  }
  if (!known) {
    return notes;
  }
  if (known.version !== seen.version) {
    notes.push({ look: 'warn', text: `This page is of version ${seen.version}, but the replica is of version ${known.version}. Load the page again.` });
  }
  const databases = known.stores.flatMap((store) => store.databases);
  const away = databases.filter(isAway);
  if (away.length > 0) {
    notes.push(noteOfAway(known, away.map(({ database }) => database), seen.shortest));
  } else if (known.why) {
    notes.push({ look: 'bad', text: known.why });
  }
  for (const { database } of databases.filter((database) => database.went_back)) {
    notes.push({ look: 'bad', text: `The database ${database} went back to an earlier state. Nothing is reserved until you run odometer recover.` });
  }
  for (const { server } of known.stores.flatMap((store) => store.redis).filter((server) => !server.up)) {
    notes.push({ look: 'warn', text: `Redis ${server} does not answer. Sequences with strict order wait for it, or go on in the database if the configuration allows that.` });
  }
  return notes;
}

/** One note, however many databases are away. */
function noteOfAway(known, databases, shortest) {
  const who = databases.length === 1 ? `The database ${databases[0]} does not answer.` : `${databases.length} databases do not answer: ${databases.join(', ')}.`;
  const isServing = storesAway(known).length === 0;
  const text = known.ready ? who : `${known.why} ${who}`;
  if (isServing) {
    return { look: known.ready ? 'warn' : 'bad', text: `${text} The others of its store go on.` };
  }
  const rest = 'New names, changes and strict order wait for the database.';
  if (!known.ready) {
    return { look: 'bad', text: `${text} ${rest}` };
  }
  return { look: 'warn', text, left: leftOf(shortest), rest };
}

function leftOf(shortest) {
  if (shortest === undefined) {
    return '';
  }
  if (shortest === null) {
    return 'No sequence that is in use depends on it now.';
  }
  const { sequence, reserve_seconds: seconds } = shortest;
  return seconds > 0
    ? `Memory lasts for ${duration(seconds)}: “${sequence}” runs out first.`
    : `“${sequence}” has no number left in memory.`;
}

/** Makes the nodes of notes: the same node for the same sentence, so that it is read out once. */
export function noteNodes() {
  const shown = new Map();
  return (notes) => {
    if (shown.size > 50) {
      shown.clear();
    }
    return notes.map(({ look, text, left, rest }) => {
      const key = JSON.stringify([look, text, rest]);
      if (!shown.has(key)) {
        // The time changes all the while, and a listener has heard the sentence once.
        const time = h('strong', { class: 'time-left', 'aria-live': 'off' });
        shown.set(key, {
          time,
          node: h('p', { class: 'notice', 'data-look': look }, text, rest ? [' ', time, ' ', rest] : null),
        });
      }
      const { node, time } = shown.get(key);
      put(time, left);
      return node;
    });
  };
}
