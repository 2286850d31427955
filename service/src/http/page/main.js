// Which view is shown, how often it is refreshed, and what is said above all of them.

import { Refusal, SOON_MS, Unreachable, call } from './api.js';
import { arrange, h, put, set } from './dom.js';
import { ago, clock, moment } from './format.js';
import { overview } from './overview.js';
import { sequence } from './sequence.js';

const BETWEEN_LOOKS_MS = 1000;

const main = document.getElementById('main');
const notices = document.getElementById('notices');
const replica = document.getElementById('replica');
const status = document.getElementById('status');

/** What all views know of this replica; `version` is the one that this page came with. */
const seen = { replica: null, version: null, databaseUp: true, lostAt: null, refusal: null };
let view = null;
let looking = false;
let lookAgain = false;

function route() {
  const path = location.hash.replace(/^#\/?/, '');
  const [place, query = ''] = path.split('?');
  const parts = place.split('/').map(decoded);
  const period = new URLSearchParams(query).get('period') ?? '';
  if (parts[0] === 'sequences' && parts[1]) {
    return { title: parts[1], make: () => sequence(seen, parts[1], period, look) };
  }
  return { title: '', make: () => overview(seen, look) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const wanted = route();
  const isFirst = view === null;
  view?.stop?.();
  view = wanted.make();
  document.title = wanted.title ? `${wanted.title} · Odometer` : 'Odometer';
  main.replaceChildren(view.node);
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  look();
}

/** Asks for everything that is on the page, once at a time. */
async function look() {
  if (looking) {
    lookAgain = true;
    return;
  }
  looking = true;
  try {
    do {
      lookAgain = false;
      await lookOnce(view);
    } while (lookAgain);
  } finally {
    looking = false;
  }
}

async function lookOnce(current) {
  try {
    const known = await call('v1/replica', { patience: SOON_MS });
    if (typeof known.holder !== 'string' || !Array.isArray(known.stores)) {
      throw new Unreachable('GET', 200);
    }
    seen.replica = known;
    seen.version ??= known.version;
    seen.databaseUp = known.stores.flatMap((store) => store.databases).some((database) => database.up);
    await current.refresh();
    heard(null);
  } catch (error) {
    heard(error);
    if (!seen.lostAt && !seen.refusal) {
      current.refused(error);
    }
  }
  showReplica();
}

/** What the last look ended with: null where all was answered. */
function heard(error) {
  seen.lostAt = error instanceof Unreachable ? seen.lostAt ?? new Date() : null;
  seen.refusal = error instanceof Refusal ? error.message : null;
}

function showReplica() {
  const known = seen.replica;
  if (known) {
    put(replica, known.holder);
    set(replica, 'title', `This replica, as the journal calls it; up since ${moment(known.started)}`);
    put(document.getElementById('version'), `Odometer ${known.version} · replica ${known.holder} · up since ${moment(known.started)} (${ago(known.started).replace(' ago', '')})`);
  }
  const [state, word] = standing(known);
  set(status, 'data-state', state);
  put(status, word);
  arrange(notices, notesOf(known).map(noteOf));
}

function standing(known) {
  if (seen.lostAt) {
    return ['bad', 'No connection'];
  }
  if (seen.refusal) {
    return ['bad', 'Not known'];
  }
  if (!known) {
    return ['wait', 'Connecting'];
  }
  if (!known.ready) {
    return ['bad', 'Not ready'];
  }
  return notesOf(known).length === 0 ? ['good', 'Ready'] : ['warn', 'Ready'];
}

/** What is wrong, a sentence each. */
function notesOf(known) {
  const notes = [];
  if (seen.lostAt) {
    notes.push(['bad', `No connection to this replica since ${clock(seen.lostAt)}. What is shown is what it said last.`]);
  }
  if (seen.refusal) {
    notes.push(['bad', `This replica does not say how it is: ${seen.refusal} What is shown is what it said last.`]);
  }
  if (!known) {
    return notes;
  }
  if (known.version !== seen.version) {
    notes.push(['warn', `This page is of version ${seen.version}, the replica of ${known.version}: load the page again.`]);
  }
  if (known.why) {
    notes.push(['bad', known.why]);
  }
  for (const store of known.stores) {
    for (const database of store.databases) {
      if (database.went_back) {
        notes.push(['bad', `The database ${database.database} went back to an earlier state: nothing is reserved until odometer recover has run.`]);
      } else if (!database.up) {
        notes.push(['warn', `The database ${database.database} does not answer. ${consequence(store)}`]);
      }
    }
    for (const server of store.redis.filter((server) => !server.up)) {
      notes.push(['warn', `Redis ${server.server} does not answer: sequences with strict order wait for it, or go on in the database where that is allowed.`]);
    }
  }
  return notes;
}

function consequence(store) {
  const isAlone = store.databases.every((database) => !database.up);
  return isAlone ? 'What is in memory is still issued; new names and changes have to wait.' : 'The others of its store go on.';
}

const shownNotes = new Map();

/** The same node for the same sentence, so that it is read out once. */
function noteOf([look, text]) {
  if (!shownNotes.has(text)) {
    if (shownNotes.size > 50) {
      shownNotes.clear();
    }
    shownNotes.set(text, h('p', { class: 'notice', 'data-look': look }, text));
  }
  return shownNotes.get(text);
}

const THEMES = ['auto', 'light', 'dark'];

function theme(wanted) {
  const chosen = THEMES.includes(wanted) ? wanted : 'auto';
  set(document.documentElement, 'data-theme', chosen === 'auto' ? null : chosen);
  const button = document.getElementById('theme');
  put(button, { auto: '◐', light: '☀', dark: '☾' }[chosen]);
  set(button, 'aria-label', `Colours: ${chosen === 'auto' ? 'as the system has them' : chosen}. Change.`);
  set(button, 'title', `Colours: ${chosen}`);
  return chosen;
}

function remembered() {
  try {
    return localStorage.getItem('odometer-theme');
  } catch {
    return null;
  }
}

let chosen = theme(remembered());
document.getElementById('theme').addEventListener('click', () => {
  chosen = theme(THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length]);
  try {
    localStorage.setItem('odometer-theme', chosen);
  } catch {
    // A browser that keeps nothing forgets it with the page.
  }
});
addEventListener('hashchange', show);
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener('visibilitychange', () => document.hidden || look());
setInterval(() => document.hidden || look(), BETWEEN_LOOKS_MS);
show();
