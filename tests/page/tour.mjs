// What an operator does with the page, step by step.
import { appearance, phone, warnings } from './appearance.mjs';
import { Window, check, focusIsSeen, until } from './browser.mjs';
import { answered, api, describe, names, next, row, tile } from './places.mjs';
import { words } from './words.mjs';

export async function tour(browser, base) {
  const window = await Window.open(browser, base);
  await window.step('which replica this is', async (page) => {
    const replica = await api(base, 'replica');
    await until('the replica is shown', async () => (await tile(page, 'Holder').textContent()) === replica.holder);
    check((await tile(page, 'Version').textContent()) === replica.version, 'the version');
    check((await tile(page, 'Ready').textContent()) === 'Yes', 'whether it is ready');
    check(/ago$/.test(await tile(page, 'Up since').textContent()), 'since when it is up');
    check((await page.locator('#status').textContent()) === 'Ready', 'its state in the corner');
    const stores = await page.locator('.stores li').allTextContents();
    check(stores.length === 1 && /default.*answers/.test(stores[0]), `its stores: ${stores}`);
  });
  await window.step('the list has every kind', async (page) => {
    const marked = { events: 'time-ordered', ledger: 'strict', invoices: 'by month', tenants: 'by key', 'old-orders': 'retired' };
    for (const [name, mark] of Object.entries(marked)) {
      await row(page, name).getByText(mark, { exact: true }).waitFor();
    }
    await row(page, 'orders').getByRole('meter', { name: 'Block left' }).waitFor();
    await page.getByRole('listitem').getByRole('link', { name: 'imports' }).waitFor();
    check(!(await names(page)).includes('imports'), 'what nobody used is not in memory');
  });
  await window.step('the list is live', async (page) => {
    const left = () => row(page, 'orders').locator('td .left').textContent();
    const before = await left();
    await next(base, 'orders');
    await until('a number taken elsewhere is seen', async () => (await left()) !== before);
    check(/\/s$/.test(await row(page, 'orders').locator('td').nth(1).textContent()), 'a rate has a unit');
    await until('a rate is there', async () => (await row(page, 'orders').locator('td').nth(1).textContent()) !== '0 /s');
  });
  await window.step('the filter', async (page) => {
    const filter = page.getByLabel('Filter by name');
    await filter.fill('ord');
    await until('only those remain', async () => (await names(page)).join() === 'old-orders,orders');
    await filter.fill('no-such-name');
    await page.getByText('No sequence in memory has “no-such-name” in its name.').waitFor();
    await filter.fill('imp');
    await page.getByText(/^One sequence that begins with “imp”/).waitFor();
    await filter.fill('-orders');
    await page.getByText('No name begins with “-orders”.').waitFor();
    check((await page.locator('.resting li').count()) === 0, 'the list of the filter before is still there');
    await until('what has it within', async () => (await names(page)).join() === 'old-orders');
    await filter.fill('');
    await until('all are back', async () => (await names(page)).includes('vouchers'));
  });
  await window.step('a filter that no name can have', async (page) => {
    await page.getByLabel('Filter by name').fill('a b');
    await page.getByText(/No name contains/).waitFor();
    await page.getByLabel('Filter by name').fill('');
    await until('the words are gone', async () => (await page.getByText(/No name contains/).count()) === 0);
  }, [answered(400, 'replica/sequences')]);
  await window.step('figures are short and have units', async (page) => {
    const said = await page.evaluate(async () => {
      const { between, count, digits, duration, moment, rate } = await import('/page/format.js');
      const { lookOfReserve } = await import('/page/facts.js');
      const endsIn = (seconds) => new Date(Date.now() + 1000 * seconds).toISOString();
      const look = (seconds, hold, { kind = 'block', rate = 1, ends = null } = {}) => lookOfReserve({ kind, reserve_seconds: seconds, rate, hold_seconds: hold, period_ends: ends }) ?? 'plain';
      return [
        count(9999), count(1234567), between('9007199254740993', '9223372036854775806', '1'),
        rate(0), rate(0.25), rate(1234567), duration(null), duration(45), duration(150), duration(2220), duration(90000), duration(1e12),
        digits('1241305 numbers'), moment('2026-11-20T13:22:05.519Z'),
        look(899, 900), look(901, 900), look(59, 60), look(61, 60), look(299, 900, { kind: 'snowflake' }), look(301, 900, { kind: 'snowflake' }),
        look(1, 900, { rate: 0.1 }), look(1, 900, { rate: 0.09 }), look(null, 900),
        look(100, 900, { ends: endsIn(50) }), look(100, 900, { ends: endsIn(200) }),
      ];
    });
    const wanted = ['9,999', '1.23 M', '9.21 E', '0 /s', '0.25 /s', '1.23 M/s', '–', '45 s', '2.5 min', '37 min', '25 h', '> 1000 years',
      '1,241,305 numbers', '2026-11-20 13:22:05 UTC', 'warn', 'plain', 'warn', 'plain', 'warn', 'plain', 'warn', 'plain', 'plain', 'plain', 'warn'];
    check(said.join('; ') === wanted.join('; '), said.join('; '));
  });
  await onSequence(window, base);
  await raising(window, base);
  await kinds(window, base);
  await words(window, base);
  await keyboard(window, base);
  await appearance(window);
  await warnings(window, base);
  await phone(browser, base);
  await window.close();
}

