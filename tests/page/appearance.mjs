// Colours and sizes: whether all of it can be read.
import { Window, check, tooPale, tooWide } from './browser.mjs';
import { answered, api, at, row } from './places.mjs';

export async function appearance(window) {
  await window.step('dark and light', async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const seen = {};
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      seen[scheme] = await ground();
      for (const place of ['#/', '#/sequences/orders', '#/sequences/events', '#/sequences/old-orders', '#/new']) {
        await page.evaluate((hash) => { location.hash = hash; }, place);
        await page.locator('main h1').first().waitFor({ state: 'attached' });
        await page.locator('.tiles dd, form.action').first().waitFor();
        const pale = await tooPale(page);
        check(pale.length === 0, `${scheme} ${place}: ${pale}`);
      }
    }
    check(seen.light !== seen.dark, `both are ${seen.light}`);
    // The system has dark: the button goes from there to light.
    await page.locator('#theme').click();
    check((await ground()) === seen.light, 'the button does not change the colours');
    await page.reload();
    check((await ground()) === seen.light, 'what was chosen is forgotten');
    await page.locator('#theme').click();
    check((await ground()) === seen.dark, 'dark by the button');
    await page.locator('#theme').click();
  });
}

/** Everything that is only there where something is wrong, in both colours. */
export async function warnings(window, base) {
  await window.step('what warns can be read', async (page) => {
    await page.route(at('replica'), async (route) => {
      const response = await route.fetch();
      const known = await response.json();
      const [store] = known.stores;
      const [database] = store.databases;
      const recovery = { at: '2026-11-20T13:22:15.519Z', lost_since: '2026-11-20T13:22:05.519Z', highest_rise: 10000000, holder: 'host-4711' };
      const databases = [{ ...database, up: false, recovery }, { ...database, went_back: true }, database];
      const redis = [{ server: 'redis://redis.example:6379', up: false }];
      await route.fulfill({ response, json: { ...known, ready: false, why: 'It is not ready.', stores: [{ ...store, databases, redis }] } });
    });
    await page.route(at('replica/sequences'), async (route) => {
      const response = await route.fetch();
      const listed = await response.json();
      const left = (days) => ({ limit: 'max', numbers_left: 1000, days_left: days });
      const low = { rate: 1, reserve_seconds: 1, hold_seconds: 900, retired: false, period_ends: null };
      // Of three, one warms up.
      const sequences = listed.sequences.map((one, n) => ({ ...one, ...low, warming_up: n % 3 === 0, runway: left(n % 2 === 0 ? 1 : 8) }));
      await route.fulfill({ response, json: { ...listed, sequences } });
    });
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.goto(`${base}/#/`);
      for (const look of ['.notice[data-look="bad"]', '.notice[data-look="warn"]', '.pill[data-state="bad"]', '.wrong', 'td[data-look="warming"]', 'td[data-look="warn"]', 'td[data-look="bad"]']) {
        await page.locator(look).first().waitFor();
      }
      await page.getByText('Failed over: at 2026-11-20 13:22:15 UTC host-4711 raised counters by up to 10 M. Commits of the last 10 s before may be lost.').waitFor();
      const pale = await tooPale(page);
      check(pale.length === 0, `${scheme}, the list: ${pale}`);
      await page.goto(`${base}/#/sequences/orders`);
      await page.getByLabel('A number, as it was printed').fill('twelve');
      await page.getByRole('button', { name: 'Explain' }).click();
      await page.locator('.action .error').waitFor();
      await page.getByLabel('Issue nothing below').fill('8000000000000000');
      await page.getByRole('button', { name: 'Raise…' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Raise' }).click();
      await page.getByRole('dialog').getByRole('alert').waitFor();
      const paleInDialog = await tooPale(page);
      check(paleInDialog.length === 0, `${scheme}, the dialog: ${paleInDialog}`);
      await page.getByRole('button', { name: 'Cancel' }).click();
    }
    // A call may be under way: its answer must come first.
    await page.unrouteAll({ behavior: 'wait' });
  }, [answered(400, 'explain'), answered(409, 'advance')]);
}

export async function phone(browser, base) {
  const window = await Window.open(browser, base, { viewport: { width: 375, height: 812 }, hasTouch: true, isMobile: true });
  await window.step('375 pixels are enough', async (page) => {
    await row(page, 'orders').waitFor();
    for (const place of ['', 'sequences/orders', 'sequences/events', 'sequences/invoices', 'sequences/old-orders', `sequences/${'long-name-'.repeat(12)}x`]) {
      await page.goto(`${base}/#/${place}`);
      await page.locator('.tiles dd').filter({ hasText: /./ }).first().waitFor();
      await page.locator(place === '' ? 'table.live tbody tr' : '.journal tbody tr, .journal[hidden]').first().waitFor({ state: 'attached' });
      const wide = await tooWide(page);
      check(wide.length === 0, `${place}: ${wide}`);
    }
    for (const word of ['Reserve', 'Runway', 'High-water mark']) {
      await page.getByRole('button', { name: `What is “${word}”?` }).filter({ visible: true }).tap();
      const meaning = page.locator('.meaning[data-placed]');
      await meaning.waitFor();
      const { left, right, top, bottom } = await meaning.evaluate((node) => node.getBoundingClientRect().toJSON());
      check(left >= 0 && right <= 375 && top >= 0 && bottom <= 812, `${word}: ${left} to ${right}, ${top} to ${bottom}`);
      await page.keyboard.press('Escape');
    }
    await page.goto(`${base}/#/sequences/ordrs`);
    await page.locator('.suggestions a').first().waitFor();
    const wideSuggestions = await tooWide(page);
    check(wideSuggestions.length === 0, `a name that is not there: ${wideSuggestions}`);
    check((await page.locator('#version').textContent()).includes((await api(base, 'replica')).holder), 'which replica it is');
    await page.goto(`${base}/#/sequences/orders`);
    await page.getByLabel('Issue nothing below').fill('9'.repeat(19));
    await page.getByRole('button', { name: 'Raise…' }).tap();
    await page.getByRole('dialog').waitFor();
    const wide = await tooWide(page);
    check(wide.length === 0, `the dialog: ${wide}`);
    await page.getByRole('button', { name: 'Cancel' }).tap();
  }, [answered(404, 'sequences/ordrs')]);
  await window.close();
}
