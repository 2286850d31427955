// A new sequence: what it should be, what that gives, and the question whether to create it.

import { Refusal, linkTo, pathOf } from './api.js';
import { lacking } from './caller.js';
import { action, ask, withToken } from './dialog.js';
import { h, instead } from './dom.js';
import { count, duration, end } from './format.js';
import { meaning } from './words.js';

const NAME = '[A-Za-z0-9][A-Za-z0-9._:\\-]{0,127}';

/** How numbers come about, and the fields that say so; what is not chosen comes from the configuration. */
const KINDS = {
  '': ['As configured', {}],
  relaxed: ['Counted, from blocks in memory', { kind: 'block', order: 'relaxed' }],
  strict: ['Counted, in strict order across replicas', { kind: 'block', order: 'strict' }],
  snowflake: ['Time-ordered (snowflake)', { kind: 'snowflake' }],
};

const PERIODS = [
  ['', 'As configured'], ['none', 'Never'], ['day', 'Each day'], ['week', 'Each week'],
  ['month', 'Each month'], ['year', 'Each year'], ['keyed', 'For each key that callers give'],
];

export function creation() {
  const name = h('input', {
    id: 'new-name', required: true, pattern: NAME, maxlength: 128, autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off',
    'aria-describedby': 'new-name-rule',
  });
  const text = (id, options = {}) => h('input', { id, autocomplete: 'off', spellcheck: 'false', ...options });
  const number = { inputmode: 'numeric', pattern: '[0-9]{1,19}', maxlength: 19 };
  const description = text('new-description', { maxlength: 1024 });
  const kind = h('select', { id: 'new-kind', onchange: () => { counted.hidden = counted.disabled = kind.value === 'snowflake'; } },
    Object.entries(KINDS).map(([value, [words]]) => h('option', { value }, words)));
  const period = h('select', { id: 'new-period' }, PERIODS.map(([value, words]) => h('option', { value }, words)));
  const start = text('new-start', { ...number, placeholder: 'As configured, usually 1' });
  const max = text('new-max', { ...number, placeholder: 'As configured' });
  const format = text('new-format', { maxlength: 128, placeholder: 'INV-{yyyy}-{value:06}' });
  // Disabled where it is hidden, so that no hidden field is checked.
  const counted = h('fieldset', { class: 'fields' },
    field('First number', 'start', start), field('Last number', 'max', max), field('Starts again', 'period', period));

  const made = action('Check and create…', 'main', async () => {
    const wanted = name.value.trim();
    const isCounted = kind.value !== 'snowflake';
    const given = {
      ...KINDS[kind.value][1],
      ...(isCounted ? { start: start.value.trim(), max: max.value.trim(), period: period.value } : {}),
      format: format.value.trim(), description: description.value.trim(),
    };
    const body = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ''));
    return created(made.form, wanted, body);
  });
  made.form.append(
    h('div', { class: 'field' }, h('label', { for: 'new-name' }, 'Name'), name,
      h('p', { id: 'new-name-rule', class: 'muted' }, 'Letters, digits and the signs . _ : - with a letter or digit first. The name is for good.')),
    field('Description', null, description),
    field('How ids are made', 'kind', kind),
    counted,
    field('Format', 'format', format),
    h('p', { class: 'muted' }, 'What you leave empty comes from the configuration of this service. You see the first ids before anything is created.'),
    made.button, made.result);

  return {
    node: h('div', { class: 'stack narrow' },
      h('nav', { class: 'back', 'aria-label': 'Back' }, h('a', { href: '#/' }, '← All sequences')),
      h('h1', {}, 'New sequence'),
      h('section', { class: 'card', 'aria-label': 'What it should be' }, instead(), lacking('define'), h('div', { class: 'changes defines' }, made.form))),
    async refresh() {},
    refused() {},
  };
}

function field(label, word, input) {
  const what = word === null ? null : meaning(word, label);
  return h('div', { class: 'field' }, h('div', {}, h('label', { for: input.id }, label), ' ', what), input);
}

/** Asks with what a dry run shows, and creates; never changes what is there. */
async function created(form, name, body) {
  const send = (query) => withToken(form, pathOf(name, '', query), { method: 'PUT', body, headers: { 'If-None-Match': '*' } });
  try {
    const { samples, runway, warnings } = await send({ dry_run: true });
    if (!form.isConnected) {
      return null;
    }
    const consent = await ask({
      title: `Create ${name}?`,
      words: [
        h('dl', { class: 'facts' },
          fact('First ids', h('code', { class: 'samples' }, samples.length === 0 ? 'None now' : samples.join(', '))),
          fact('Runway', h('span', { class: 'lasts' }, lasts(runway)))),
        ...warnings.map((warning) => h('p', { class: 'warning' }, warning.replaceAll('`', ''))),
        h('p', {}, 'You can retire a sequence, but not delete it. Its kind, its first number and its period cannot change later.'),
      ],
      yes: 'Create',
    });
    if (consent === null) {
      return h('p', { class: 'muted' }, 'Not created.');
    }
    await send({});
  } catch (refusal) {
    if (refusal instanceof Refusal && refusal.code === 'already_exists') {
      return h('p', { class: 'error' }, refusal.message.replaceAll('`', ''), ' ', h('a', { href: linkTo(name) }, `Show ${name}`));
    }
    throw refusal;
  }
  if (form.isConnected) {
    location.hash = linkTo(name);
  }
  return null;
}

function fact(name, value) {
  return h('div', {}, h('dt', {}, name), h('dd', {}, value));
}

/** How many numbers there are, and for how long where a rate is known. */
function lasts(runway) {
  const numbers = `${count(runway.numbers_left)} numbers ${end(runway.limit)}`;
  return runway.days_left === null ? numbers : `${duration(runway.days_left * 86400)}: ${numbers}`;
}
