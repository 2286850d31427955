// What the other steps look for is found where it is: each fault is planted, and has to be noticed.
import { Window, check, focusIsSeen, leaks, remains, tooPale, tooWide, until } from './browser.mjs';

export async function controls(browser, base) {
  const planted = {
    'an error on the console': [() => console.error('planted'), /planted/],
    'an error that is thrown': [() => setTimeout(() => { throw new Error('planted'); }), /thrown: .*planted/],
    'a script in the page': [() => {
      const script = document.createElement('script');
      script.textContent = 'document.title = "run"';
      document.body.append(script);
    }, /Content Security Policy/],
    'a style in the page': [() => document.body.setAttribute('style', 'color: red'), /Content Security Policy/],
    'a request to another host': [() => { fetch('http://127.0.0.1:9/planted').catch(() => {}); }, /asked for http:\/\/127\.0\.0\.1:9\/planted|Content Security Policy/],
    'a picture from another host': [() => { new Image().src = 'http://odometer.invalid/planted.png'; }, /odometer\.invalid/],
    'a path that is not there': [() => fetch('v1/nowhere'), /status of 404/],
  };
  for (const [name, [plant, pattern]] of Object.entries(planted)) {
    const window = await Window.open(browser, base);
    await window.page.locator('.tiles dd').first().waitFor();
    check(window.faults().length === 0, `${name}: ${window.faults()}`);
    await window.page.evaluate(plant);
    await until(`${name} is noticed`, () => window.faults().some((fault) => pattern.test(fault)));
    let refused = false;
    await window.step(name, async () => {}).catch(() => { refused = true; });
    check(refused, `${name}: the step went through`);
    check((await window.page.title()) !== 'run', `${name}: it was run`);
    await window.close();
    console.log(`found: ${name}`);
  }
  await foreign(browser, base);
  await looks(browser, base);
  await secrets(browser, base);
  await remnants(browser, base);
}

/** The policy keeps the page from asking elsewhere; without it, it is the driver that notices. */
async function foreign(browser, base) {
  const context = await browser.newContext({ bypassCSP: true });
  const page = await context.newPage();
  const window = new Window(context, page, base);
  await page.goto(`${base}/`);
  await page.evaluate(() => { fetch('http://127.0.0.1:9/planted', { mode: 'no-cors' }).catch(() => {}); });
  await until('a foreign request is recorded', () => window.foreign.some((url) => url.endsWith(':9/planted')));
  await window.close();
  console.log('found: a request that no policy kept back');
}

async function looks(browser, base) {
  const window = await Window.open(browser, base, { viewport: { width: 390, height: 844 } });
  const { page } = window;
  await page.locator('.tiles dd').first().waitFor();
  check((await tooWide(page)).length === 0, 'too wide before anything is planted');
  await page.evaluate(() => { document.querySelector('main').style.width = '400px'; });
  check((await tooWide(page)).length > 0, 'an element that is too wide was not found');
  console.log('found: an element that is too wide');
  check((await tooPale(page)).length === 0, 'too pale before anything is planted');
  await page.evaluate(() => { document.querySelector('.tiles dd').style.color = '#999'; });
  check((await tooPale(page)).length > 0, 'pale text was not found');
  console.log('found: text that is too pale');
  await page.keyboard.press('Tab');
  check(await focusIsSeen(page), 'the first stop of the keyboard is not seen');
  await page.evaluate(() => { document.activeElement.style.outline = 'none'; });
  check(!(await focusIsSeen(page)), 'a focus that nobody sees was not found');
  console.log('found: a focus that nobody sees');
  await window.close();
}

async function secrets(browser, base) {
  const window = await Window.open(browser, base);
  const { page } = window;
  check((await leaks(page, 'planted')).length === 0, 'a secret before one is planted');
  for (const [place, plant] of Object.entries({
    'the local storage': () => localStorage.setItem('a', 'planted'),
    'the session storage': () => sessionStorage.setItem('a', 'planted'),
    'a cookie': () => { document.cookie = 'a=planted'; },
    'the history': () => history.replaceState('planted', ''),
    'the address': () => { location.hash = '#planted'; },
    'the document': () => { document.getElementById('version').title = 'planted'; },
  })) {
    await page.evaluate(plant);
    check((await leaks(page, 'planted')).includes(place), `a secret in ${place} was not found`);
  }
  await window.close();
  console.log('found: a secret in each place where it can be kept');
}

async function remnants(browser, base) {
  for (const [place, plant] of Object.entries({
    'the title': () => { document.title = 'planted'; },
    'a hidden element': () => {
      const hidden = document.createElement('p');
      hidden.hidden = true;
      hidden.textContent = 'planted';
      document.querySelector('main').append(hidden);
    },
    'an attribute': () => document.getElementById('replica').setAttribute('title', 'planted'),
    'a dialog that is closed': () => {
      const dialog = document.createElement('dialog');
      dialog.textContent = 'planted';
      document.body.append(dialog);
    },
  })) {
    const window = await Window.open(browser, base);
    await window.page.locator('.tiles dd').first().waitFor();
    check((await remains(window.page, ['planted'])).length === 0, 'a word before it is planted');
    await window.page.evaluate(plant);
    check((await remains(window.page, ['planted'])).length === 1, `a word in ${place} was not found`);
    await window.close();
  }
  console.log('found: a word in each place where it can remain');
}
