//! Checks time-ordered kinds: which layouts a definition may have, and which fields are then not
//! for it.

use std::borrow::Cow;

use serde_json::Value;

use super::change::{choice, unknown, wrong};
use super::check::{invalid, require};
use super::{
    BlockPolicy, ChangeError, Definition, DefinitionChange, DefinitionError, Kind, Span, number,
};
use crate::format::Format;
use crate::snowflake::{Layout, epoch_from_text, epoch_to_text};

const LAYOUT_FIELDS: &str = "high, epoch, unit, time, worker, sequence";

/// Names the layout that has only ids which JavaScript reads exactly.
const PRESET: &str = "53-bit";

/// Bounds the bits of an id: a positive number of 64 bits has 63.
const MAX_BITS: u32 = 63;
const MAX_TIME_BITS: u32 = MAX_BITS - 2;
const MAX_WORKER_BITS: u32 = 22;
const MAX_SEQUENCE_BITS: u32 = 22;

/// Bounds the time and sequence bits together. With 32 bits, the 2^16 positions that a layout keeps
/// free at its end are 1/65,536 of all positions.
const MIN_COUNTED_BITS: u32 = 32;

/// Bounds `hold` from below. A lease is renewed three times in this time.
const MIN_HOLD: Span = Span::from_seconds(2);

/// Bounds how long the layout of a new sequence must last.
const MIN_YEARS: f64 = 10.0;
const DAYS_A_YEAR: f64 = 365.25;

impl Definition {
    /// Checks that a new sequence may use this layout at `now_ms`, in Unix milliseconds.
    ///
    /// The time of the layout must have begun, and must last for ten years or more. The layout of a
    /// sequence that exists already is not checked.
    ///
    /// # Errors
    /// [`DefinitionError::Invalid`] names the part of the layout that is wrong.
    pub fn check_time(&self, now_ms: i64) -> Result<(), DefinitionError> {
        let Some(layout) = &self.layout else {
            return Ok(());
        };
        require(layout.epoch_ms <= now_ms, "layout.epoch", || {
            let epoch = epoch_to_text(layout.epoch_ms);
            format!("must not lie in the future, and {epoch} does")
        })?;
        require(!is_short_lived(layout, now_ms), "layout.time", || {
            format!(
                "must last for {MIN_YEARS} years or more: with this `epoch` and this `unit` \
                 it ends at {}",
                epoch_to_text(layout.ends_at_ms())
            )
        })
    }

    /// Returns the template that a definition of `kind` starts from, if this definition is its
    /// template.
    ///
    /// If the two kinds differ, only the fields that both kinds have are kept. A `hold` that is too
    /// short for `kind` becomes the shortest one that is allowed.
    pub(crate) fn as_template_of(&self, kind: Kind) -> Cow<'_, Self> {
        if self.kind == kind {
            return Cow::Borrowed(self);
        }
        let hold = match kind {
            Kind::Block => self.block.hold,
            Kind::Snowflake => self.block.hold.max(MIN_HOLD),
        };
        let plain = Self::default();
        let mut of_this_kind = Self {
            kind,
            block: BlockPolicy {
                hold,
                ..plain.block
            },
            declared_rate: self.declared_rate,
            store: self.store.clone(),
            description: self.description.clone(),
            ..plain
        };
        of_this_kind.limit = of_this_kind.suitable_limit();
        Cow::Owned(of_this_kind)
    }

    /// Refuses a layout that no definition may have.
    pub(crate) fn check_layout(&self) -> Result<(), DefinitionError> {
        self.layout.as_ref().map_or(Ok(()), Layout::check)
    }

    /// Refuses fields that are not for the kind.
    pub(crate) fn check_kind(&self) -> Result<(), DefinitionError> {
        match (self.kind, &self.layout) {
            (Kind::Block, None) => Ok(()),
            (Kind::Block, Some(_)) => invalid(
                "layout",
                "is for `kind` \"snowflake\", and must be left out or null here".to_owned(),
            ),
            (Kind::Snowflake, None) => invalid(
                "layout",
                "must be given for `kind` \"snowflake\"".to_owned(),
            ),
            (Kind::Snowflake, Some(layout)) => {
                self.check_unused()?;
                self.check_lease()?;
                self.check_room(layout)
            }
        }
    }

    fn check_unused(&self) -> Result<(), DefinitionError> {
        let plain = Self::default();
        let (block, plain_block) = (&self.block, &plain.block);
        let is_given = [
            ("start", self.start != plain.start),
            ("step", self.step != plain.step),
            ("max", self.max != plain.max),
            ("order", self.order != plain.order),
            ("period", self.period != plain.period),
            ("time_zone", self.time_zone != plain.time_zone),
            ("cutover", self.cutover != plain.cutover),
            ("year_starts", self.year_starts != plain.year_starts),
            ("period_back", self.period_back != plain.period_back),
            ("period_ahead", self.period_ahead != plain.period_ahead),
            ("retain", self.retain != plain.retain),
            ("limit", self.limit.is_some()),
            ("block.min", block.min != plain_block.min),
            ("block.max", block.max != plain_block.max),
            ("block.refill", block.refill != plain_block.refill),
        ];
        match is_given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((field, _)) => invalid(
                field,
                "must be left out for a time-ordered sequence, `kind` \"snowflake\"".to_owned(),
            ),
        }
    }

    /// Refuses a `block.hold` that is too short: it says how far ahead time is reserved.
    fn check_lease(&self) -> Result<(), DefinitionError> {
        let hold = self.block.hold;
        require(hold >= MIN_HOLD, "block.hold", || {
            format!("must be {MIN_HOLD} or more for a time-ordered sequence, not {hold}")
        })
    }

    /// Refuses a format that cannot print the ids of later years. Such a format would end before
    /// the time bits do.
    fn check_room(&self, layout: &Layout) -> Result<(), DefinitionError> {
        let room = Format::highest_of(&self.format, self.overflow);
        let highest = layout.highest();
        require(room >= highest, "format", || {
            format!(
                "has room for numbers up to {room}, and the ids of `layout` go up to {highest}: \
                 leave the padding out, make it wider, or give `overflow` \"widen\""
            )
        })
    }
}

