// Changes on a listener that is not loopback: with a token, and where there is none to know.
import { Window, check } from './browser.mjs';

const TOKEN = 'a-token-of-the-test';

async function raise(page, floor) {
  await page.getByLabel('Issue nothing below').fill(floor);
  await page.getByRole('button', { name: 'Raise…' }).click();
  await page.getByRole('dialog', { name: /^Raise/ }).getByRole('button', { name: 'Raise' }).click();
}

async function offer(page, token) {
  const dialog = page.getByRole('dialog', { name: 'Administrator’s token' });
  await dialog.getByLabel('Token').fill(token);
  await dialog.getByRole('button', { name: 'Go on' }).click();
}

/** The service was started with the token above. */
export async function token(browser, base) {
  const window = await Window.open(browser, base);
  await window.step('the token is asked for, and kept in memory only', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    await raise(page, '50');
    await offer(page, 'wrong');
    await page.getByRole('dialog', { name: 'Administrator’s token' }).getByRole('alert').waitFor();
    await offer(page, TOKEN);
    await page.getByText('Nothing below 50 is issued any more here').waitFor();
    await raise(page, '60');
    await page.getByText('Nothing below 60 is issued any more here').waitFor();
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
    check(!kept.includes(TOKEN), `kept: ${kept}`);
    await page.reload();
    await raise(page, '70');
    await page.getByRole('dialog', { name: 'Administrator’s token' }).getByRole('button', { name: 'Cancel' }).click();
    await page.locator('.action .error').waitFor();
  }, [/status of 401/]);
  await window.close();
}

/** The service was started with no token. */
export async function closed(browser, base) {
  const window = await Window.open(browser, base);
  await window.step('where nobody may change anything, that is said', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    await raise(page, '50');
    await page.getByText(/set `ODOMETER_ADMIN_TOKEN`/).waitFor();
  }, [/status of 403/]);
  await window.close();
}
