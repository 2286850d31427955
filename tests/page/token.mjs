// Changes on a listener that is not loopback: with a token, and where there is none to know.
import { Window, check, leaks, until } from './browser.mjs';
import { at, hold, looks, row } from './places.mjs';

const TOKEN = 'a-token-of-the-test';

async function raise(page, floor) {
  await page.getByLabel('Issue nothing below').fill(floor);
  await page.getByRole('button', { name: 'Raise…' }).click();
  await page.getByRole('dialog', { name: /^Raise/ }).getByRole('button', { name: 'Raise' }).click();
}

async function offer(page, token) {
  const dialog = page.getByRole('dialog', { name: 'Token' });
  await dialog.getByLabel('Token').fill(token);
  await dialog.getByRole('button', { name: 'Go on' }).click();
}

/** The service was started with the token above. */
export async function token(browser, base) {
  const sent = [];
  const window = await Window.open(browser, base);
  await window.step('the token is asked for, and kept in memory only', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    page.on('request', (request) => sent.push([new URL(request.url()).pathname, request.headers().authorization]));
    await raise(page, '50');
    const dialog = page.getByRole('dialog', { name: 'Token' });
    check((await dialog.getByLabel('Token').getAttribute('autocomplete')) === 'new-password', 'a browser may fill it in');
    const nBefore = sent.length;
    await offer(page, 'a tökén — ☃');
    await dialog.getByRole('alert').getByText(/ASCII/).waitFor();
    check(sent.slice(nBefore).every(([path]) => !path.endsWith('/advance')), 'it was sent');
    await offer(page, 'wrong');
    await dialog.getByRole('alert').getByText(/administrator's token/).waitFor();
    await offer(page, TOKEN);
    await page.getByText('Nothing below 50 is issued any more here').waitFor();
    await raise(page, '60');
    await page.getByText('Nothing below 60 is issued any more here').waitFor();
    const found = await leaks(page, TOKEN);
    check(found.length === 0, `the token is in ${found}`);
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.number-taken').waitFor();
    const withToken = new Set(sent.filter(([, token]) => token !== undefined).map(([path]) => path));
    check([...withToken].every((path) => path.startsWith('/v1/')), `the token went with ${[...withToken]}`);
    check(withToken.has('/v1/sequences/orders/next'), 'a number was taken without the token');
    await page.reload();
    await raise(page, '70');
    await page.getByRole('dialog', { name: 'Token' }).getByRole('button', { name: 'Cancel' }).click();
    await page.locator('.action .error').waitFor();
  }, [/status of 401/]);
  await window.step('who creates or retires is asked for the token', async (page) => {
    await page.goto(`${base}/#/new`);
    await page.reload();
    await page.getByLabel('Name', { exact: true }).fill('invoices');
    await page.getByRole('button', { name: 'Check and create…' }).click();
    await offer(page, 'wrong');
    await page.getByRole('dialog').getByRole('alert').getByText(/administrator's token/).waitFor();
    await offer(page, TOKEN);
    await page.getByRole('dialog', { name: 'Create invoices?' }).getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'invoices' }).waitFor();
    await page.reload();
    for (const what of ['Retire', 'Restore']) {
      await page.getByRole('button', { name: `${what}…` }).click();
      await page.getByRole('dialog', { name: `${what} invoices?` }).getByRole('button', { name: what, exact: true }).click();
      if (what === 'Retire') {
        await offer(page, TOKEN);
      }
      await page.getByText(new RegExp(`^${what.replace(/e$/, '')}ed: `)).waitFor();
    }
    // The token is forgotten.
    await page.reload();
  }, [/status of 401/]);
  await window.step('who left is not asked for the token', async (page) => {
    await page.goto(`${base}/#/`);
    await page.goto(`${base}/#/sequences/orders`);
    const held = await hold(page, at('sequences/orders/advance'));
    await raise(page, '80');
    await until('the answer is held back', () => held.length === 1);
    await page.goBack();
    await row(page, 'orders').waitFor();
    const answer = page.waitForResponse((response) => at('sequences/orders/advance')(new URL(response.url())));
    await held[0].continue();
    await answer;
    await looks(page, 2);
    check((await page.getByRole('dialog').count()) === 0, 'a dialog is open');
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
  await window.step('where nobody may create anything, that is said', async (page) => {
    await page.goto(`${base}/#/new`);
    await page.getByLabel('Name', { exact: true }).fill('invoices');
    await page.getByRole('button', { name: 'Check and create…' }).click();
    await page.locator('.action .error').getByText(/set `ODOMETER_ADMIN_TOKEN`/).waitFor();
    check((await page.getByRole('dialog').count()) === 0, 'it asks all the same');
  }, [/status of 403/]);
  await window.close();
}
