// The page at the operations listener: everything is shown, and nothing can be changed.
import { Window, check, until } from './browser.mjs';
import { row, tile } from './places.mjs';

const SHOWS_ONLY = /^This address only shows\./;

export async function operators(browser, base) {
  const window = await Window.open(browser, base);
  await window.step('the list has no way to change anything', async (page) => {
    await row(page, 'orders').waitFor();
    check(!(await page.getByRole('button', { name: 'New sequence' }).isVisible()), 'there is a button for a new sequence');
  });
  await window.step('a sequence is shown, and nothing can be changed', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    await page.getByText(SHOWS_ONLY).filter({ visible: true }).waitFor();
    await until('its numbers in memory', async () => /[1-9]/.test(await tile(page, 'In memory').textContent()));
    for (const name of ['Take a number', 'Raise…', 'Retire…']) {
      check(!(await page.getByRole('button', { name }).isVisible()), name);
    }
    await page.getByLabel('A number, as it was printed').fill('1');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('.fate').waitFor();
  });
  await window.step('a new sequence is for the other address', async (page) => {
    await page.goto(`${base}/#/new`);
    await page.getByText(SHOWS_ONLY).filter({ visible: true }).waitFor();
    check(!(await page.getByRole('button', { name: 'Check and create…' }).isVisible()), 'it can be created');
  });
  await window.close();
}
