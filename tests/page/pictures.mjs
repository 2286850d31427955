// Pictures of the page for the documents.
import { join } from 'node:path';
import { Window, until } from './browser.mjs';

export async function pictures(browser, base, asked, directory) {
  const wanted = [
    ['overview-light', '', { viewport: { width: 1180, height: 760 } }],
    ['overview-dark', '', { viewport: { width: 1180, height: 760 }, colorScheme: 'dark' }],
    ['sequence', 'sequences/orders', { viewport: { width: 1180, height: 900 } }],
    ['phone', '', { viewport: { width: 390, height: 844 }, isMobile: true }],
  ];
  for (const [name, place, options] of wanted) {
    const window = await Window.open(browser, base, options);
    await window.step(name, async (page) => {
      await page.goto(`${base}/#/${place}`);
      await until('it is drawn', async () => (await page.locator('.tiles dd').filter({ hasText: /./ }).count()) >= 5);
      await page.locator('.resting a, .journal tbody tr').first().waitFor();
      await page.screenshot({ path: join(directory, `${name}.png`), fullPage: name !== 'phone', animations: 'disabled' });
    });
    await window.close();
  }
}
