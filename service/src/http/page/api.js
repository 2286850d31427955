// Calls of the service that the page came from, and of no other one.

/** Longer than the service lets any caller wait. */
const PATIENCE_MS = 15000;

/** The administrator's token: here and nowhere else, gone when the page is closed. */
let token = null;

/** The service said no, in its own words. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `The service answered with status ${status}.`);
    this.status = status;
    this.code = problem?.code ?? '';
  }
}

/** The service did not answer. */
export class Unreachable extends Error {
  constructor() {
    super('This replica does not answer. Whether the call was carried out is not known.');
  }
}

export function useToken(given) {
  token = given || null;
}

/** Reads what is at `path`, or sends `body` there. */
export async function call(path, { method = 'GET', body, patience = PATIENCE_MS } = {}) {
  const headers = { Accept: 'application/json' };
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json';
  }
  if (token !== null && method !== 'GET') {
    headers.Authorization = `Bearer ${token}`;
  }
  let response;
  let text;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      signal: AbortSignal.timeout(patience),
    });
    text = await response.text();
  } catch {
    throw new Unreachable();
  }
  const answer = parsed(text);
  if (!response.ok) {
    throw new Refusal(response.status, answer);
  }
  return answer;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
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
