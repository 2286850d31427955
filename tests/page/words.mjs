// Words that are explained, bars and their captions, definitions, names that are not there, and what comes first.
import { check, until } from './browser.mjs';
import { answered, api, names, next, row } from './places.mjs';

export async function words(window, base) {
  await meanings(window, base);
  await captions(window, base);
  await definitions(window, base);
  await misspelt(window, base);
  await sorted(window, base);
}

const opened = (page) => page.locator('.meaning:popover-open');

async function meanings(window, base) {
  await window.step('a word opens one sentence', async (page) => {
    await page.goto(`${base}/#/`);
    const reserve = page.getByRole('button', { name: 'What is “Reserve”?' }).filter({ visible: true });
    await reserve.click();
    await opened(page).getByText('How long the numbers in memory last if the database does not answer.', { exact: true }).waitFor();
    check((await reserve.getAttribute('aria-expanded')) === 'true', 'what is open is not said to be');
    await page.getByRole('button', { name: 'What is “Runway”?' }).filter({ visible: true }).click();
    await opened(page).getByText(/that no replica has reserved yet\.$/).waitFor();
    check((await opened(page).count()) === 1, `${await opened(page).count()} sentences are open`);
    check((await reserve.getAttribute('aria-expanded')) === 'false', 'what is closed is said to be open');
    await reserve.focus();
    await page.keyboard.press('Enter');
    await opened(page).getByText(/if the database does not answer\.$/).waitFor();
    await page.keyboard.press('Escape');
    await until('it is closed', async () => (await opened(page).count()) === 0);
    check((await page.evaluate(() => document.activeElement.getAttribute('aria-label'))) === 'What is “Reserve”?', 'the focus is elsewhere');
  });
  await window.step('each of these words has its sentence, within the window', async (page) => {
    for (const [place, least] of [['', 6], ['sequences/invoices', 8], ['new', 5]]) {
      await page.goto(`${base}/#/${place}`);
      const marks = page.locator('main button.what').filter({ visible: true });
      await until('they are there', async () => (await marks.count()) >= least);
      for (let n = 0; n < (await marks.count()); n += 1) {
        const name = await marks.nth(n).getAttribute('aria-label');
        await marks.nth(n).click();
        await until(`${name} is shown`, async () => (await page.locator('.meaning[data-placed]').count()) === 1);
        const said = await opened(page).textContent();
        check(/^[A-Z][^.?!]{10,}\.$/.test(said), `${place}, ${name}: ${said}`);
        const { left, right, width } = await opened(page).evaluate((node) => {
          const at = node.getBoundingClientRect();
          return { left: at.left, right: at.right, width: document.documentElement.clientWidth };
        });
        check(left >= 0 && right <= width, `${place}, ${name}: from ${left} to ${right} of ${width}`);
        await page.keyboard.press('Escape');
      }
    }
  });
}

async function captions(window, base) {
  await window.step('a bar shows what its caption counts', async (page) => {
    await page.goto(`${base}/#/`);
    const meter = row(page, 'orders').getByRole('meter', { name: 'Block left' });
    const number = (text) => Number(text.replaceAll(',', '')) * (/k/.test(text) ? 1000 : 1);
    const shown = async () => meter.evaluate((node) => ({
      now: Number(node.getAttribute('aria-valuenow')), text: node.getAttribute('aria-valuetext'),
      caption: node.parentElement.querySelector('.left').textContent,
      // The bar moves for a moment: its end is what it is given.
      filled: parseFloat(node.querySelector('.fill').style.inlineSize),
    }));
    const { now, text, caption, filled } = await shown();
    const [, remaining, size] = caption.match(/^([\d.,]+(?: k)?) of ([\d.,]+(?: k)?) left$/) ?? [];
    check(text === caption, `to a reader it says ${text}, to the eye ${caption}`);
    const part = (100 * number(remaining)) / number(size);
    check(Math.abs(now - part) <= 1 && Math.abs(filled - part) <= 1, `${caption} is ${part} %, the bar ${now} and ${filled}`);
    const { sequences } = await api(base, 'replica/sequences?contains=orders');
    const { block } = sequences.find((one) => one.sequence === 'orders');
    await api(base, `sequences/orders/next?count=${Math.min(10000, Math.max(1, Math.floor(block.remaining / 2)))}`, { method: 'POST' });
    await until('less is left', async () => {
      const after = await shown();
      return after.now < now || after.caption !== caption;
    });
    await page.goto(`${base}/#/sequences/orders`);
    await page.getByRole('meter', { name: 'Being issued: left' }).waitFor();
  });
  await window.step('a chart has one unit', async (page) => {
    await page.goto(`${base}/#/sequences/orders`);
    const chart = page.locator('.chart').filter({ hasText: 'Reserve' });
    await until('it has figures', async () => /^Average/.test(await chart.locator('.muted').textContent()));
    const { unit, ticks, caption } = await chart.evaluate((node) => ({
      ticks: [...node.querySelectorAll('.tick')].map((tick) => tick.textContent).filter((text) => !/now|−/.test(text)),
      caption: node.querySelector('.muted').textContent, unit: node.querySelector('.tick').textContent.split(' ').at(-1),
    }));
    const units = [...ticks.join(' ').matchAll(/[a-z]+/g), ...caption.slice('Average'.length).replace(/least|most/g, '').matchAll(/[a-z]+/g)].map(String);
    check(ticks.length === 3 && units.length === 6, `vacuous: ${ticks}; ${caption}`);
    check(units.every((one) => one === unit), `units: ${units}`);
  });
}

