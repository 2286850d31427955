// A service without a sequence: the way to the first one, and what becomes of it.
import { Window, check, focusIsSeen, tooPale, tooWide, until } from './browser.mjs';
import { answered, api, at, describe, next, problem } from './places.mjs';

const create = (page) => page.getByRole('button', { name: 'Check and create…' });
const dialog = (page, name) => page.getByRole('dialog', { name });

export async function beginning(browser, base) {
  const window = await Window.open(browser, base);
  await empty(window, browser, base);
  await creating(window, base);
  await retiring(window, base);
  await window.close();
}

async function empty(window, browser, base) {
  const call = `curl -X POST ${base}/v1/sequences/orders/next`;
  await window.step('an empty service says how to begin', async (page) => {
    const card = page.getByRole('region', { name: 'There is no sequence yet' });
    await card.waitFor();
    check((await card.locator('pre').textContent()) === call, await card.locator('pre').textContent());
    const guide = await card.getByRole('link', { name: 'Read the guide' }).evaluate((node) => node.href);
    check(guide === `${base}/docs/`, `the guide is at ${guide}`);
    check(!(await page.getByLabel('Filter by name').isVisible()), 'there is a list of nothing');
    check(!(await page.getByText('Not in memory here').isVisible()), 'there is another list of nothing');
    await window.context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await card.getByRole('button', { name: 'Copy' }).click();
    await card.getByText('Copied.').waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    check(copied === call, `copied: ${copied}`);
  });
  await window.step('what cannot be copied is selected', async (page) => {
    await page.evaluate(() => {
      Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true });
      document.execCommand = () => false;
    });
    await page.getByRole('button', { name: 'Copy' }).click();
    await page.getByText('The text is selected. Press Ctrl+C to copy it.').waitFor();
    check((await page.evaluate(() => getSelection().toString())) === call, 'something else is selected');
  });
  for (const colorScheme of ['light', 'dark']) {
    const small = await Window.open(browser, base, { viewport: { width: 375, height: 812 }, colorScheme, isMobile: true, hasTouch: true });
    await small.step(`the beginning fits 375 pixels, ${colorScheme}`, async (page) => {
      await page.getByRole('region', { name: 'There is no sequence yet' }).waitFor();
      await fits(page, 'the beginning');
      await page.getByRole('button', { name: 'Create a sequence' }).tap();
      await page.getByRole('heading', { level: 1, name: 'New sequence' }).waitFor();
      await fits(page, 'the form');
      await page.getByLabel('Name', { exact: true }).fill('vouchers');
      await page.getByRole('textbox', { name: 'Last number' }).fill('5000');
      await page.getByRole('textbox', { name: 'Format' }).fill(`${'A'.repeat(90)}{value:03}`);
      await create(page).tap();
      await dialog(page, 'Create vouchers?').waitFor();
      await page.locator('.warning').first().waitFor();
      await fits(page, 'the question');
      await page.getByRole('button', { name: 'Cancel' }).tap();
      await page.getByText('Not created.').waitFor();
    });
    await small.close();
  }
}

async function fits(page, what) {
  const [wide, pale] = [await tooWide(page), await tooPale(page)];
  check(wide.length === 0 && pale.length === 0, `${what}: ${wide}; ${pale}`);
}

