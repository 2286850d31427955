// Which view is shown, how often it is refreshed, and what is said above all of them.

import { access } from './access.js';
import { Refusal, SOON_MS, Unreachable, call, tokenNow } from './api.js';
import { askCaller, lackedRights, mayLook } from './caller.js';
import { creation } from './creation.js';
import { dismiss } from './dialog.js';
import { arrange, put, set } from './dom.js';
import { ago, moment } from './format.js';
import { noteNodes, notesOf, shortestReserve, storesAway } from './notices.js';
import { overview } from './overview.js';
import { sequence } from './sequence.js';

const BETWEEN_LOOKS_MS = 1000;
/** While the page is shut, the time between two questions what its caller may do. */
const RIGHTS_INTERVAL_MS = 30000;
/**
 * The time between two such questions of a caller that the service does not know.
 * If the browser has a certificate, each of these refusals counts for an alert.
 */
const UNKNOWN_CALLER_INTERVAL_MS = 300000;

const main = document.getElementById('main');
const notices = document.getElementById('notices');
const replica = document.getElementById('replica');
const version = document.getElementById('version');
const who = document.getElementById('caller');
const status = document.getElementById('status');

/**
 * What all views know of this replica and of its caller; `version` is the one that this page came with.
 * `isShut` says that the service shows nothing to this caller.
 */
const seen = {
  replica: null, version: null, databaseUp: true, shortest: undefined, lostAt: null, refusal: null,
  caller: null, hasRoles: false, isShut: false,
};
const askShortest = shortestReserve();
const noted = noteNodes();
/** What stands in place of the view while the service shows nothing. */
const entrance = access(seen, look);
let view = null;
/** The title of the view. */
let title = '';
/** The name of the caller that the view was shown to last; null without roles. */
let shownTo = null;
/** When the page asked last who the caller is. */
let askedAt = 0;
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
  if (parts[0] === 'new') {
    return { title: 'New sequence', make: () => creation() };
  }
  if (parts[0] === 'me') {
    return { title: 'Who you are', make: () => access(seen, look) };
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
  title = wanted.title;
  showTitle();
  if (seen.isShut) {
    return;
  }
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

/** Not while nobody sees the page, and less often while the service would refuse it all again. */
function lookIfUseful() {
  const isInVain = seen.isShut && !seen.lostAt;
  const intervalMs = seen.caller === null ? UNKNOWN_CALLER_INTERVAL_MS : RIGHTS_INTERVAL_MS;
  if (!document.hidden && (!isInVain || performance.now() - askedAt >= intervalMs)) {
    look();
  }
}

async function lookOnce(current) {
  const { nChanges } = tokenNow();
  askedAt = performance.now();
  try {
    const isAllowed = await lookIfAllowed(current);
    heard(null);
    if (!isAllowed) {
      shut();
    }
  } catch (error) {
    if (tokenNow().nChanges !== nChanges) {
      // Without a token that was refused, there may still be something to see.
      lookAgain = true;
      return;
    }
    if (isRefusal(error, 401)) {
      heard(null);
      shut();
    } else {
      heard(error);
      if (!seen.lostAt && !seen.refusal) {
        current.refused(error);
      }
    }
  }
  showReplica();
}

/** Returns false if the service shows nothing to this caller. */
async function lookIfAllowed(current) {
  await askCaller(seen);
  if (!mayLook(seen.caller)) {
    // All the rest would be refused.
    return false;
  }
  try {
    await lookAtAll(current);
    return true;
  } catch (error) {
    if (seen.caller === null || !isRefusal(error, 403)) {
      throw error;
    }
    // The caller may have lost the right between the two calls.
    await askCaller(seen);
    return false;
  }
}

async function lookAtAll(current) {
  const known = await call('v1/replica', { patience: SOON_MS });
  if (typeof known.holder !== 'string' || !Array.isArray(known.stores)) {
    throw new Unreachable('GET', 200);
  }
  seen.replica = known;
  seen.version ??= known.version;
  seen.databaseUp = known.stores.flatMap((store) => store.databases).some((database) => database.up);
  open();
  showReplica();
  if (view !== current) {
    // The next look is at the new view.
    return;
  }
  await Promise.all([
    current.refresh(),
    askShortest(storesAway(known)).then((shortest) => { seen.shortest = shortest; }),
  ]);
}

function isRefusal(error, status) {
  return error instanceof Refusal && error.status === status;
}

/**
 * Puts the entrance in place of the view.
 * While the entrance is there, the document has nothing of the replica or of sequences.
 */
function shut() {
  const wasShut = seen.isShut;
  seen.isShut = true;
  seen.replica = null;
  seen.shortest = undefined;
  entrance.refresh();
  showRights();
  if (!wasShut) {
    dismiss();
    showTitle();
    main.replaceChildren(entrance.node);
    entrance.focus({ preventScroll: true });
  }
}

/** Puts the view back with all that was written there, or a new one if the caller is another. */
function open() {
  const wasShut = seen.isShut;
  const name = seen.caller?.caller ?? null;
  const isAnother = shownTo !== name;
  shownTo = name;
  seen.isShut = false;
  showRights();
  if (wasShut && isAnother) {
    show();
  } else if (wasShut) {
    showTitle();
    main.replaceChildren(view.node);
    main.focus({ preventScroll: true });
  }
}

function showTitle() {
  document.title = title && !seen.isShut ? `${title} · Odometer` : 'Odometer';
}

/** Says who calls, and has the style leave out what this caller cannot do here. */
function showRights() {
  const showsOnly = seen.replica?.shows_only === true;
  const lacked = showsOnly ? [] : lackedRights(seen.caller);
  set(document.body, 'data-shows-only', showsOnly ? '' : null);
  set(document.body, 'data-roles', seen.hasRoles ? '' : null);
  set(document.body, 'data-lacks', lacked.length === 0 ? null : lacked.join(' '));
  const name = seen.caller?.caller ?? null;
  who.hidden = name === null;
  put(who, name);
  set(who, 'aria-label', name === null ? null : `You are ${name}`);
}

/** What the last look ended with: null where all was answered. */
function heard(error) {
  seen.lostAt = error instanceof Unreachable ? seen.lostAt ?? new Date() : null;
  seen.refusal = error instanceof Refusal ? error.message : null;
}

function showReplica() {
  const known = seen.replica;
  put(replica, known?.holder);
  set(replica, 'title', known && `This replica, as the journal calls it; up since ${moment(known.started)}`);
  put(version, known && `Odometer ${known.version} · replica ${known.holder} · up since ${moment(known.started)} (${ago(known.started).replace(' ago', '')})`);
  const [state, word] = standing(known);
  set(status, 'data-state', state);
  put(status, word);
  arrange(notices, noted(seen.isShut && !seen.lostAt ? [] : notesOf(seen)));
}

function standing(known) {
  if (seen.lostAt) {
    return ['bad', 'No connection'];
  }
  if (seen.isShut) {
    return ['wait', 'Token needed'];
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
document.addEventListener('visibilitychange', lookIfUseful);
setInterval(lookIfUseful, BETWEEN_LOOKS_MS);
show();