async function onSequence(window, base) {
  await window.step('the page of a sequence', async (page) => {
    await row(page, 'orders').getByRole('link').click();
    await page.getByRole('heading', { level: 1, name: 'orders' }).waitFor();
    check((await page.title()) === 'orders · Odometer', 'the title');
    await page.getByRole('img', { name: /Numbers a second, the last five minutes\. Average/ }).waitFor();
    await page.getByRole('img', { name: /Reserve, the last five minutes/ }).waitFor();
    await page.getByRole('meter', { name: 'Being issued: left' }).waitFor();
    await until('the blocks are there', async () => (await page.locator('.journal tbody tr').count()) === (await describe(base, 'orders')).blocks.length);
    await page.locator('.journal').getByText('this replica').first().waitFor();
    await page.getByText('All fields have their default values.').waitFor();
    await until('the high-water mark', async () => (await tile(page, 'High-water mark').textContent()) === (await describe(base, 'orders')).state.high_water_mark);
  });
  await window.step('a number is taken and explained', async (page) => {
    const before = BigInt((await next(base, 'orders')).value);
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.number-taken').waitFor();
    const taken = await page.locator('.number-taken').textContent();
    check(BigInt(taken) === before + 1n, `${taken} after ${before}`);
    await page.getByLabel('A number, as it was printed').fill(taken);
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('.fate').waitFor();
    const said = await page.locator('.fate').textContent();
    check(said.startsWith(`${taken}: It left its holder’s memory`), said);
    await page.locator('.action .facts').getByText('(this replica)').waitFor();
  });
  await window.step('what is no number is refused in words', async (page) => {
    await page.getByLabel('A number, as it was printed').fill('twelve');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('.action .error').waitFor();
  }, [answered(400, 'explain')]);
  await window.step('a description is text', async (page) => {
    await page.goto(`${base}/#/sequences/invoices`);
    await page.locator('.description').getByText('Invoices <b>by month</b> <img src=x onerror=alert(1)>', { exact: true }).waitFor();
    check((await page.locator('.description *').count()) === 0, 'something of it became an element');
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.number-taken').waitFor();
    const taken = await page.locator('.number-taken').textContent();
    check(/^INV-\d{6}-\d{5}$/.test(taken), taken);
    await page.getByText(/^Value \d+, period \d{6}$/).waitFor();
    await page.getByLabel('A number, as it was printed').fill(taken);
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('.fate').waitFor();
  });
}

