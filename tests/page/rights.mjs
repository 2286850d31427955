// An open page, while its caller gets other rights and another name, and is known no more.
import { Window, check, remains, until } from './browser.mjs';
import { caller, entrance, give, isOffered, noteCalls, status, tokenOf } from './access.mjs';
import { answered, api, at, problem } from './places.mjs';

const button = (page, name) => page.getByRole('button', { name, exact: true });
const lacksTake = (page) => page.getByText('You cannot take numbers here: your role has no right take.');
const lacksDefine = (page) => page.getByText('You cannot create or change sequences here: your role has no right define.');

/** What an open page has of the sequence: name, description, a number, and charts. */
const OF_SEQUENCE = ['cheques', 'Paper of the bank', '770001', 'class="drawing"'];

/** `desk` may only look at first. `asked` changes its rights and its name, and ends its token. */
export async function rights(browser, base, asked) {
  const window = await Window.open(browser, base);
  // Its clock goes on by itself, until the test turns it.
  await window.page.clock.install();
  await window.page.reload();
  await following(window, base, asked);
  await creating(window, base, asked);
  await racing(window, base, asked);
  const words = await shutting(window, asked);
  await losing(window);
  await opening(window, asked);
  await ending(window, asked, words);
  await window.close();
}

async function following(window, base, asked) {
  await window.step('rights that are gained are offered', async (page) => {
    await give(page, tokenOf('desk'));
    await page.goto(`${base}/#/sequences/cheques`);
    await lacksTake(page).waitFor();
    await lacksDefine(page).waitFor();
    check(!(await isOffered(page, 'Take a number')), 'it is offered before');
    await asked('more rights');
    await button(page, 'Take a number').waitFor();
    await button(page, 'Retire…').waitFor();
    check(!(await lacksTake(page).isVisible()), 'it is said to be lacking');
  }, [answered(401, 'v1/me')]);
  await window.step('a caller with another name is called by it', async (page) => {
    check((await caller(page).textContent()) === 'desk', await caller(page).textContent());
    await asked('another name');
    await until('it is called by its name', async () => (await caller(page).textContent()) === 'counter');
  });
  await window.step('rights that are lost are not offered', async (page) => {
    await asked('fewer rights');
    await lacksTake(page).waitFor();
    await lacksDefine(page).waitFor();
    check(!(await isOffered(page, 'Take a number')) && !(await isOffered(page, 'Retire…')), 'it is still offered');
  });
}

/** Turns the clock until the page is open again. */
async function opened(window, heading) {
  await until('it is open', async () => {
    await window.turn(10);
    return window.page.getByRole('heading', { level: 1, name: heading }).isVisible();
  });
}

async function creating(window, base, asked) {
  await window.step('what is answered after the page was shut is not shown', async (page) => {
    const field = page.getByLabel('Name', { exact: true });
    const question = page.getByRole('dialog', { name: 'Create receipts?' });
    await asked('more rights');
    await page.goto(`${base}/#/new`);
    await field.fill('receipts');
    await button(page, 'Check and create…').click();
    // While the page is open, the same answer leads to a question.
    await question.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Not created.').waitFor();
    const held = [];
    await page.route(at('sequences/receipts'), async (route) => { held.push([route, await route.fetch()]); });
    const create = await button(page, 'Check and create…').elementHandle();
    await create.click();
    await until('the answer is held back', () => held.length === 1);
    await asked('no right to look');
    await entrance(page).waitFor();
    const [[route, response]] = held;
    check(response.status() === 200, `vacuous: the answer is ${response.status()}`);
    await route.fulfill({ response });
    await until('the answer has come', async () => (await create.getAttribute('aria-disabled')) === null);
    check((await page.getByRole('dialog').count()) === 0, 'a dialog is open');
    await page.unroute(at('sequences/receipts'));
    await asked('more rights');
    await opened(window, 'New sequence');
    check((await field.inputValue()) === 'receipts', 'what the same caller wrote is lost');
  }, [], [/status of 403/]);
}

