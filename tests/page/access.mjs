// A service with roles: what a page without a token shows, and what it offers to each role.
import { Window, check, focusIsSeen, leaks, tooPale, tooWide, until } from './browser.mjs';
import { answered, looks, row } from './places.mjs';

const ADMIN = 'a-token-of-the-test';
export const tokenOf = (caller) => `odo_${caller.padEnd(43, '0')}`;

const REFUSED = 'The service does not accept this token: it is wrong, has expired, or was withdrawn.';
const CHANGES = ['Take a number', 'Raise…', 'Retire…'];

const field = (page) => page.getByRole('region', { name: 'Token' }).getByLabel('Token', { exact: true });
export const entrance = (page) => page.getByRole('heading', { level: 1, name: 'This service needs a token' });
export const status = (page) => page.locator('#status').textContent();
export const caller = (page) => page.locator('#caller');
const fact = (page, name) => page.getByRole('region', { name: 'You' }).locator('.facts > div').filter({ has: page.getByText(name, { exact: true }) }).locator('dd');

export async function give(page, token) {
  await field(page).fill(token);
  await page.getByRole('button', { name: 'Use this token' }).click();
}

export async function isOffered(page, name) {
  return page.getByRole('button', { name, exact: true }).isVisible();
}

/** Notes each request, and its token. */
export function noteCalls(page) {
  const calls = [];
  page.on('request', (request) => calls.push({ url: request.url(), token: request.headers().authorization }));
  return calls;
}

const ofService = ({ url }) => new URL(url).pathname.startsWith('/v1/');

/** Reads are refused without a token. `report` may only look, `billing` may only take, and `asked` withdraws the token of `report`. */
export async function roles(browser, base, asked) {
  const window = await Window.open(browser, base);
  await entering(window);
  await reading(window, base);
  await changing(window, base);
  await lacking(window);
  await patient(browser, base);
  await looksOfEntrance(browser, base);
  await withdrawn(window, base, asked);
  await window.close();
}

async function entering(window) {
  await window.step('without a token there is a field for one, and no error', async (page) => {
    await entrance(page).waitFor();
    await page.getByText(/^Give the token of a caller whose role has the right to look/).waitFor();
    check((await status(page)) === 'Token needed', await status(page));
    check((await page.locator('#notices').textContent()) === '', 'it is said as a fault');
    check((await page.locator('.error').filter({ hasText: /./ }).count()) === 0, 'there is an error');
    check((await page.getByRole('dialog').count()) === 0, 'a dialog is open');
    check((await field(page).getAttribute('autocomplete')) === 'new-password', 'a browser may fill it in');
    check(await field(page).evaluate((node) => node === document.activeElement), 'the keyboard is elsewhere');
    check(!(await caller(page).isVisible()), 'somebody is named');
  }, [answered(401, 'v1/me')]);
  await window.step('a wrong token is called wrong, and shown no more', async (page) => {
    const calls = noteCalls(page);
    await give(page, 'a tökén — ☃');
    await page.getByText(/^A token is of letters, digits and signs of ASCII\.$/).waitFor();
    check(calls.length === 0, 'it was sent');
    await give(page, 'wrong');
    await page.getByText(REFUSED, { exact: true }).waitFor();
    check((await field(page).inputValue()) === '', 'it is still in its field');
    check(calls.length === 1, `it was sent ${calls.length} times`);
    await entrance(page).waitFor();
  }, [answered(401, 'v1/me')]);
}

