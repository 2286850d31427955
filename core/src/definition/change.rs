//! Reads what a caller asks a definition to be. Fields that are absent stay as they are.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::check::MAX_STEP;
use super::once::Once;
use super::{BlockPolicy, ChangeError, Definition, DefinitionError, Kind, Order};
use super::{Span, number, time_ordered};
use crate::format::{Format, Overflow};
use crate::snowflake::Layout;
use crate::{duration, period::PeriodKind};

const FIELDS: &str = "kind, start, step, max, order, period, time_zone, cutover, year_starts, \
    period_back, period_ahead, retain, block, format, overflow, declared_rate, store, \
    description, layout";

const BLOCK_FIELDS: &str = "min, max, hold, refill";

/// The fields of a [`Definition`] that a caller gave. The other fields keep their values, or get
/// the values of the template.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DefinitionChange {
    /// The kind: how the numbers are made. [`Definition`] describes this field and the fields
    /// below.
    pub kind: Option<Kind>,
    /// The first number.
    pub start: Option<i64>,
    /// The distance between two numbers.
    pub step: Option<i64>,
    /// The bound of the numbers: no number is above it.
    pub max: Option<i64>,
    /// The promise about the order of numbers.
    pub order: Option<Order>,
    /// The kind of period.
    pub period: Option<PeriodKind>,
    /// The time zone of calendar periods.
    pub time_zone: Option<String>,
    /// The time of day at which a day ends and the next one begins.
    pub cutover: Option<String>,
    /// The month and day on which years start.
    pub year_starts: Option<String>,
    /// The longest time ago that a calendar period may have ended, for a caller to name it.
    pub period_back: Option<Span>,
    /// The longest time ahead that a calendar period may begin, for a caller to name it.
    pub period_ahead: Option<Span>,
    /// The time for which calendar periods are kept after their end.
    pub retain: Option<Span>,
    /// The sizes and times of blocks.
    pub block: Option<BlockChange>,
    /// The pattern that numbers are printed with.
    pub format: Option<String>,
    /// The rule for a number that is too long for the format.
    pub overflow: Option<Overflow>,
    /// The expected numbers a second. The inner `None` is a `null`.
    pub declared_rate: Option<Option<f64>>,
    /// The store that keeps the sequence.
    pub store: Option<String>,
    /// A text for people.
    pub description: Option<String>,
    /// The layout: how the bits of a time-ordered id are divided. The inner `None` is a `null`.
    pub layout: Option<Option<Layout>>,
    /// `true` if the caller confirms a change of the format although former formats may be unknown.
    ///
    /// This is no field of a definition. Only [`from_json`](Self::from_json) reads it.
    pub confirm: bool,
}

/// The fields of a block policy that a caller gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockChange {
    /// The smallest block, in numbers.
    pub min: Option<u64>,
    /// The largest block, in numbers.
    pub max: Option<u64>,
    /// The next block is fetched when the rest lasts for less than this.
    pub hold: Option<Span>,
    /// The time for which a block should last.
    pub refill: Option<Span>,
}

