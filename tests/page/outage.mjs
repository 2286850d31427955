// The database and the service go away and come back; `asked` has it done by who started them.
import { Window, check, tooWide, until } from './browser.mjs';
import { at, hold } from './places.mjs';

/** One sentence names the database, one says how long memory lasts, one what waits. */
const AWAY = /^The database postgres:\S+ does not answer\. Memory lasts for [\d.]+ (s|min|h|days|years): “orders” runs out first\. New names, changes and strict order wait for the database\.$/;

const notices = (page) => page.locator('#notices').textContent();
const inMemory = (page) => page.locator('table.live tbody').getByRole('link', { name: 'orders', exact: true });

export async function outage(browser, base, asked) {
  const window = await Window.open(browser, base);
  await window.step('all is well', async (page) => {
    await inMemory(page).waitFor();
    await until('it is ready', async () => (await page.locator('#status').textContent()) === 'Ready');
    check((await notices(page)) === '', 'nothing is wrong');
  });
  await asked('the database away');
  await window.step('the database is away', async (page) => {
    await until('it is said', async () => AWAY.test(await notices(page)));
    check((await page.locator('.notice').count()) === 1, `it is said ${await page.locator('.notice').count()} times`);
    const left = page.locator('.notice .time-left');
    await until('the time left is that of memory', async () => {
      const [said, wanted] = await page.evaluate(async () => {
        const { duration } = await import('/page/format.js');
        const { live } = await (await fetch('v1/replica/sequences/orders')).json();
        return [document.querySelector('.notice .time-left').textContent, duration(live.reserve_seconds)];
      });
      return said === `Memory lasts for ${wanted}: “orders” runs out first.`;
    });
    // What changes all the while is not read out each time.
    check((await left.getAttribute('aria-live')) === 'off', 'each change of the time is read out');
    const { width, height } = page.viewportSize();
    await page.setViewportSize({ width: 375, height: 812 });
    const wide = await tooWide(page);
    check(wide.length === 0, `on a telephone: ${wide}`);
    await page.setViewportSize({ width, height });
    await page.getByText('No database answers: what is not in memory is not known now.').waitFor();
    await page.locator('.stores li').getByText('does not answer').waitFor();
    check(await inMemory(page).isVisible(), 'what memory knows is still listed');
    check((await page.locator('#status').getAttribute('data-state')) === 'warn', 'the state in the corner');
    await inMemory(page).click();
    await page.getByRole('meter', { name: 'Being issued: left' }).waitFor();
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.number-taken').waitFor();
    await page.getByLabel('Issue nothing below').fill('5000');
    await page.getByRole('button', { name: 'Raise…' }).click();
    await page.getByRole('button', { name: 'Raise', exact: true }).click();
    await page.locator('.action .error').waitFor();
    check(/database/.test(await page.locator('.action .error').textContent()), 'why it was not raised');
  // What was on its way when the database went is refused as well.
  }, [/status of 503/]);
  await asked('the database back');
  await window.step('the database is back', async (page) => {
    await until('nothing is wrong any more', async () => (await notices(page)) === '');
    check((await page.locator('#status').getAttribute('data-state')) === 'good', 'the state in the corner');
    await page.getByRole('link', { name: '← All sequences' }).click();
    await page.getByText(/known to the database|The database lists no other/).waitFor();
  // What was refused just before it came back.
  }, [], [/status of 503/]);
  await asked('the database silent');
  await window.step('figures go on while the database is silent', async (page) => {
    // None of them is answered, so who waits for one has no figures meanwhile.
    const descriptions = await hold(page, at('sequences/orders'));
    let nEnded = 0;
    page.on('requestfailed', (request) => { nEnded += at('sequences/orders')(new URL(request.url())) ? 1 : 0; });
    await inMemory(page).click();
    const figures = page.getByRole('img', { name: /^Numbers a second, / });
    let seen = { label: '', nEnded: 0, nChanges: 0 };
    await until('the figures change time and again while one is waited for', async () => {
      const label = await figures.getAttribute('aria-label');
      if (seen.nEnded !== nEnded) {
        seen = { label, nEnded, nChanges: 0 };
      } else if (descriptions.length > nEnded && /Average/.test(label) && label !== seen.label) {
        seen = { label, nEnded, nChanges: seen.nChanges + 1 };
        await page.evaluate(() => fetch('v1/sequences/orders/next', { method: 'POST' }));
      }
      return seen.nChanges === 3;
    });
    await page.unroute(at('sequences/orders'));
    await until('it is said', async () => AWAY.test(await notices(page)));
  }, [], [/status of 503/]);
  await asked('the database speaking');
  await window.step('the database speaks again', async (page) => {
    await until('nothing is wrong any more', async () => (await notices(page)) === '');
    await page.locator('.journal tbody tr').first().waitFor();
    await page.getByRole('link', { name: '← All sequences' }).click();
    await inMemory(page).waitFor();
  }, [], [/status of 503/]);
  for (const [what, answer] of Object.entries({
    'a page of a proxy': { status: 502, contentType: 'text/html', body: '<h1>Bad Gateway</h1>' },
    'a page of another service': { status: 200, contentType: 'application/json', body: '{"ok":true}' },
  })) {
    await window.page.route('**/v1/replica', (route) => route.fulfill(answer));
    await until(`${what} is not the replica`, async () => (await window.page.locator('#status').textContent()) === 'No connection');
    check((await window.page.locator('#status').getAttribute('data-state')) === 'bad', `${what}: the colour`);
    await window.page.unroute('**/v1/replica');
    await until(`after ${what}`, async () => (await window.page.locator('#status').textContent()) === 'Ready');
  }
  await window.step('what answers in place of the replica is not it', async () => {}, [/status of 502/], [/status of 503/]);
  await asked('the service away');
  await window.step('the service is away', async (page) => {
    await until('it is said', async () => /^No connection to this replica since \d\d:\d\d:\d\d UTC\. The page shows what it said last\./.test(await notices(page)));
    check((await page.locator('#status').textContent()) === 'No connection', 'the state in the corner');
    check(await inMemory(page).isVisible(), 'what it said last is still listed');
    await inMemory(page).click();
    await page.getByRole('heading', { level: 1, name: 'orders' }).waitFor();
    check(/^No connection/.test(await notices(page)), 'it is said on every view');
  }, [/net::ERR_/]);
  await asked('the service back');
  await window.step('the service is back', async (page) => {
    await until('nothing is wrong any more', async () => (await notices(page)) === '');
    await page.getByRole('meter', { name: 'Being issued: left' }).waitFor();
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.number-taken').waitFor();
  }, [], [/net::ERR_/]);
  await window.close();
}
