// Calls of the service that the page came from, and of no other one.

/** Longer than the service lets any caller wait. */
const PATIENCE_MS = 15000;

/** For what memory knows: it comes at once, or the replica is not there. */
export const SOON_MS = 4000;

/** The token that calls show: here and nowhere else, gone when the page is closed. */
let token = null;
/** How often another token, or none, took its place. */
let nChanges = 0;
/** Whether the last token is shown no more because the service refused it. */
let isRefused = false;

/** The service said no, in its own words. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `The service answered with status ${status}.`);
    this.status = status;
    this.code = problem?.code ?? '';
    this.suggestions = problem?.suggestions ?? [];
  }
}

/** The service did not answer, or something else did in its place. */
export class Unreachable extends Error {
  constructor(method, status = null) {
    const said = status === null ? 'This replica does not answer.' : `This replica does not answer: something before it did, with status ${status}.`;
    super(method === 'GET' ? said : `${said} Whether the call was carried out is not known.`);
  }
}

/** Whatever is neither a no of the service nor its silence is a fault of the page, which the console hears of. */
export function report(error) {
  if (!(error instanceof Refusal || error instanceof Unreachable)) {
    console.error(error);
  }
}

/** Has all calls from now on show this token. */
export function useToken(given) {
  replaceToken(given, false);
}

function replaceToken(given, isRefusedNow) {
  token = given;
  nChanges += 1;
  isRefused = isRefusedNow;
}

/** What the page knows of the token: how often it changed, whether calls show one, and whether the last one was refused. */
export function tokenNow() {
  return { nChanges, isShown: token !== null, isRefused };
}

/** Whether a token can be sent: headers of HTTP are of these characters. */
export function canBeSent(given) {
  return /^[\x20-\x7e]+$/.test(given);
}

/**
 * Reads what is at `path`, or sends `body` there, and shows the token if one was given.
 * A token that is refused is shown no more: wrong tokens are counted, and the page looks each second.
 */
export async function call(path, { method = 'GET', body, headers: given = {}, patience = PATIENCE_MS, token: shown = token } = {}) {
  const headers = { Accept: 'application/json', ...given };
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json';
  }
  if (shown !== null) {
    headers.Authorization = `Bearer ${shown}`;
  }
  // Made here, so that what is wrong with it is not taken for a silent replica.
  const request = new Request(path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: 'no-store',
    signal: AbortSignal.timeout(patience),
  });
  let response;
  let text;
  try {
    response = await fetch(request);
    text = await response.text();
  } catch (error) {
    throw isSilence(error) ? new Unreachable(method) : error;
  }
  if (response.status === 204) {
    return null;
  }
  const answer = parsed(text);
  if (response.ok ? answer === null : typeof answer?.code !== 'string') {
    // The service answers in JSON, and says no with a code.
    throw new Unreachable(method, response.status);
  }
  if (!response.ok) {
    if (response.status === 401 && shown !== null && shown === token) {
      replaceToken(null, true);
    }
    throw new Refusal(response.status, answer);
  }
  return answer;
}

/** What `fetch` throws where the network fails or the time is over. */
function isSilence(error) {
  return error instanceof TypeError || (error instanceof DOMException && ['AbortError', 'NetworkError', 'TimeoutError'].includes(error.name));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Where the page asks what a new sequence should be. */
export const CREATION = '#/new';

/** Where the page says who the caller is. */
export const CALLER = '#/me';

/** Where the guide is. */
export const GUIDE = 'docs/';

/** Where the page shows a sequence. */
export function linkTo(name, period = '') {
  return withQuery(`#/sequences/${encodeURIComponent(name)}`, { period });
}

/** The path of a sequence, with what follows its name. */
export function pathOf(name, rest = '', query = {}) {
  return withQuery(`v1/sequences/${encodeURIComponent(name)}${rest}`, query);
}

/** A path with those parameters that have a value. */
export function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}
