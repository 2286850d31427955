//! Reads what a caller asks a definition to be. Fields that are absent stay as they are.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::check::{MAX_STEP, cut};
use super::once::Once;
use super::{BlockPolicy, ChangeError, Definition, DefinitionError, Kind, Order};
use super::{Span, limit, number, time_ordered};
use crate::format::{Format, Overflow};
use crate::snowflake::Layout;
use crate::speed_limit::SpeedLimit;
use crate::{duration, period::PeriodKind};

/// Declares what a caller may give of a value: for each field its type, and how its JSON is read.
macro_rules! change {
    (
        $(#[$about:meta])*
        $name:ident of $whole:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty = $read:expr;)+
        }
        $($(#[$beside_doc:meta])* beside $beside:ident: $beside_type:ty;)?
    ) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Default)]
        pub struct $name {
            $($(#[$doc])* pub $field: Option<$type>,)+
            $($(#[$beside_doc])* pub $beside: $beside_type,)?
        }

        impl $name {
            /// Lists the fields that a caller may give.
            const FIELDS: &[&str] = &[$(stringify!($field)),+];

            /// Reads the fields of a JSON object. `path` comes before each field in a message.
            fn read(path: &str, fields: &Map<String, Value>) -> Result<Self, ChangeError> {
                let mut change = Self::default();
                for (field, value) in fields {
                    let path = format!("{path}{field}");
                    match field.as_str() {
                        $(stringify!($field) => change.$field = Some(($read)(&path, value)?),)+
                        _ => return Err(unknown(&path, &Self::FIELDS.join(", "))),
                    }
                }
                Ok(change)
            }

            /// Returns the value with the fields that were given. Its other fields are those of
            /// `base`.
            #[allow(clippy::needless_update, reason = "not every value has fields besides these")]
            fn on(self, base: $whole) -> $whole {
                $whole { $($field: self.$field.on(base.$field),)+ ..base }
            }
        }
    };
}

/// What a caller gave in place of a value, or nothing.
trait Given<T> {
    /// Returns what was given, or `base`.
    fn on(self, base: T) -> T;
}

impl<T> Given<T> for Option<T> {
    fn on(self, base: T) -> T {
        self.unwrap_or(base)
    }
}

impl Given<BlockPolicy> for Option<BlockChange> {
    fn on(self, base: BlockPolicy) -> BlockPolicy {
        self.unwrap_or_default().on(base)
    }
}

change! {
    /// The fields of a [`Definition`] that a caller gave. The other fields keep their values, or
    /// get the values of the template.
    DefinitionChange of Definition {
        /// The kind: how the numbers are made. [`Definition`] describes this field and the fields
        /// below.
        kind: Kind = choice("\"block\" or \"snowflake\"");
        /// The first number.
        start: i64 = identifying;
        /// The distance between two numbers.
        step: i64 = step;
        /// The bound of the numbers: no number is above it.
        max: i64 = identifying;
        /// The promise about the order of numbers.
        order: Order = choice("\"relaxed\" or \"strict\"");
        /// The kind of period.
        period: PeriodKind =
            choice("\"none\", \"day\", \"week\", \"month\", \"year\" or \"keyed\"");
        /// The time zone of calendar periods.
        time_zone: String = text;
        /// The time of day at which a day ends and the next one begins.
        cutover: String = text;
        /// The month and day on which years start.
        year_starts: String = text;
        /// The longest time ago that a calendar period may have ended, for a caller to name it.
        period_back: Span = span;
        /// The longest time ahead that a calendar period may begin, for a caller to name it.
        period_ahead: Span = span;
        /// The time for which calendar periods are kept after their end.
        retain: Span = span;
        /// The sizes and times of blocks.
        block: BlockChange = block;
        /// The pattern that numbers are printed with.
        format: String = text;
        /// The rule for a number that is too long for the format.
        overflow: Overflow = choice("\"refuse\" or \"widen\"");
        /// The expected numbers a second. The inner `None` is a `null`.
        declared_rate: Option<f64> = rate;
        /// How fast numbers may be reserved. The inner `None` is a `null`.
        limit: Option<SpeedLimit> = limit::limit;
        /// The store that keeps the sequence.
        store: String = text;
        /// A text for people.
        description: String = text;
        /// The layout: how the bits of a time-ordered id are divided. The inner `None` is a `null`.
        layout: Option<Layout> = time_ordered::layout;
    }
    /// `true` if the caller confirms a change of the format although former formats may be unknown.
    ///
    /// This is no field of a definition. Only [`from_json`](Self::from_json) reads it.
    beside confirm: bool;
}

change! {
    /// The fields of a block policy that a caller gave.
    #[derive(Copy, Eq)]
    BlockChange of BlockPolicy {
        /// The smallest block, in numbers.
        min: u64 = counting;
        /// The largest block, in numbers.
        max: u64 = counting;
        /// The next block is fetched when the rest lasts for less than this.
        hold: Span = span;
        /// The time for which a block should last.
        refill: Span = span;
    }
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
        Self::read("", fields)
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
        let template = template.as_template_of(kind);
        let mut definition = self.given_on(&template);
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
        definition.settle_limit(self.limit, &template);
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
        let mut definition = self.given_on(existing);
        definition.settle_limit(self.limit, existing);
        definition.check_ranges()?;
        definition.check_unchanged(existing)?;
        definition.check_kind()?;
        definition.check_format()?;
        definition.keep_ids_apart(existing, issued, self.confirm)?;
        definition.check_high_water(existing, next_value)?;
        Ok(definition)
    }

    fn given_on(&self, base: &Definition) -> Definition {
        let mut definition = self.clone().on(base.clone());
        if definition.kind == Kind::Snowflake {
            definition.layout.get_or_insert_default();
        }
        definition
    }
}

/// Returns how one of several words is read. `known` lists the words.
pub(crate) fn choice<T: for<'de> Deserialize<'de>>(
    known: &'static str,
) -> impl Fn(&str, &Value) -> Result<T, ChangeError> {
    move |field, value| T::deserialize(value).map_err(|_| wrong(field, known, value))
}

fn block(field: &str, value: &Value) -> Result<BlockChange, ChangeError> {
    let fields = value.as_object().ok_or_else(|| {
        let known = BlockChange::FIELDS.join(", ");
        wrong(field, &format!("an object with some of {known}"), value)
    })?;
    BlockChange::read("block.", fields)
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
        field: field.to_owned(),
        detail: format!("`{field}` must be {known}, not {}.", shown(value)),
    }
}

pub(crate) fn unknown(field: &str, known: &str) -> ChangeError {
    ChangeError::Wrong {
        field: field.to_owned(),
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