impl DefinitionChange {
    /// Reads a change from JSON, the body of a call. `{}` changes nothing. The object may have
    /// `confirm` next to the fields.
    ///
    /// # Errors
    /// [`ChangeError::NotJson`] if the body is not a JSON object. [`ChangeError::Wrong`] if a field
    /// does not exist or a value has the wrong type.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ChangeError> {
        let Once(mut value) =
            serde_json::from_slice(bytes).map_err(|error| ChangeError::NotJson {
                detail: format!("it is not JSON ({error})"),
            })?;
        let fields = value.as_object_mut();
        let confirm = fields.and_then(|fields| fields.remove("confirm"));
        let confirm = confirm.map_or(Ok(false), |given| {
            let known = given.as_bool();
            known.ok_or_else(|| wrong("confirm", "true or false", &given))
        })?;
        Ok(Self {
            confirm,
            ..Self::from_value(&value)?
        })
    }

    /// Reads a change from a JSON value.
    ///
    /// # Errors
    /// The errors of [`from_json`](Self::from_json).
    pub fn from_value(value: &Value) -> Result<Self, ChangeError> {
        let fields = value.as_object().ok_or_else(|| ChangeError::NotJson {
            detail: format!("it is {}", type_of(value)),
        })?;
        let mut change = Self::default();
        for (field, value) in fields {
            change.set(field, value)?;
        }
        Ok(change)
    }

    fn set(&mut self, field: &str, value: &Value) -> Result<(), ChangeError> {
        match field {
            "kind" => self.kind = Some(choice(field, value, "\"block\" or \"snowflake\"")?),
            "start" => self.start = Some(identifying(field, value)?),
            "step" => self.step = Some(step(field, value)?),
            "max" => self.max = Some(identifying(field, value)?),
            "order" => self.order = Some(choice(field, value, "\"relaxed\" or \"strict\"")?),
            "period" => {
                let known = "\"none\", \"day\", \"week\", \"month\", \"year\" or \"keyed\"";
                self.period = Some(choice(field, value, known)?);
            }
            "time_zone" => self.time_zone = Some(text(field, value)?),
            "cutover" => self.cutover = Some(text(field, value)?),
            "year_starts" => self.year_starts = Some(text(field, value)?),
            "period_back" => self.period_back = Some(span(field, value)?),
            "period_ahead" => self.period_ahead = Some(span(field, value)?),
            "retain" => self.retain = Some(span(field, value)?),
            "block" => self.block = Some(BlockChange::from_value(value)?),
            "format" => self.format = Some(text(field, value)?),
            "overflow" => self.overflow = Some(choice(field, value, "\"refuse\" or \"widen\"")?),
            "declared_rate" => self.declared_rate = Some(rate(field, value)?),
            "store" => self.store = Some(text(field, value)?),
            "description" => self.description = Some(text(field, value)?),
            "layout" => self.layout = Some(time_ordered::layout(field, value)?),
            _ => return Err(unknown(field, FIELDS)),
        }
        Ok(())
    }

    /// Creates the definition of a new sequence: the template, with the fields that were given.
    ///
    /// If the template is of another kind, only the fields that both kinds have count. If the
    /// caller gave no format, and the template has one of the two default formats, the format
    /// follows the period. A sequence with periods then prints the period, too.
    ///
    /// # Errors
    /// [`DefinitionError`] names the field that is out of range or not for the kind.
    pub fn create(&self, template: &Definition) -> Result<Definition, DefinitionError> {
        let kind = self.kind.unwrap_or(template.kind);
        let mut definition = self.on(&template.as_template_of(kind));
        let is_asked_for = self.format.is_some();
        let given = definition.format.as_str();
        if !is_asked_for && (given == Format::PLAIN || given == Format::WITH_PERIOD) {
            let has_periods = definition.period != PeriodKind::None;
            let default = if has_periods {
                Format::WITH_PERIOD
            } else {
                Format::PLAIN
            };
            default.clone_into(&mut definition.format);
        }
        definition.check()?;
        Ok(definition)
    }

    /// Changes the definition of an existing sequence.
    ///
    /// `next_value` is the high-water mark of the sequence, the highest one of its periods.
    /// `issued` says whether the sequence may have issued a number.
    ///
    /// # Errors
    /// [`DefinitionError`] names the first field that is wrong. The checks have this order:
    ///
    /// 1. The value is out of range.
    /// 2. The field stays as it was created.
    /// 3. The field is not for the kind.
    /// 4. The format cannot be one of the sequence.
    /// 5. The format might print an id again. If that cannot be known, the change must be
    ///    confirmed.
    /// 6. The end of the sequence would fall below the numbers that are reserved.
    pub fn apply(
        &self,
        existing: &Definition,
        next_value: i64,
        issued: bool,
    ) -> Result<Definition, DefinitionError> {
        let mut definition = self.on(existing);
        definition.check_ranges()?;
        definition.check_unchanged(existing)?;
        definition.check_kind()?;
        definition.check_format()?;
        definition.keep_ids_apart(existing, issued, self.confirm)?;
        definition.check_high_water(existing, next_value)?;
        Ok(definition)
    }

    fn on(&self, base: &Definition) -> Definition {
        let change = self.clone();
        let base = base.clone();
        let block = change.block.unwrap_or_default();
        let mut definition = Definition {
            kind: change.kind.unwrap_or(base.kind),
            start: change.start.unwrap_or(base.start),
            step: change.step.unwrap_or(base.step),
            max: change.max.unwrap_or(base.max),
            order: change.order.unwrap_or(base.order),
            period: change.period.unwrap_or(base.period),
            time_zone: change.time_zone.unwrap_or(base.time_zone),
            cutover: change.cutover.unwrap_or(base.cutover),
            year_starts: change.year_starts.unwrap_or(base.year_starts),
            period_back: change.period_back.unwrap_or(base.period_back),
            period_ahead: change.period_ahead.unwrap_or(base.period_ahead),
            retain: change.retain.unwrap_or(base.retain),
            block: BlockPolicy {
                min: block.min.unwrap_or(base.block.min),
                max: block.max.unwrap_or(base.block.max),
                hold: block.hold.unwrap_or(base.block.hold),
                refill: block.refill.unwrap_or(base.block.refill),
            },
            format: change.format.unwrap_or(base.format),
            overflow: change.overflow.unwrap_or(base.overflow),
            declared_rate: change.declared_rate.unwrap_or(base.declared_rate),
            store: change.store.unwrap_or(base.store),
            description: change.description.unwrap_or(base.description),
            layout: change.layout.unwrap_or(base.layout),
            former_formats: base.former_formats,
            formats_unknown: base.formats_unknown,
        };
        if definition.kind == Kind::Snowflake {
            definition.layout.get_or_insert_default();
        }
        definition
    }
}