impl Layout {
    /// Checks that a definition may have this layout.
    ///
    /// # Errors
    /// [`DefinitionError::Invalid`] names the part of the layout that is wrong.
    pub fn check(&self) -> Result<(), DefinitionError> {
        for (field, bits, most) in [
            ("layout.time", self.time, MAX_TIME_BITS),
            ("layout.worker", self.worker, MAX_WORKER_BITS),
            ("layout.sequence", self.sequence, MAX_SEQUENCE_BITS),
        ] {
            require((1..=most).contains(&bits), field, || {
                format!("must be 1 to {most} bits, not {bits}")
            })?;
        }
        let counted = self.time + self.sequence;
        let all = counted + self.worker;
        require(all <= MAX_BITS, "layout", || {
            format!(
                "must have {MAX_BITS} bits at most, those of `time`, `worker` and `sequence` \
                 together, not {all}"
            )
        })?;
        require(counted >= MIN_COUNTED_BITS, "layout.time", || {
            format!(
                "and `layout.sequence` must have {MIN_COUNTED_BITS} bits or more together, not \
                 {counted}"
            )
        })
    }
}

impl DefinitionChange {
    /// Creates the definition of a new sequence at `now_ms`, in Unix milliseconds.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create) and [`Definition::check_time`].
    pub fn create_at(
        &self,
        template: &Definition,
        now_ms: i64,
    ) -> Result<Definition, DefinitionError> {
        let definition = self.create(template)?;
        definition.check_time(now_ms)?;
        Ok(definition)
    }
}

/// Returns whether a layout lasts for a shorter time than a new sequence must last.
pub(crate) fn is_short_lived(layout: &Layout, now_ms: i64) -> bool {
    layout.days_left(now_ms) / DAYS_A_YEAR < MIN_YEARS
}

/// Reads a layout. Fields that are left out are as in the default layout.
pub(crate) fn layout(field: &str, value: &Value) -> Result<Option<Layout>, ChangeError> {
    let fields = match value {
        Value::Null => return Ok(None),
        Value::String(preset) if preset == PRESET => return Ok(Some(Layout::preset_53_bit())),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let known = format!("an object with some of {LAYOUT_FIELDS}, or \"{PRESET}\", or null");
            return Err(wrong(field, &known, value));
        }
    };
    let mut layout = Layout::default();
    for (inner, value) in fields {
        let path = format!("{field}.{inner}");
        match inner.as_str() {
            "high" => layout.high = choice("\"time\" or \"worker\"")(&path, value)?,
            "epoch" => layout.epoch_ms = epoch(&path, value)?,
            "unit" => layout.unit = choice("\"1ms\", \"10ms\" or \"1s\"")(&path, value)?,
            "time" => layout.time = bits(&path, value, MAX_TIME_BITS)?,
            "worker" => layout.worker = bits(&path, value, MAX_WORKER_BITS)?,
            "sequence" => layout.sequence = bits(&path, value, MAX_SEQUENCE_BITS)?,
            _ => return Err(unknown(&path, LAYOUT_FIELDS)),
        }
    }
    Ok(Some(layout))
}

fn epoch(field: &str, value: &Value) -> Result<i64, ChangeError> {
    let known = "an instant in RFC 3339, in whole milliseconds and from 1970 on, such as \
                 \"2026-01-01T00:00:00Z\"";
    let epoch_ms = value.as_str().and_then(epoch_from_text);
    epoch_ms.ok_or_else(|| wrong(field, known, value))
}

fn bits(field: &str, value: &Value, most: u32) -> Result<u32, ChangeError> {
    let bits = number::counted(value).and_then(|bits| u32::try_from(bits).ok());
    bits.ok_or_else(|| wrong(field, &format!("a whole number from 1 to {most}"), value))
}