async function reading(window, base) {
  const token = tokenOf('report');
  await window.step('a right token opens the page, and goes with every call', async (page) => {
    const calls = noteCalls(page);
    await field(page).fill(token);
    await page.keyboard.press('Enter');
    await row(page, 'orders').waitFor();
    await page.locator('.resting a', { hasText: 'imports' }).waitFor();
    await until('it is called ready', async () => (await status(page)) === 'Ready');
    await page.goto(`${base}/#/sequences/orders`);
    await page.getByText('All fields have their default values.').waitFor();
    await page.getByLabel('A number, as it was printed').fill('1');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('.fate').waitFor();
    check(calls.filter(ofService).length > 5, 'vacuous: hardly a call');
    const wrong = calls.filter((one) => one.token !== (ofService(one) ? `Bearer ${token}` : undefined));
    check(wrong.length === 0, `without the token, or with it for no reason: ${wrong.map(({ url }) => url)}`);
    check(calls.every(({ url }) => !url.includes(token)), 'the token is in the address of a call');
    const found = await leaks(page, token);
    check(found.length === 0, `the token is in ${found}`);
  });
  await window.step('who may only look is offered nothing else', async (page) => {
    await page.getByText('You cannot take numbers here: your role has no right take.').waitFor();
    await page.getByText('You cannot create or change sequences here: your role has no right define.').waitFor();
    for (const name of CHANGES) {
      check(!(await isOffered(page, name)), name);
    }
    await page.goto(`${base}/#/new`);
    await page.getByText('You cannot create or change sequences here').waitFor();
    check(!(await isOffered(page, 'Check and create…')), 'it can be created');
    await page.goto(`${base}/#/sequences/ordrs`);
    await page.getByText('There is no sequence “ordrs”.').waitFor();
    check(!(await page.getByRole('link', { name: 'create a new sequence' }).isVisible()), 'it leads to a new sequence');
    await page.goto(`${base}/#/`);
    await row(page, 'orders').waitFor();
    check(!(await isOffered(page, 'New sequence')), 'there is a button for a new sequence');
    check(!(await page.getByRole('link', { name: 'Metrics' }).isVisible()), 'there is a link that shows no token');
  }, [answered(404, 'sequences/ordrs')]);
  await window.step('the page says who you are', async (page) => {
    check((await caller(page).textContent()) === 'report', await caller(page).textContent());
    await page.getByRole('link', { name: 'You are report' }).click();
    await page.getByText('You are report, with the role reader.', { exact: true }).waitFor();
    for (const [name, value] of [['Look', 'All names'], ['Take numbers', 'None'], ['Numbers a second', 'No bound'], ['Share in one call', '1%']]) {
      check((await fact(page, name).textContent()) === value, `${name}: ${await fact(page, name).textContent()}`);
    }
    check((await page.title()) === 'Who you are · Odometer', await page.title());
  });
}

async function changing(window, base) {
  await window.step('another token takes the place of the first, unless it is wrong', async (page) => {
    await give(page, 'wrong');
    await page.getByText(REFUSED, { exact: true }).waitFor();
    await looks(page, 2);
    check((await caller(page).textContent()) === 'report', 'the first token is shown no more');
    await give(page, ADMIN);
    await page.getByText('You are administrator, and may do everything.', { exact: true }).waitFor();
    await until('it is called wrong no more', async () => (await page.getByText(REFUSED).count()) === 0);
    check((await fact(page, 'Define and change').textContent()) === 'All names', 'what an administrator may do');
    await page.goto(`${base}/#/sequences/orders`);
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.number-taken').waitFor();
    for (const name of CHANGES) {
      check(await isOffered(page, name), name);
    }
    check(!(await page.getByText(/^You cannot/).first().isVisible()), 'it says that something cannot be done');
  }, [answered(401, 'v1/me')]);
}

/** The page is loaded again, which forgets the token. */
async function lacking(window) {
  await window.step('a role that may not look learns what it may do', async (page) => {
    await page.reload();
    await give(page, tokenOf('billing'));
    await page.getByText('Your role has no right to look at all names, which this page needs.').waitFor();
    await entrance(page).waitFor();
    check((await caller(page).textContent()) === 'billing', await caller(page).textContent());
    for (const [name, value] of [['Look', 'None'], ['Take numbers', 'orders, invoice-*'], ['Numbers a second', '5,000'], ['Names and keys', 'No bound']]) {
      check((await fact(page, name).textContent()) === value, `${name}: ${await fact(page, name).textContent()}`);
    }
    await give(page, tokenOf('report'));
    await page.getByText('All fields have their default values.').waitFor();
    check((await entrance(page).count()) === 0, 'the entrance is still there');
  }, [answered(401, 'v1/me')]);
}

/** With a clock of its own, which the test turns. */
async function patient(browser, base) {
  const window = await Window.open(browser, base);
  await window.step('who gets known without a token is shown the page', async (page) => {
    await page.clock.install();
    await page.reload();
    await entrance(page).waitFor();
    // The page learns nothing of a certificate, and nothing of this token.
    const isOfService = (url) => url.pathname.startsWith('/v1/');
    await page.route(isOfService, (route) => route.continue({
      headers: { ...route.request().headers(), authorization: `Bearer ${tokenOf('report')}` },
    }));
    await window.turn(310);
    await row(page, 'orders').waitFor();
    await page.unroute(isOfService);
    await entrance(page).waitFor();
  // Calls that were under way together are refused together.
  }, [answered(401, 'v1/me')], [/status of 401/]);
  await window.step('who gives no token is not refused each second', async (page) => {
    await page.reload();
    await entrance(page).waitFor();
    const calls = noteCalls(page);
    await window.turn(60);
    check(calls.length === 0, `it asked ${calls.length} times`);
    await window.turn(250);
    await until('it asks once more', () => calls.length > 0);
    check(calls.length === 1, `it asked ${calls.length} times in five minutes`);
    await give(page, tokenOf('report'));
    await until('it looks', () => calls.filter(ofService).length > 1);
    await row(page, 'orders').waitFor();
    const nBefore = calls.length;
    await window.turn(3);
    await until('it looks each second', () => calls.length > nBefore + 1);
  }, [answered(401, 'v1/me')]);
  await window.close();
}

