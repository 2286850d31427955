// An open page, while its caller gets other rights and another name, and is known no more.
import { Window, check, remains, until } from './browser.mjs';
import { caller, entrance, give, isOffered, noteCalls, status, tokenOf } from './access.mjs';
import { answered, at } from './places.mjs';

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
  const words = await shutting(window, asked);
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

/** Returns the words that were on the page while it was open. */
async function shutting(window, asked) {
  let words = [];
  await window.step('nothing remains for a caller that may look no more', async (page) => {
    await asked('more rights');
    await button(page, 'Take a number').click();
    await page.locator('.number-taken').getByText('770001', { exact: true }).waitFor();
    await button(page, 'Retire…').click();
    await page.getByRole('dialog', { name: 'Retire cheques?' }).waitFor();
    words = [...OF_SEQUENCE, await page.locator('#replica').textContent(), 'Retire cheques?', '<dialog'];
    const before = await remains(page, words);
    check(before.length === words.length, `vacuous: of ${words} only ${before} are there`);
    await asked('no right to look');
    await entrance(page).waitFor();
    await page.getByText('You are desk, with the role biller.', { exact: true }).waitFor();
    await hasNothing(page, words);
  // Calls that were under way are refused, too.
  }, [answered(403, 'v1/replica')], [/status of 403/]);
  return words;
}

async function hasNothing(page, words) {
  await until('the service is said to need a token', async () => (await status(page)) === 'Token needed');
  const found = await remains(page, words);
  check(found.length === 0, `still in the document: ${found}`);
  check((await page.title()) === 'Odometer', await page.title());
}

async function opening(window, asked) {
  await window.step('who may look again is shown it within 30 seconds', async (page) => {
    const calls = noteCalls(page);
    const n = (path) => calls.filter(({ url }) => at(path)(new URL(url))).length;
    await page.clock.runFor(31000);
    await until('it asks for its rights', () => n('me') > 0);
    await page.clock.runFor(25000);
    check(n('me') <= 2, `it asked ${n('me')} times in a minute`);
    check(calls.length === n('me'), 'it asked for what is refused');
    check(await entrance(page).isVisible(), 'it is open before');
    await asked('more rights');
    await until('it is open', async () => {
      await page.clock.runFor(10000);
      return page.getByRole('heading', { level: 1, name: 'cheques' }).isVisible();
    });
    await button(page, 'Take a number').waitFor();
    check((await status(page)) === 'Ready', await status(page));
    check((await page.title()) === 'cheques · Odometer', await page.title());
  });
}

async function ending(window, asked, words) {
  await window.step('nothing remains for a caller that is known no more', async (page) => {
    await page.getByText('Not retired.').waitFor();
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
