// A definition, field by field: what differs from the default, and all of it for who wants that.

import { h } from './dom.js';
import { withMeaning } from './words.js';

/** What a field is where nobody has set it; of `limit`, null is what suits the other fields. */
const DEFAULTS = {
  kind: 'block', start: '1', step: 1, max: '9007199254740991', order: 'relaxed',
  period: 'none', time_zone: 'UTC', cutover: '00:00', year_starts: '01-01',
  period_back: '2d', period_ahead: '2d', retain: '400d',
  block: { min: 1, max: 1000000000, hold: '15m', refill: '30m' },
  format: '{value}', overflow: 'refuse', declared_rate: null,
  limit: { rate: 100000, burst: 10000000 }, store: 'default',
  layout: { high: 'time', epoch: '2026-01-01T00:00:00Z', unit: '1ms', time: 41, worker: 10, sequence: 12 },
};

/** The fields that say something, and the others behind a word. */
export function definitionOf(definition) {
  // The description stands above all of it.
  const { description, ...fields } = definition;
  const set = Object.entries(fields).filter(([, value]) => value !== null);
  const different = set
    .map(([name, value]) => [name, difference(value, DEFAULTS[name])])
    .filter(([, value]) => value !== undefined);
  return [
    different.length === 0
      ? h('p', { class: 'muted' }, 'All fields have their default values.')
      : fieldsOf(different, 'Fields that differ from the default'),
    h('details', {}, h('summary', {}, 'All fields'), fieldsOf(set, 'All fields')),
  ];
}

/** What of a value is not the default; undefined where all of it is. */
function difference(value, standard) {
  if (value === null || typeof value !== 'object') {
    return value === standard ? undefined : value;
  }
  const parts = Object.entries(value).filter(([name, part]) => part !== standard?.[name]);
  return parts.length === 0 ? undefined : Object.fromEntries(parts);
}

function fieldsOf(fields, label) {
  return h('dl', { class: 'facts', 'aria-label': label }, fields.map(([field, value]) => {
    const name = field.replaceAll('_', ' ');
    return h('div', {}, h('dt', {}, withMeaning(name)), h('dd', {}, h('code', {}, written(value))));
  }));
}

function written(value) {
  if (typeof value === 'object') {
    return Object.entries(value).map(([name, part]) => `${name} ${written(part)}`).join(', ');
  }
  return String(value);
}