/** The page asks for its caller and then for the replica, which are two calls. */
async function racing(window, base, asked) {
  await window.step('a right that is lost between two calls is not shown', async (page) => {
    await page.goto(`${base}/#/sequences/cheques`);
    await button(page, 'Take a number').waitFor();
    const headers = { Authorization: `Bearer ${tokenOf('desk')}` };
    const before = await api(base, 'me', { headers });
    // Until the replica refuses it, the page gets the answer of before the change.
    let isRefused = false;
    await page.route(at('me'), (route) => (isRefused ? route.continue() : route.fulfill({ json: before })));
    await page.route(at('replica'), async (route) => {
      const response = await route.fetch();
      isRefused = response.status() === 403;
      await route.fulfill({ response });
    });
    await asked('no right to look');
    await page.getByText('You are desk, with the role biller.', { exact: true }).waitFor();
    await page.unroute(at('me'));
    await page.unroute(at('replica'));
    await page.getByText('Your role has no right to look at all names, which this page needs.').waitFor();
    await asked('more rights');
    await opened(window, 'cheques');
  }, [answered(403, 'v1/replica')], [/status of 403/]);
  await window.step('a caller that may look is not shut out for good by one refusal', async (page) => {
    const refusal = { status: 403, ...problem('forbidden', 'Another replica does not know the right yet.') };
    await page.route(at('replica'), (route) => route.fulfill(refusal), { times: 1 });
    await page.getByText(/^The service showed nothing, although your role has the right/).waitFor();
    await page.getByText('You are desk, with the role operator.', { exact: true }).waitFor();
    await opened(window, 'cheques');
  }, [answered(403, 'v1/replica')]);
}

/** Returns the words that were on the page while it was open. */
async function shutting(window, asked) {
  let words = [];
  await window.step('nothing remains for a caller that may look no more', async (page) => {
    await button(page, 'Take a number').click();
    await page.locator('.number-taken').getByText('770001', { exact: true }).waitFor();
    await page.getByLabel('A number, as it was printed').fill('half-written');
    await button(page, 'Retire…').click();
    await page.getByRole('dialog', { name: 'Retire cheques?' }).waitFor();
    words = [...OF_SEQUENCE, await page.locator('#replica').textContent(), 'Retire cheques?', '<dialog'];
    const before = await remains(page, words);
    check(before.length === words.length, `vacuous: of ${words} only ${before} are there`);
    await asked('no right to look');
    await entrance(page).waitFor();
    await page.getByText('You are desk, with the role biller.', { exact: true }).waitFor();
    await hasNothing(page, words);
  // Calls that were under way are refused.
  }, [], [/status of 403/]);
  return words;
}

async function hasNothing(page, words) {
  await until('the service is said to need a token', async () => (await status(page)) === 'Token needed');
  const found = await remains(page, words);
  check(found.length === 0, `still in the document: ${found}`);
  check((await page.title()) === 'Odometer', await page.title());
}

/** While the page is open, it goes on to show what it knows, and says so: see `outage.mjs`. */
async function losing(window) {
  await window.step('a page that is shut does not say that it shows something', async (page) => {
    await page.route(at('me'), (route) => route.abort());
    await window.turn(31);
    await until('the loss is said', async () => (await status(page)) === 'No connection');
    const said = await page.locator('#notices').textContent();
    check(/^No connection to this replica since \d\d:\d\d:\d\d UTC\.$/.test(said), said);
    await page.unroute(at('me'));
    await until('the loss is over', async () => (await status(page)) === 'Token needed');
  }, [/net::ERR_FAILED/]);
}

async function opening(window, asked) {
  await window.step('who may look again is shown it within 30 seconds', async (page) => {
    const calls = noteCalls(page);
    const n = (path) => calls.filter(({ url }) => at(path)(new URL(url))).length;
    await window.turn(31);
    await until('it asks for its rights', () => n('me') > 0);
    await window.turn(25);
    check(n('me') <= 2, `it asked ${n('me')} times in a minute`);
    check(calls.length === n('me'), 'it asked for what is refused');
    check(await entrance(page).isVisible(), 'it is open before');
    await asked('more rights');
    await opened(window, 'cheques');
    await button(page, 'Take a number').waitFor();
    await until('it is called ready', async () => (await status(page)) === 'Ready');
    await page.getByText('Not retired.').waitFor();
    await page.locator('.number-taken').getByText('770001', { exact: true }).waitFor();
    check((await page.getByLabel('A number, as it was printed').inputValue()) === 'half-written', 'what was written is lost');
    check((await page.title()) === 'cheques · Odometer', await page.title());
  });
}

async function ending(window, asked, words) {
  await window.step('nothing remains for a caller that is known no more', async (page) => {
    const shown = [...OF_SEQUENCE, await page.locator('#replica').textContent(), 'You are desk'];
    const before = await remains(page, shown);
    check(before.length === shown.length, `vacuous: of ${shown} only ${before} are there`);
    await asked('the token withdrawn');
    await entrance(page).waitFor();
    await page.getByText('The service refused the token that you gave. The page sends none now.').waitFor();
    // The entrance named the caller, its role and its rights when it was there before.
    await hasNothing(page, [...words, ...shown, 'desk', 'biller', 'invoice-*']);
  }, [answered(401, 'v1/me')], [/status of 401/]);
}
