// Drives the page of the service at BASE in a browser, through one of the stages below.
//
//   node drive.mjs STAGE BASE [DIRECTORY]
//
// Where something has to be done to what the service stands on, it writes `ask: …` and waits for a line.
import { createInterface } from 'node:readline';
import { anonymous, roles } from './access.mjs';
import { answers } from './answers.mjs';
import { beginning } from './beginning.mjs';
import { withBrowser } from './browser.mjs';
import { controls } from './controls.mjs';
import { lists } from './lists.mjs';
import { operators } from './operators.mjs';
import { outage } from './outage.mjs';
import { pictures } from './pictures.mjs';
import { rights } from './rights.mjs';
import { closed, token } from './token.mjs';
import { tour } from './tour.mjs';

const [stage, base, directory] = process.argv.slice(2);
const stages = { anonymous, answers, beginning, closed, controls, lists, operators, outage, pictures, rights, roles, token, tour };
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function asked(what) {
  console.log(`ask: ${what}`);
  const { done } = await lines.next();
  if (done) {
    throw new Error(`nobody saw to it: ${what}`);
  }
}

await withBrowser((browser) => stages[stage](browser, base, asked, directory));
console.log('done');
process.exit(0);
