// Where things are on the page, and what the service itself says.

/** What the browser says of an answer. */
export const answered = (status, path) => new RegExp(`status of ${status}.*${path}`);

export async function api(base, path, options = {}) {
  const response = await fetch(`${base}/v1/${path}`, options);
  return response.json();
}

export const describe = (base, name) => api(base, `sequences/${name}`);
export const next = (base, name) => api(base, `sequences/${name}/next`, { method: 'POST' });
export const row = (page, name) => page.locator('table.live tbody tr').filter({ has: page.getByRole('link', { name, exact: true }) });
export const tile = (page, name) => page.locator('.tiles > div').filter({ has: page.getByText(name, { exact: true }) }).locator('dd');
export const names = (page) => page.locator('table.live tbody th a').allTextContents();
export const problem = (code, detail) => ({ contentType: 'application/problem+json', body: JSON.stringify({ code, detail }) });

const places = new Map();

/** Calls of exactly this path: the same function each time, as `unroute` needs it. */
export function at(path) {
  if (!places.has(path)) {
    places.set(path, (url) => url.pathname === `/v1/${path}`);
  }
  return places.get(path);
}

/** Waits until the page has looked anew so often, from now on. */
export async function looks(page, n) {
  for (let seen = 0; seen < n; seen += 1) {
    await page.waitForResponse((response) => at('replica')(new URL(response.url())));
  }
}

/** Has calls of a path wait until they are let go. */
export async function hold(page, where) {
  const held = [];
  await page.route(where, (route) => { held.push(route); });
  return held;
}