async function raising(window, base) {
  const far = '4000000000000000';
  const begin = async (page, floor) => {
    await page.getByLabel('Issue nothing below').fill(floor);
    await page.getByRole('button', { name: 'Raise…' }).click();
    await page.getByRole('dialog', { name: `Raise orders to ${floor}?` }).getByRole('button', { name: 'Raise' }).click();
  };
  await window.step('raising far is refused, and not done without consent', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    await begin(page, far);
    const again = page.getByRole('dialog', { name: /all the same/ });
    await again.getByRole('alert').waitFor();
    const said = await again.getByRole('alert').textContent();
    check(/skip/.test(said) && /\d{10}/.test(said), `what it would skip: ${said}`);
    await again.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Not raised.').waitFor();
    const after = await describe(base, 'orders');
    check(BigInt(after.state.high_water_mark) < BigInt(far), 'it was raised');
  }, [answered(409, 'advance')]);
  await window.step('with consent it is raised', async (page) => {
    await begin(page, far);
    await page.getByRole('dialog').getByRole('button', { name: 'Skip them and raise' }).click();
    await page.getByText(`Nothing below ${far} is issued any more here; everywhere by`).waitFor();
    check(BigInt((await next(base, 'orders')).value) >= BigInt(far), 'a number below the floor');
    await begin(page, '7');
    await page.getByText(`Its floor is ${far} already, and never falls.`).waitFor();
  }, [answered(409, 'advance')]);
  await window.step('raising a little needs one consent', async (page) => {
    const near = String(BigInt(far) + 1000n);
    await begin(page, near);
    await page.getByText(`Nothing below ${near} is issued`).waitFor();
  });
  await window.step('what is no number is refused before anything is asked', async (page) => {
    await page.getByLabel('Issue nothing below').fill('abc');
    await page.getByRole('button', { name: 'Raise…' }).click();
    await page.getByText(/written in digits only/).waitFor();
    check((await page.getByRole('dialog').count()) === 0, 'there is a dialog');
  });
  await window.step('who goes back has not said yes', async (page) => {
    await page.goto(`${base}/#/`);
    await page.goto(`${base}/#/sequences/orders`);
    const sent = [];
    const note = (request) => sent.push(request.url());
    page.on('request', note);
    await page.getByLabel('Issue nothing below').fill(String(BigInt(far) + 2000n));
    await page.getByRole('button', { name: 'Raise…' }).click();
    await page.getByRole('dialog').waitFor();
    await page.goBack();
    await row(page, 'orders').waitFor();
    check((await page.getByRole('dialog').count()) === 0, 'the dialog is still there');
    check(!sent.some((url) => url.endsWith('/advance')), 'it was raised');
    page.off('request', note);
  });
  await window.step('an answer that comes late changes nothing', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    await page.getByLabel('Issue nothing below').waitFor();
    const mark = tile(page, 'High-water mark');
    await until('the mark is there', async () => /^\d+$/.test(await mark.textContent()));
    let late = null;
    const path = (url) => url.pathname.endsWith('/v1/sequences/orders');
    await page.route(path, async (route) => {
      if (late === null) {
        late = { route, response: await route.fetch() };
      } else {
        await route.continue();
      }
    });
    await page.getByRole('button', { name: 'Take a number' }).click();
    await until('an answer is held back', () => late !== null);
    const floor = String(BigInt((await late.response.json()).state.high_water_mark) + 1000n);
    await begin(page, floor);
    await until('the newer one is shown', async () => BigInt(await mark.textContent()) >= BigInt(floor));
    await mark.evaluate((node) => {
      window.marks = [];
      new MutationObserver(() => window.marks.push(node.textContent)).observe(node, { childList: true, characterData: true, subtree: true });
    });
    await late.route.fulfill({ response: late.response });
    await page.waitForResponse((response) => path(new URL(response.url())));
    await page.waitForResponse((response) => path(new URL(response.url())));
    const marks = await page.evaluate(() => window.marks);
    check(marks.every((shown) => BigInt(shown) >= BigInt(floor)), `an old mark was shown: ${marks}`);
    await page.unroute(path);
  });
  await window.step('a period that is raised is named', async (page) => {
    await page.goto(`${base}/#/sequences/invoices`);
    await page.getByRole('heading', { level: 1, name: 'invoices' }).waitFor();
    const { period } = (await describe(base, 'invoices')).state;
    await page.getByLabel('Issue nothing below').fill('1100');
    await page.getByRole('button', { name: 'Raise…' }).click();
    await page.getByRole('dialog', { name: `Raise invoices, period ${period}, to 1100?` }).getByRole('button', { name: 'Raise' }).click();
    await page.getByText(`Nothing below 1100 is issued any more here in period ${period}; everywhere by`).waitFor();
  });
}

