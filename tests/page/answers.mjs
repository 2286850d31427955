// What comes late, or not, or otherwise than it should: what the page makes of it.
import { Window, check, until } from './browser.mjs';
import { answered, at, hold, looks, next, problem, row, tile } from './places.mjs';

const status = (page) => page.locator('#status').textContent();
const visit = (page, base, place) => page.goto(`${base}/#/${place}`);

/** Answers for the replica, with other databases than it has. */
async function withDatabases(route, databases) {
  const response = await route.fetch();
  const known = await response.json();
  const [store] = known.stores;
  await route.fulfill({ response, json: { ...known, stores: [{ ...store, databases: databases(store.databases[0]) }] } });
}

export async function answers(browser, base) {
  const window = await Window.open(browser, base);
  await figures(window, base);
  await silence(window, base);
  await leaving(window, base);
  await addresses(window, base);
  await replica(window);
  await window.close();
}

/** Blocks of `short` are so short that its reserve is less than its hold while somebody takes of it. */
async function figures(window, base) {
  await window.step('what is low is low on both views', async (page) => {
    const inList = row(page, 'short').locator('td').nth(2);
    await until('it is low in the list', async () => / · low$/.test(await inList.textContent()));
    check((await inList.getAttribute('data-look')) === 'warn', 'its colour in the list');
    await visit(page, base, 'sequences/short');
    await until('it is low on its page', async () => / · low$/.test(await tile(page, 'Reserve').textContent()));
    check((await tile(page, 'Reserve').getAttribute('data-look')) === 'warn', 'its colour on its page');
  });
  await window.step('what has only just become busy is warming up', async (page) => {
    await visit(page, base, '');
    const cell = (name) => row(page, name).locator('td').nth(2);
    await until('it warms up in the list', async () => / · warming up$/.test(await cell('busy').textContent()));
    check((await cell('busy').getAttribute('data-look')) === 'warming', 'its colour in the list');
    // A block that can never be large enough does not warm up.
    await until('the other is low', async () => / · low$/.test(await cell('short').textContent()));
    await page.getByRole('button', { name: 'What is “Warming up”?' }).click();
    await page.locator('.meaning:popover-open').getByText(/has only just become busy/).waitFor();
    await page.keyboard.press('Escape');
    await visit(page, base, 'sequences/busy');
    await until('it warms up on its page', async () => / · warming up$/.test(await tile(page, 'Reserve').textContent()));
    check((await tile(page, 'Reserve').getAttribute('data-look')) === 'warming', 'its colour on its page');
  });
  await window.step('what left the memory has no figures of before', async (page) => {
    await visit(page, base, 'sequences/short');
    await page.locator('.journal tbody tr').first().waitFor();
    await page.route(at('replica/sequences/short'), (route) => route.fulfill({ json: { sequence: 'short', live: null, history: [] } }));
    await page.getByText('Not in memory on this replica: the next call fetches it.').waitFor();
    check((await tile(page, 'Reserve').textContent()) === '–', 'its reserve');
    check((await tile(page, 'Reserve').getAttribute('data-look')) === null, 'the colour of its reserve');
    check((await tile(page, 'In memory').textContent()) === '0', 'what is in memory');
    await page.unroute(at('replica/sequences/short'));
    await visit(page, base, 'sequences/stamps');
    await page.getByText('Not in memory on this replica: the next call fetches it.').waitFor();
    check((await tile(page, 'In memory').textContent()) === '–', 'numbers of what stamps by the clock');
  });
  await window.step('what nobody knows is not shown', async (page) => {
    await page.route(at('sequences/orders'), (route) => route.fulfill({ status: 503, ...problem('store_unavailable', 'No database for this.') }));
    await visit(page, base, 'sequences/orders');
    await page.getByRole('meter', { name: 'Being issued: left' }).waitFor();
    await until('its rate', async () => /\/s$/.test(await tile(page, 'Rate, smoothed').textContent()));
    await page.route(at('replica/sequences/orders'), (route) => route.fulfill({ json: { sequence: 'orders', live: null, history: [] } }));
    for (const name of ['Rate, smoothed', 'Reserve', 'In memory', 'Runway', 'High-water mark']) {
      await until(`${name} is not known`, async () => (await tile(page, name).textContent()) === '–');
    }
    check((await page.getByRole('meter').count()) === 0, 'a block of before is still shown');
    await page.unroute(at('replica/sequences/orders'));
    await page.unroute(at('sequences/orders'));
    await page.getByRole('meter', { name: 'Being issued: left' }).waitFor();
  }, [answered(503, 'sequences/orders')]);
  await window.step('selected text stays selected while figures change', async (page) => {
    await visit(page, base, 'sequences/orders');
    const left = page.locator('.held .muted').first();
    const range = page.locator('.held .range').first();
    const selected = () => page.evaluate(() => getSelection().toString());
    await range.evaluate((node) => getSelection().selectAllChildren(node));
    check((await selected()) === (await range.textContent()), `selected: ${await selected()}`);
    const before = await left.textContent();
    await next(base, 'orders');
    await until('the figures change', async () => (await left.textContent()) !== before);
    check((await selected()) === (await range.textContent()), `still selected: ${await selected()}`);
  });
}

