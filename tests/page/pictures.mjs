// Pictures of the page for the documents.
import { join } from 'node:path';
import { Window, check, until } from './browser.mjs';

/** What a replica is called in all documents. */
const HOLDER = 'host-4711-f27ed21c';

/** Has the replica go by the name of the documents, as no machine has to be known. */
async function rename(context, holder) {
  await context.route('**/v1/**', async (route) => {
    const response = await route.fetch();
    const body = (await response.text()).replaceAll(holder, HOLDER);
    await route.fulfill({ response, body });
  });
}

export async function pictures(browser, base, asked, directory) {
  const { holder } = await (await fetch(`${base}/v1/replica`)).json();
  const wanted = [
    ['overview-light', '', { viewport: { width: 1180, height: 760 } }],
    ['overview-dark', '', { viewport: { width: 1180, height: 760 }, colorScheme: 'dark' }],
    ['sequence', 'sequences/orders', { viewport: { width: 1180, height: 900 } }],
    ['phone', '', { viewport: { width: 390, height: 844 }, isMobile: true }],
  ];
  for (const [name, place, options] of wanted) {
    const window = await Window.open(browser, base, options);
    await window.step(name, async (page) => {
      await rename(window.context, holder);
      await page.goto(`${base}/#/${place}`);
      await page.reload();
      await until('it is drawn', async () => (await page.locator('.tiles dd').filter({ hasText: /./ }).count()) >= 5);
      await page.locator('.resting a, .journal tbody tr').first().waitFor();
      await until('it has its name', async () => (await page.locator('#replica').textContent()) === HOLDER);
      check(!(await page.locator('html').innerHTML()).includes(holder), 'the name of a machine is seen');
      await page.screenshot({ path: join(directory, `${name}.png`), fullPage: name !== 'phone', animations: 'disabled' });
    });
    await window.close();
  }
}