async function looksOfEntrance(browser, base) {
  for (const colorScheme of ['light', 'dark']) {
    const small = await Window.open(browser, base, { viewport: { width: 375, height: 812 }, colorScheme, isMobile: true, hasTouch: true });
    await small.step(`the entrance fits 375 pixels, ${colorScheme}`, async (page) => {
      await entrance(page).waitFor();
      await fits(page, 'the entrance');
      await page.keyboard.press('Tab');
      check(await focusIsSeen(page), 'nothing shows where the keyboard is');
      await give(page, 'wrong');
      await page.getByText(REFUSED, { exact: true }).waitFor();
      await fits(page, 'a wrong token');
      await give(page, tokenOf('billing'));
      await page.getByText('You are billing, with the role biller.', { exact: true }).waitFor();
      await fits(page, 'a role that may not look');
      await give(page, tokenOf('report'));
      await row(page, 'orders').waitFor();
      await fits(page, 'the list');
      await caller(page).tap();
      await page.getByText('You are report, with the role reader.', { exact: true }).waitFor();
      await fits(page, 'who you are');
      await page.goto(`${base}/#/sequences/orders`);
      await page.getByText('You cannot take numbers here').waitFor();
      await fits(page, 'what cannot be done');
    }, [answered(401, 'v1/me')]);
    await small.close();
  }
}

async function fits(page, what) {
  const [wide, pale] = [await tooWide(page), await tooPale(page)];
  check(wide.length === 0 && pale.length === 0, `${what}: ${wide}; ${pale}`);
}

async function withdrawn(window, base, asked) {
  await window.step('before it is withdrawn, the token is right', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    await page.getByLabel('A number, as it was printed').fill('1');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('.fate').waitFor();
    await page.getByLabel('A number, as it was printed').fill('half-written');
  });
  const calls = noteCalls(window.page);
  await asked('the token withdrawn');
  await window.step('a token that was withdrawn is said to be, and shown no more', async (page) => {
    await entrance(page).waitFor();
    await page.getByText('The service refused the token that you gave. The page sends none now.').waitFor();
    check(!(await page.getByRole('heading', { name: 'orders' }).isVisible()), 'what was seen is still there');
    // Calls that were under way together are refused together.
    const nBefore = calls.filter(({ token }) => token !== undefined).length;
    await give(page, ADMIN);
    await page.getByRole('heading', { level: 1, name: 'orders' }).waitFor();
    // For the same caller it all stays: see `rights.mjs`.
    check((await page.getByLabel('A number, as it was printed').inputValue()) === '', 'what another caller wrote is there');
    check((await page.locator('.fate').count()) === 0, 'what another caller was told is there');
    await page.getByRole('button', { name: 'Take a number' }).waitFor();
    const later = calls.filter(({ token }) => token !== undefined).slice(nBefore);
    check(later.length > 0 && later.every(({ token }) => token === `Bearer ${ADMIN}`), 'the old token was shown again');
  }, [/status of 401/]);
}

/** Calls without a token may look, and there is no sequence. */
export async function anonymous(browser, base) {
  const window = await Window.open(browser, base);
  await window.step('who needs no token to look is not asked for one', async (page) => {
    await page.getByRole('region', { name: 'There is no sequence yet' }).waitFor();
    check((await caller(page).textContent()) === 'anonymous', await caller(page).textContent());
    check(!(await isOffered(page, 'Create a sequence')), 'there is a button for a new sequence');
    check(!(await page.getByText(/^Take the first number/).isVisible()), 'there is a call that is refused');
    check((await entrance(page).count()) === 0, 'it asks for a token');
  });
  await window.step('a token opens more', async (page) => {
    await caller(page).click();
    await page.getByText('The page sends no token.', { exact: true }).waitFor();
    await give(page, ADMIN);
    await page.getByText('The page sends the token that you gave.', { exact: true }).waitFor();
    await page.getByText('You are administrator, and may do everything.', { exact: true }).waitFor();
    await page.goto(`${base}/#/`);
    await page.getByText('The call needs a token, too').waitFor();
    await page.getByRole('button', { name: 'Create a sequence' }).click();
    await page.getByLabel('Name', { exact: true }).fill('invoices');
    await page.getByRole('button', { name: 'Check and create…' }).click();
    await page.getByRole('dialog', { name: 'Create invoices?' }).getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'invoices' }).waitFor();
  });
  await window.close();
}
