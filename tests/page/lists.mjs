// The lists of the overview: what stays while they change, and what they say of what is not in them.
import { Window, check, until } from './browser.mjs';
import { answered, at, looks, names, problem, row } from './places.mjs';

/** The filter says so, and the focus stays where it is. */
const filterBy = (page, text) => page.getByLabel('Filter by name').evaluate((node, given) => {
  node.value = given;
  node.dispatchEvent(new Event('input'));
}, text);
const focused = (page) => page.evaluate(() => document.activeElement.textContent);
const resting = (page, name) => page.locator('.resting').getByRole('link', { name, exact: true });
const note = (page) => page.locator('section', { has: page.getByRole('heading', { name: 'Not in memory here' }) }).locator('p.muted');

/** The service has `many-001` to `many-120` in memory, and `imports`, which nobody used. */
export async function lists(browser, base) {
  const window = await Window.open(browser, base);
  await staying(window);
  await telling(window);
  await window.close();
}

async function staying(window) {
  await window.step('focus stays when the rows before it go', async (page) => {
    await row(page, 'many-100').getByRole('link').focus();
    await filterBy(page, 'many-1');
    await until('the rows before it are gone', async () => (await names(page))[0] === 'many-100');
    check((await names(page)).length > 1, 'vacuous: there are no rows behind it');
    check((await focused(page)) === 'many-100', `the focus is on: ${await focused(page)}`);
    await filterBy(page, '');
    await until('they are back', async () => (await names(page))[0] === 'many-001');
    check((await focused(page)) === 'many-100', `afterwards the focus is on: ${await focused(page)}`);
  });
  await window.step('focus stays when the database is asked again', async (page) => {
    await resting(page, 'imports').focus();
    const again = page.waitForResponse((response) => at('sequences')(new URL(response.url())));
    await filterBy(page, '');
    await again;
    await looks(page, 2);
    check((await focused(page)) === 'imports', `the focus is on: ${await focused(page)}`);
  });
}

async function telling(window) {
  await window.step('a list that goes on is not called whole', async (page) => {
    await filterBy(page, 'many-');
    await until('it is said', async () => (await note(page).textContent()) === 'None among the first names that were looked at; the filter finds others.');
    await filterBy(page, 'many-12');
    await until('of a whole one it is', async () => (await note(page).textContent()) === 'The database lists no other sequences that begin with “many-12”.');
    await filterBy(page, '');
    await resting(page, 'imports').waitFor();
  });
  await window.step('a search that ended early says how far it went', async (page) => {
    await page.route(at('replica/sequences'), (route) => route.fulfill({ json: { sequences: [], next: 'many-050' } }));
    await filterBy(page, 'many-12');
    await page.getByText('Nothing found up to “many-050”, and no further was looked.').waitFor();
    check(!(await page.getByRole('button', { name: 'Show more' }).isVisible()), 'it offers to look once more');
    await page.unroute(at('replica/sequences'));
    await until('the whole search', async () => (await names(page)).join() === 'many-120');
    await filterBy(page, '');
    await page.getByRole('button', { name: 'Show more' }).click();
    await until('all are shown', async () => (await names(page)).length === 120);
    check(!(await page.getByRole('button', { name: 'Show more' }).isVisible()), 'it offers more than all');
  });
  await window.step('a list by time shows all in parts, too', async (page) => {
    await page.reload();
    await page.getByLabel('Sort by').selectOption('reserve');
    await until('a hundred are shown', async () => (await names(page)).length === 100);
    await page.getByRole('button', { name: 'Show more' }).click();
    await until('all are shown', async () => (await names(page)).length === 120);
    check(!(await page.getByRole('button', { name: 'Show more' }).isVisible()), 'it offers more than all');
    await resting(page, 'imports').waitFor();
    check((await page.locator('.resting li').count()) === 1, 'what is in memory is listed as at rest');
    await page.route(at('replica/sequences'), (route) => route.fulfill({ json: { sequences: [], next: 'many-050' } }));
    await page.getByText('This is the order of the names up to “many-050”. The filter finds others.').waitFor();
    await page.unroute(at('replica/sequences'));
    await page.getByLabel('Sort by').selectOption('name');
    await until('the order by name', async () => (await names(page))[0] === 'many-001');
  });
  await window.step('a listing that fails is said until one succeeds', async (page) => {
    await resting(page, 'imports').waitFor();
    for (const [answer, said] of [
      [(route) => route.fulfill({ status: 503, ...problem('store_unavailable', 'No database for this list.') }), 'No database for this list.'],
      [(route) => route.abort(), 'This replica does not answer.'],
    ]) {
      await page.route(at('sequences'), answer);
      await filterBy(page, '');
      await until('it is said', async () => (await note(page).textContent()) === said);
      check((await resting(page, 'imports').count()) === 0, 'the list of before is still there');
      await looks(page, 2);
      check((await note(page).textContent()) === said, `later it says: ${await note(page).textContent()}`);
      await page.unroute(at('sequences'));
      await filterBy(page, '');
      await resting(page, 'imports').waitFor();
    }
  }, [answered(503, 'v1/sequences'), /net::ERR_FAILED/]);
}