async function silence(window, base) {
  await window.step('a description that does not come is said', async (page) => {
    await visit(page, base, 'sequences/orders');
    await page.route(at('sequences/orders'), (route) => route.abort());
    await page.getByText('This replica does not answer.').waitFor();
    check((await status(page)) === 'Ready', 'what memory knows came');
    await page.unroute(at('sequences/orders'));
    await until('one comes', async () => (await page.getByText('This replica does not answer.').count()) === 0);
  }, [/net::ERR_FAILED/]);
  for (const [name, place, path, json] of [
    ['a description', 'sequences/orders', 'sequences/orders', { definition: {}, state: {} }], ['a list', '', 'sequences', {}],
  ]) {
    await window.step(`a fault of the page in ${name} reaches the console`, async (page) => {
      await page.route(at(path), (route) => route.fulfill({ json }));
      await visit(page, base, place);
      await until('it is there', () => window.said.some((line) => /TypeError/.test(line)));
      await page.unroute(at(path));
    }, [/TypeError/]);
  }
  for (const [name, place, path] of [
    ['the list', '', 'replica/sequences'], ['a sequence', 'sequences/orders', 'replica/sequences/orders'],
  ]) {
    await window.step(`figures of ${name} that stop are said before anyone believes them`, async (page) => {
      await visit(page, base, place);
      await until('it is ready', async () => (await status(page)) === 'Ready');
      const held = await hold(page, at(path));
      await until('the figures are waited for', () => held.length > 0);
      // The service may take fifteen seconds where a database is asked: memory has to be given up long before.
      const said = await page.evaluate(() => new Promise((resolve) => {
        const word = () => document.getElementById('status').textContent;
        const timer = setInterval(() => word() === 'No connection' && resolve(word()), 50);
        AbortSignal.timeout(10000).addEventListener('abort', () => { clearInterval(timer); resolve(word()); });
      }));
      check(said === 'No connection', `meanwhile it says ${said}`);
      if (place === '') {
        const since = await page.locator('#notices').textContent();
        const nHeld = held.length;
        await until('it is tried once more, in vain', () => held.length > nHeld + 1);
        check((await page.locator('#notices').textContent()) === since, `first ${since}, then another time`);
      }
      await page.unroute(at(path));
      await until('it is ready again', async () => (await status(page)) === 'Ready');
    });
  }
}

/** Who is on another view when the answer comes is asked nothing there. */
async function leaving(window, base) {
  await window.step('who left is not asked to go on', async (page) => {
    await visit(page, base, '');
    await visit(page, base, 'sequences/orders');
    const held = await hold(page, at('sequences/orders/advance'));
    await page.getByLabel('Issue nothing below').fill('4000000000000000');
    await page.getByRole('button', { name: 'Raise…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Raise' }).click();
    await until('the answer is held back', () => held.length === 1);
    await page.goBack();
    await row(page, 'orders').waitFor();
    const answer = page.waitForResponse((response) => at('sequences/orders/advance')(new URL(response.url())));
    await held[0].continue();
    await answer;
    await looks(page, 2);
    check((await page.getByRole('dialog').count()) === 0, 'a dialog is open');
    await page.unroute(at('sequences/orders/advance'));
  }, [answered(409, 'advance')]);
}

async function addresses(window, base) {
  await window.step('a period that cannot be leads out', async (page) => {
    await visit(page, base, 'sequences/tenants');
    const key = page.getByLabel('Key that is counted by');
    check((await key.getAttribute('maxlength')) === '64', 'the longest key');
    let nAsked = 0;
    const note = (request) => { nAsked += at('replica/sequences/tenants')(new URL(request.url())) ? 1 : 0; };
    // As it was written, with the space: it is not made another key.
    await key.fill('acme ');
    await key.press('Enter');
    await page.getByText(/A period has 1 to 64 characters/).waitFor();
    page.on('request', note);
    await looks(page, 3);
    page.off('request', note);
    check(nAsked === 0, `it was asked for again ${nAsked} times`);
    await page.getByRole('link', { name: 'Show tenants without a period' }).click();
    await page.getByText(/Choose a key below/).waitFor();
    check((await page.getByText(/A period has 1 to 64 characters/).count()) === 0, 'the refusal is still there');
  }, [answered(400, 'tenants')]);
}

async function replica(window) {
  await window.step('a replica that does not say how it is has no state', async (page) => {
    await page.route(at('replica'), (route) => route.fulfill({ status: 503, ...problem('overloaded', 'Too many calls.') }));
    await until('it is said', async () => (await status(page)) === 'Not known');
    check((await page.locator('#status').getAttribute('data-state')) === 'bad', 'the colour');
    check(/Too many calls\./.test(await page.locator('#notices').textContent()), 'why');
    await page.unroute(at('replica'));
    await until('it says so again', async () => (await status(page)) === 'Ready');
    check((await page.locator('#notices').textContent()) === '', 'it is still said');
  }, [answered(503, 'v1/replica')]);
  await window.step('one banner is enough for all databases', async (page) => {
    const named = (database, name, up) => ({ ...database, database: name, up });
    const notes = page.locator('.notice');
    for (const [states, wanted] of [
      [[false, false], /^2 databases do not answer: sqlite:a, sqlite:b\. Memory lasts for [\d.]+ (s|min|h): “short” runs out first\. New names/],
      [[true, false], /^The database sqlite:b does not answer\. The others of its store go on\.$/],
    ]) {
      await page.route(at('replica'), (route) => withDatabases(route, (database) => states.map((up, n) => named(database, `sqlite:${'ab'[n]}`, up))));
      await until(`${wanted}`, async () => (await notes.count()) === 1 && wanted.test(await notes.textContent()));
      await page.unroute(at('replica'));
    }
    await until('nothing is wrong any more', async () => (await notes.count()) === 0);
  });
  await window.step('a page that is older than its replica says so', async (page) => {
    const { version } = await page.evaluate(async () => (await fetch('v1/replica')).json());
    await page.route(at('replica'), async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), version: '99.0.0' } });
    });
    await page.getByText(`This page is of version ${version}, but the replica is of version 99.0.0. Load the page again.`).waitFor();
    await page.reload();
    await until('it is ready', async () => (await status(page)) === 'Ready');
    check((await page.locator('#notices').textContent()) === '', 'a new page is still called old');
  });
}