async function definitions(window, base) {
  await window.step('of a definition only what differs is shown', async (page) => {
    const fields = async () => page.getByLabel('Fields that differ from the default').locator('div').evaluateAll((nodes) => nodes.map((node) => `${node.querySelector('dt > span').textContent} ${node.querySelector('dd').textContent}`));
    const expected = {
      events: ['kind snowflake'],
      invoices: ['start 1001', 'period month', 'format INV-{yyyy}{MM}-{value:05}'],
      vouchers: ['max 500000', 'format V{value:06}'],
      ledger: ['order strict'],
    };
    for (const [name, wanted] of Object.entries(expected)) {
      await page.goto(`${base}/#/sequences/${name}`);
      await until(`those of ${name}`, async () => (await fields()).join('; ') === wanted.join('; '));
    }
    await page.goto(`${base}/#/sequences/imports`);
    await page.getByText('All fields have their default values.').waitFor();
    check((await fields()).length === 0, `of a default one: ${await fields()}`);
    const highest = page.getByText('9007199254740991', { exact: true });
    check(!(await highest.isVisible()), 'the others are shown unasked');
    await page.getByText('All fields', { exact: true }).click();
    await highest.waitFor();
    const written = await page.locator('details code').allTextContents();
    const { definition } = await api(base, 'sequences/imports');
    for (const value of Object.values(definition).filter((value) => typeof value === 'string' && value !== '')) {
      check(written.includes(value), `${value} is not among ${written}`);
    }
  });
}

async function misspelt(window, base) {
  await window.step('a misspelt name leads to the right one, and is not created', async (page) => {
    await page.goto(`${base}/#/sequences/ordrs`);
    await page.getByText('There is no sequence “ordrs”.').waitFor();
    const meant = page.locator('.suggestions').getByRole('link', { name: 'orders', exact: true });
    await meant.waitFor();
    const buttons = await page.locator('main').getByRole('button').filter({ visible: true }).allTextContents();
    check(buttons.length === 0, `it offers ${buttons}`);
    check((await page.locator('main').getByRole('textbox').filter({ visible: true }).count()) === 0, 'it asks for something');
    check((await api(base, 'sequences/ordrs')).code === 'sequence_not_found', 'it was created');
    await page.goto(`${base}/#/sequences/quite-another`);
    await page.getByText('There is no sequence “quite-another”.').waitFor();
    check((await page.locator('.suggestions').count()) === 0, 'it suggests something');
    check((await page.getByRole('link', { name: 'create a new sequence' }).getAttribute('href')) === '#/new', 'where it leads');
    await page.goBack();
    await meant.click();
    await page.getByRole('heading', { level: 1, name: 'orders', exact: true }).waitFor();
    await page.getByRole('button', { name: 'Take a number' }).waitFor();
    check((await page.getByText(/There is no sequence/).count()) === 0, 'of this one it says that there is none');
  }, [answered(404, 'sequences/ordrs'), answered(404, 'sequences/quite-another')]);
}

async function sorted(window, base) {
  await window.step('the list is sorted by the time that is left', async (page) => {
    await page.goto(`${base}/#/`);
    await next(base, 'vouchers');
    await row(page, 'vouchers').waitFor();
    const byName = await names(page);
    const heading = (name) => page.getByRole('columnheader', { name: new RegExp(`^${name}`) });
    for (const [value, title, key] of [['runway', 'Runway', (one) => one.runway?.days_left ?? Infinity], ['reserve', 'Reserve', (one) => one.reserve_seconds ?? Infinity]]) {
      await page.getByLabel('Sort by').selectOption(value);
      await until(`the order by ${value}`, async () => {
        const { sequences } = await api(base, `replica/sequences?sort=${value}`);
        const shown = await names(page);
        return shown.join() === sequences.map((one) => one.sequence).join() && shown.join() !== byName.join();
      });
      const { sequences } = await api(base, 'replica/sequences');
      const times = sequences.filter((one) => !one.retired && one.period_ends === null).map(key);
      const first = sequences.find((one) => one.sequence === 'vouchers');
      check(value !== 'runway' || key(first) === Math.min(...times), `vouchers has ${key(first)} of ${times}`);
      check(value !== 'runway' || (await names(page))[0] === 'vouchers', `first comes ${(await names(page))[0]}`);
      check((await heading(title).getAttribute('aria-sort')) === 'ascending', `the heading of ${value}`);
    }
    check((await heading('Runway').getAttribute('aria-sort')) === null, 'two headings are sorted by');
    await page.getByLabel('Sort by').selectOption('name');
    await until('the order by name', async () => (await names(page)).join() === byName.join());
  });
}
