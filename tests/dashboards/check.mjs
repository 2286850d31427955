// Checks each file that is named against model.ts, and that the check finds what is wrong in it.
//
//   node check.mjs FILE...
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Ajv from 'ajv';
import { createGenerator } from 'ts-json-schema-generator';

const here = dirname(fileURLToPath(import.meta.url));
const schema = createGenerator({
  path: join(here, 'model.ts'),
  tsconfig: join(here, 'tsconfig.json'),
  type: 'Dashboard',
  additionalProperties: false,
  skipTypeCheck: false,
  jsDoc: 'none',
  expose: 'none',
}).createSchema('Dashboard');
const ajv = new Ajv({ allErrors: true, allowUnionTypes: true, strictTuples: false });
const fits = ajv.compile(schema);

/** What a person gets wrong, each of which must be found in a dashboard that fits. */
const mistakes = {
  'a word Grafana does not know': (dashboard) => (dashboard.refreshes = '10s'),
  'a panel of an unknown kind': (panel) => (panel.panels[1].type = 'timeserie'),
  'a misspelt option': (dashboard) => (dashboard.panels[1].options.colourMode = 'value'),
  'a misspelt setting of a line': (dashboard) => (lines(dashboard).fieldConfig.defaults.custom.lineWidht = 1),
  'a stacking that is none': (dashboard) => (lines(dashboard).fieldConfig.defaults.custom.stacking.mode = 'up'),
  'no unit': (dashboard) => delete dashboard.panels[1].fieldConfig.defaults.unit,
  'no description': (dashboard) => delete dashboard.panels[1].description,
  'a data source of its own': (dashboard) => (dashboard.panels[1].datasource.uid = 'prometheus'),
  'an id set by hand': (dashboard) => (dashboard.panels[1].id = 7),
  'an id of the dashboard': (dashboard) => (dashboard.id = 7),
  'a width in words': (dashboard) => (dashboard.panels[1].gridPos.w = 'wide'),
};

function lines(dashboard) {
  return dashboard.panels.find((panel) => panel.type === 'timeseries');
}

const files = process.argv.slice(2);
let failed = files.length === 0;
for (const file of files) {
  const text = readFileSync(file, 'utf8');
  if (!fits(JSON.parse(text))) {
    failed = true;
    for (const { instancePath, message, params } of fits.errors.slice(0, 20)) {
      console.error(`${file}: ${instancePath} ${message} ${JSON.stringify(params)}`);
    }
    continue;
  }
  for (const [mistake, make] of Object.entries(mistakes)) {
    const dashboard = JSON.parse(text);
    make(dashboard);
    if (fits(dashboard)) {
      failed = true;
      console.error(`${file}: not found: ${mistake}`);
    }
  }
  console.log(`${file}: fits, and ${Object.keys(mistakes).length} mistakes in it are found`);
}
process.exit(failed ? 1 : 0);
