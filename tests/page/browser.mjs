// A browser of its own, everything it says and asks for, and what a page must not do.
import { chromium } from 'playwright-core';

const FLAGS = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
  // Nothing but this machine has a name.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];
const PATIENCE_MS = 20000;

export function fail(message) {
  throw new Error(message);
}

export function check(holds, message) {
  if (!holds) {
    fail(message);
  }
}

/** Waits until `probe` is true. */
export async function until(what, probe) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    if (await probe()) {
      return;
    }
    check(Date.now() < end, `waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Runs `work` with a browser, and ends it. */
export async function withBrowser(work) {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS });
  try {
    await work(browser);
  } finally {
    await browser.close();
  }
}

/** One window on the service at `base`, whose doings are watched. */
export class Window {
  static async open(browser, base, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1180, height: 820 }, colorScheme: 'light', ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    const window = new Window(context, page, base);
    await page.goto(`${base}/`);
    return window;
  }

  constructor(context, page, base) {
    Object.assign(this, { context, page, base, said: [], foreign: [], underWay: new Set() });
    page.on('request', (request) => this.underWay.add(request));
    page.on('requestfinished', (request) => this.underWay.delete(request));
    page.on('requestfailed', (request) => this.underWay.delete(request));
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) {
        this.said.push(`${message.text()} (${message.location().url})`);
      }
    });
    page.on('pageerror', (error) => this.said.push(`thrown: ${error.stack}`));
    context.on('request', (request) => {
      if (new URL(request.url()).origin !== base) {
        this.foreign.push(request.url());
      }
    });
  }

  /** What was said or asked for that nobody provoked; each pattern is of lines that may be said. */
  faults(provoked = []) {
    const unexpected = this.said.filter((line) => !provoked.some((pattern) => pattern.test(line)));
    return [...unexpected, ...this.foreign.map((url) => `asked for ${url}`)];
  }

  /** Runs one step and looks what it made the page say: `provoked` has to be said, `late` may be. */
  async step(name, work, provoked = [], late = []) {
    try {
      await work(this.page);
    } catch (error) {
      error.message = `${name}: ${error.message}\n${this.said.join('\n')}\n${await this.page.locator('body').innerText()}`;
      throw error;
    }
    const faults = this.faults([...provoked, ...late]);
    check(faults.length === 0, `${name}: ${faults.join('\n')}`);
    for (const pattern of provoked) {
      check(this.said.some((line) => pattern.test(line)), `${name}: vacuous, ${pattern} was not said`);
    }
    this.said.length = 0;
    console.log(`step: ${name}`);
  }

  /**
   * Turns the clock of the page on, a second at a time, and lets all calls end in between.
   * The same clock says when the page waits for an answer no more, so without that it would give up calls.
   */
  async turn(seconds) {
    for (let n = 0; n < seconds; n += 1) {
      await this.page.clock.runFor(1000);
      await until('all calls have ended', () => this.underWay.size === 0);
    }
  }

  async close() {
    // What is answered in place of the service may be on its way.
    await this.page.unrouteAll({ behavior: 'ignoreErrors' });
    await this.context.unrouteAll({ behavior: 'ignoreErrors' });
    await this.context.close();
  }
}

/** What is wider than the window, and how far the page can be scrolled sideways. */
export function tooWide(page) {
  return page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const found = [...document.body.querySelectorAll('*')].filter((node) => {
      const { right, left, width: own } = node.getBoundingClientRect();
      return own > 1 && getComputedStyle(node).position !== 'absolute' && (right > width + 0.5 || left < -0.5);
    });
    const scrolls = document.documentElement.scrollWidth - width;
    return [...found.map((node) => `${node.tagName} ${node.className}`), ...(scrolls > 0 ? [`scrolls ${scrolls} px`] : [])];
  });
}

/** Text that is hard to read: less than 4.5 to 1 against what is behind it. */
export function tooPale(page) {
  return page.evaluate(() => {
    const context = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
    const channels = (colour) => {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
      return [red, green, blue, alpha / 255];
    };
    const light = ([red, green, blue]) => {
      const [r, g, b] = [red, green, blue].map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
      for (let at = node; at; at = at.parentElement) {
        const colour = channels(getComputedStyle(at).backgroundColor);
        if (colour[3] > 0.99) {
          return colour;
        }
      }
      return [255, 255, 255, 1];
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    let n = 0;
    while (walker.nextNode()) {
      const node = walker.currentNode.parentElement;
      if (walker.currentNode.textContent.trim() === '' || !node.checkVisibility() || node.closest('noscript')) {
        continue;
      }
      n += 1;
      const style = getComputedStyle(node);
      const colour = node instanceof SVGElement ? style.fill : style.color;
      const [one, other] = [light(channels(colour)), light(behind(node))].sort((a, b) => b - a);
      const contrast = (one + 0.05) / (other + 0.05);
      if (contrast < 4.5) {
        found.push(`${walker.currentNode.textContent.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
      }
    }
    return n < 10 ? [`vacuous: ${n} texts`] : found;
  });
}

/** Where a secret is that the page has to keep in its memory alone. */
export async function leaks(page, secret) {
  const places = await page.evaluate(() => ({
    'the local storage': JSON.stringify({ ...localStorage }),
    'the session storage': JSON.stringify({ ...sessionStorage }),
    'a cookie': document.cookie,
    'the history': JSON.stringify(history.state),
    'the address': location.href,
    'the document': document.documentElement.outerHTML,
  }));
  return Object.entries(places).filter(([, text]) => text.includes(secret)).map(([place]) => place);
}

/** Which of these words are in the document, shown or hidden. */
export async function remains(page, words) {
  const text = await page.evaluate(() => document.documentElement.outerHTML);
  return words.filter((word) => text.includes(word));
}

/** Whether one sees where the keyboard is. */
export function focusIsSeen(page) {
  return page.evaluate(() => {
    const style = getComputedStyle(document.activeElement);
    return document.activeElement !== document.body && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  });
}