async function kinds(window, base) {
  const visit = async (page, name) => {
    await page.goto(`${base}/#/sequences/${name}`);
    await page.getByRole('heading', { level: 1, name }).waitFor();
  };
  await window.step('each kind has its page', async (page) => {
    await visit(page, 'ledger');
    await page.getByText(/^Strict order keeps no block/).waitFor();
    await visit(page, 'events');
    await page.getByText('there is no floor to raise').waitFor();
    await page.getByText('Worker id', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Take a number' }).click();
    const taken = page.locator('.number-taken');
    await taken.waitFor();
    check(/^\d{16,19}$/.test(await taken.textContent()), await taken.textContent());
    await visit(page, 'imports');
    await page.getByText('Not in memory on this replica: the next call fetches it.').waitFor();
    await visit(page, 'tenants');
    await page.getByLabel('Key that is counted by').fill('acme');
    await page.getByRole('button', { name: 'Show', exact: true }).click();
    await page.locator('.chip', { hasText: 'acme' }).waitFor();
    const before = BigInt((await api(base, 'sequences/tenants/next?period=acme', { method: 'POST' })).value);
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.number-taken').waitFor();
    const given = await page.locator('.number-taken').textContent();
    check(given === `acme-${before + 1n}`, `${given} after ${before}`);
  });
  await window.step('a retired one says so', async (page) => {
    await visit(page, 'old-orders');
    await page.locator('.chip', { hasText: 'retired' }).waitFor();
    await page.getByText('The sequence is retired: it issues nothing until you restore it.').waitFor();
    await page.getByRole('button', { name: 'Restore…' }).waitFor();
    check(!(await page.getByRole('button', { name: 'Take a number' }).isVisible()), 'it offers a number of a retired sequence');
  });
  await window.step('one that is made elsewhere becomes whole', async (page) => {
    await visit(page, 'made-elsewhere');
    await page.getByText(/There is no sequence/).waitFor();
    await next(base, 'made-elsewhere');
    await page.locator('.journal tbody tr').first().waitFor();
    await page.getByText('All fields have their default values.').waitFor();
    check((await page.getByText(/There is no sequence/).count()) === 0, 'it is still said that there is none');
  }, [answered(404, 'sequences/made-elsewhere')]);
}

async function keyboard(window, base) {
  await window.step('everything by keyboard', async (page) => {
    await page.goto(`${base}/#/`);
    await page.reload();
    await row(page, 'events').waitFor();
    const visited = [];
    const go = async (key) => {
      await page.keyboard.press(key);
      check(await focusIsSeen(page), `nothing shows where the keyboard is: ${visited}`);
      visited.push(await page.evaluate(() => document.activeElement.textContent || document.activeElement.id));
    };
    const goTo = async (text) => {
      for (let n = 0; n < 40 && visited.at(-1) !== text; n += 1) {
        await go('Tab');
      }
      check(visited.at(-1) === text, `${text} is not reached: ${visited}`);
    };
    await goTo('orders');
    check(visited.join(' ').startsWith('Skip to the content Odometer'), `the order: ${visited}`);
    check(visited.indexOf('filter') < visited.indexOf('events'), `the filter comes before the list: ${visited}`);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'orders' }).waitFor();
    await page.getByRole('button', { name: 'Take a number' }).waitFor();
    await goTo('Take a number');
    await page.keyboard.press('Enter');
    await page.locator('.number-taken').waitFor();
    await goTo('floor');
    await page.keyboard.type('5');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    const focused = () => page.evaluate(() => document.activeElement.textContent);
    check((await focused()) === 'Cancel', `the dialog begins at what changes nothing: ${await focused()}`);
    await page.keyboard.press('Escape');
    await page.getByText('Not raised.').waitFor();
    check((await page.getByRole('dialog').count()) === 0, 'the dialog is still there');
    check((await page.evaluate(() => document.activeElement.id)) === 'floor', 'where the keyboard was before the dialog');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Tab');
    check((await focused()) === 'Raise', `what comes after: ${await focused()}`);
    check(await focusIsSeen(page), 'nothing shows where the keyboard is in the dialog');
    await page.keyboard.press('Enter');
    await page.getByText(/already, and never falls/).waitFor();
  });
}