async function creating(window, base) {
  const sent = [];
  await window.step('the button leads to what a sequence can be', async (page) => {
    page.on('request', (request) => request.method() === 'PUT' && sent.push(request));
    await page.getByRole('button', { name: 'Create a sequence' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'New sequence' }).waitFor();
    check((await page.title()) === 'New sequence · Odometer', await page.title());
    const first = page.getByRole('textbox', { name: 'First number' });
    await page.getByLabel('How ids are made', { exact: true }).selectOption('snowflake');
    check(!(await first.isVisible()), 'a time-ordered one is asked for its first number');
    await page.getByLabel('How ids are made', { exact: true }).selectOption('');
    await first.waitFor();
    await create(page).focus();
    check(await focusIsSeen(page), 'nothing shows where the keyboard is');
    await create(page).click();
    check(sent.length === 0, 'it was sent without a name');
  });
  await window.step('a definition that is refused says why', async (page) => {
    await page.getByLabel('Name', { exact: true }).fill('invoices');
    await page.getByRole('textbox', { name: 'Format' }).fill('no number');
    await create(page).click();
    const { detail } = await api(base, 'sequences/invoices?dry_run=true', {
      method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ format: 'no number' }),
    });
    await page.locator('.action .error').getByText(detail, { exact: true }).waitFor();
    check((await page.getByRole('dialog').count()) === 0, 'it asks all the same');
  }, [answered(400, 'invoices')]);
  await window.step('nothing is created without consent', async (page) => {
    await page.getByRole('textbox', { name: 'First number' }).fill('1001');
    await page.getByRole('textbox', { name: 'Format' }).fill('INV-{value:05}');
    await page.getByRole('textbox', { name: 'Description' }).fill('Invoices <b>of the shop</b>');
    await create(page).click();
    const question = dialog(page, 'Create invoices?');
    await question.getByText('INV-01001, INV-01002, INV-01003', { exact: true }).waitFor();
    await question.getByText('99 k numbers to the width of the format', { exact: true }).waitFor();
    check((await page.evaluate(() => document.activeElement.textContent)) === 'Cancel', 'the dialog begins at what changes something');
    await question.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Not created.').waitFor();
    check((await api(base, 'sequences/invoices')).code === 'sequence_not_found', 'it was created');
    check(sent.every((request) => request.url().endsWith('?dry_run=true')), 'more than a dry run was sent');
  });
  await window.step('with consent it is created', async (page) => {
    await create(page).click();
    await dialog(page, 'Create invoices?').getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'invoices' }).waitFor();
    const { definition } = await describe(base, 'invoices');
    check(definition.start === '1001' && definition.format === 'INV-{value:05}', JSON.stringify(definition));
    await page.locator('.description').getByText('Invoices <b>of the shop</b>', { exact: true }).waitFor();
    check(sent.length > 2 && sent.every((request) => request.headers()['if-none-match'] === '*'), 'it might have changed what was there');
    check((await next(base, 'invoices')).id === 'INV-01001', 'its first id');
  });
  await window.step('a name that there is already is not changed', async (page) => {
    await page.goto(`${base}/#/new`);
    await page.getByLabel('Name', { exact: true }).fill('invoices');
    await page.getByRole('textbox', { name: 'Last number' }).fill('50000');
    await create(page).click();
    await page.locator('.action .error').getByText('Sequence invoices exists already.').waitFor();
    check((await describe(base, 'invoices')).definition.max !== '50000', 'it was changed');
    await page.getByRole('link', { name: 'Show invoices' }).click();
    await page.getByRole('heading', { level: 1, name: 'invoices' }).waitFor();
  }, [answered(412, 'invoices')]);
}

async function retiring(window, base) {
  const status = async () => (await fetch(`${base}/v1/sequences/invoices/next`, { method: 'POST' })).status;
  const ask = async (page, what) => {
    await page.getByRole('button', { name: `${what}…` }).click();
    return dialog(page, `${what} invoices?`);
  };
  await window.step('a refusal is shown in its own words', async (page) => {
    await page.route(at('sequences/invoices/next'), (route) => route.fulfill({ status: 410, ...problem('sequence_retired', 'Sequence `invoices` is retired.') }));
    await page.getByRole('button', { name: 'Take a number' }).click();
    await page.locator('.action .error').getByText('Sequence `invoices` is retired.').waitFor();
    await page.unroute(at('sequences/invoices/next'));
  }, [answered(410, 'next')]);
  await window.step('nothing is retired without consent', async (page) => {
    const question = await ask(page, 'Retire');
    await question.getByText('Calls for a number then get status 410: here at once, on the other replicas within 10 s. The counter stays, and you can restore the sequence.').waitFor();
    await question.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Not retired.').waitFor();
    check((await status()) === 200, 'it was retired');
  });
  await window.step('with consent it is retired', async (page) => {
    await (await ask(page, 'Retire')).getByRole('button', { name: 'Retire', exact: true }).click();
    await page.getByText('Retired: nothing is issued here any more, and on the other replicas within 10 s.').waitFor();
    check((await status()) === 410, 'it gives numbers');
    await page.locator('.chip', { hasText: 'retired' }).waitFor();
    await page.getByRole('button', { name: 'Restore…' }).waitFor();
    await until('nothing of it is offered', async () => !(await page.getByRole('button', { name: 'Take a number' }).isVisible()));
    check(!(await page.getByLabel('Issue nothing below').isVisible()), 'its floor can be raised');
  });
  await window.step('it is restored from its high-water mark', async (page) => {
    const mark = (await describe(base, 'invoices')).state.high_water_mark;
    const question = await ask(page, 'Restore');
    await question.getByText(`It goes on from its high-water mark, ${mark}.`).waitFor();
    await question.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Not restored.').waitFor();
    check((await status()) === 410, 'it was restored');
    await (await ask(page, 'Restore')).getByRole('button', { name: 'Restore', exact: true }).click();
    await page.getByText(`Restored: it goes on from ${mark} here; everywhere by`).waitFor();
    check(BigInt((await next(base, 'invoices')).value) >= BigInt(mark), 'a number below the mark');
    await page.getByRole('button', { name: 'Take a number' }).waitFor();
    await until('it is called retired no more', async () => (await page.locator('.chip', { hasText: 'retired' }).count()) === 0);
  });
}
