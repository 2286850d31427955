// Which view is shown, how often it is refreshed, and what is said above all of them.

import { Refusal, SOON_MS, Unreachable, call } from './api.js';
import { creation } from './creation.js';
import { withToken } from './dialog.js';
import { arrange, put, set } from './dom.js';
import { ago, moment } from './format.js';
import { noteNodes, notesOf, shortestReserve, storesAway } from './notices.js';
import { overview } from './overview.js';
import { sequence } from './sequence.js';

const BETWEEN_LOOKS_MS = 1000;

const main = document.getElementById('main');
const notices = document.getElementById('notices');
const replica = document.getElementById('replica');
const status = document.getElementById('status');

/** What all views know of this replica; `version` is the one that this page came with. */
const seen = { replica: null, version: null, databaseUp: true, shortest: null, lostAt: null, refusal: null };
const askShortest = shortestReserve();
const noted = noteNodes();
let view = null;
let looking = false;
let lookAgain = false;
let declined = false;

function route() {
  const path = location.hash.replace(/^#\/?/, '');
  const [place, query = ''] = path.split('?');
  const parts = place.split('/').map(decoded);
  const period = new URLSearchParams(query).get('period') ?? '';
  if (parts[0] === 'sequences' && parts[1]) {
    return { title: parts[1], make: () => sequence(seen, parts[1], period, look) };
  }
  if (parts[0] === 'new') {
    return { title: 'New sequence', make: () => creation() };
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
    const options = { patience: SOON_MS };
    const known = await (declined ? call('v1/replica', options) : withToken(main, 'v1/replica', options));
    if (typeof known.holder !== 'string' || !Array.isArray(known.stores)) {
      throw new Unreachable('GET', 200);
    }
    seen.replica = known;
    set(document.body, 'data-shows-only', known.shows_only ? '' : null);
    seen.version ??= known.version;
    seen.databaseUp = known.stores.flatMap((store) => store.databases).some((database) => database.up);
    await Promise.all([
      current.refresh(),
      askShortest(storesAway(known)).then((shortest) => { seen.shortest = shortest; }),
    ]);
    heard(null);
  } catch (error) {
    // Who gives no token is not asked again at the next look.
    declined ||= error instanceof Refusal && error.status === 401;
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
  arrange(notices, noted(notesOf(seen)));
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
  return notesOf(seen).length === 0 ? ['good', 'Ready'] : ['warn', 'Ready'];
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