impl<'de> Deserialize<'de> for DefinitionChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value).map_err(de::Error::custom)
    }
}

impl BlockChange {
    fn from_value(value: &Value) -> Result<Self, ChangeError> {
        let fields = value.as_object().ok_or_else(|| {
            let known = format!("an object with some of {BLOCK_FIELDS}");
            wrong("block", &known, value)
        })?;
        let mut change = Self::default();
        for (field, value) in fields {
            let path = format!("block.{field}");
            match field.as_str() {
                "min" => change.min = Some(counting(&path, value)?),
                "max" => change.max = Some(counting(&path, value)?),
                "hold" => change.hold = Some(span(&path, value)?),
                "refill" => change.refill = Some(span(&path, value)?),
                _ => return Err(unknown(&path, BLOCK_FIELDS)),
            }
        }
        Ok(change)
    }
}

pub(crate) fn choice<T: for<'de> Deserialize<'de>>(
    field: &str,
    value: &Value,
    known: &str,
) -> Result<T, ChangeError> {
    T::deserialize(value).map_err(|_| wrong(field, known, value))
}

fn text(field: &str, value: &Value) -> Result<String, ChangeError> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| wrong(field, "a string", value))
}

fn span(field: &str, value: &Value) -> Result<Span, ChangeError> {
    let known = format!("a duration of whole seconds, {}", duration::GRAMMAR);
    let span = value.as_str().and_then(|text| Span::parse(text).ok());
    span.ok_or_else(|| wrong(field, &known, value))
}

fn identifying(field: &str, value: &Value) -> Result<i64, ChangeError> {
    let known = format!(
        "a whole number from 0 to {}, as a string or a number",
        i64::MAX - 1
    );
    number::from_value(value).ok_or_else(|| wrong(field, &known, value))
}

fn step(field: &str, value: &Value) -> Result<i64, ChangeError> {
    let known = format!("a whole number from 1 to {MAX_STEP}");
    number::from_value(value).ok_or_else(|| wrong(field, &known, value))
}

fn counting(field: &str, value: &Value) -> Result<u64, ChangeError> {
    let known = format!("a whole number from 1 to {}", crate::block::MAX_COUNT);
    number::counted(value).ok_or_else(|| wrong(field, &known, value))
}

fn rate(field: &str, value: &Value) -> Result<Option<f64>, ChangeError> {
    if value.is_null() {
        return Ok(None);
    }
    let rate = value.as_f64().filter(|rate| *rate > 0.0);
    rate.map(Some)
        .ok_or_else(|| wrong(field, "a number above 0, or null", value))
}

pub(crate) fn wrong(field: &str, known: &str, value: &Value) -> ChangeError {
    ChangeError::Wrong {
        detail: format!("`{field}` must be {known}, not {}.", shown(value)),
    }
}

pub(crate) fn unknown(field: &str, known: &str) -> ChangeError {
    ChangeError::Wrong {
        detail: format!("`{}` is not a field; the fields are {known}.", cut(field)),
    }
}

/// Shows a value of the wrong type, so that the caller can recognise it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            cut(&value.to_string())
        }
        Value::Array(_) | Value::Object(_) => type_of(value).to_owned(),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Cuts a text of a caller, so that it is short enough for a reply.
fn cut(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}
