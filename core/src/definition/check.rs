//! Checks which definitions are possible, and which changes of definitions.

use serde::Serialize;

use super::{Definition, DefinitionError, FormerFormat, Kind, Order, Span};
use crate::block::MAX_COUNT;
use crate::format::{Format, FormatError};

/// Bounds `step`: JavaScript counts exactly up to this number.
pub(crate) const MAX_STEP: i64 = (1 << 53) - 1;

/// Bounds the length of a description, in characters.
const MAX_DESCRIPTION: usize = 1024;

/// Bounds the length of a store's name, in characters.
const MAX_STORE_NAME: usize = 32;

/// Bounds the declared rate, in numbers a second.
const MAX_RATE: f64 = 1e9;

/// Bounds the former formats that are remembered. More changes of the format are refused.
const MAX_FORMER_FORMATS: usize = 16;

/// Bounds `hold` and `refill`.
const MAX_SPAN: Span = Span::from_days(366);

impl Definition {
    /// Checks that this version can serve the definition.
    ///
    /// # Errors
    /// [`DefinitionError`] names the first field that is out of range or not for the kind.
    pub(crate) fn check(&self) -> Result<(), DefinitionError> {
        self.check_ranges()?;
        self.check_kind()?;
        self.check_store()?;
        self.check_format()
    }

    pub(crate) fn check_ranges(&self) -> Result<(), DefinitionError> {
        let (start, step, max) = (self.start, self.step, self.max);
        require((1..=MAX_STEP).contains(&step), "step", || {
            format!("must be 1 to {MAX_STEP}, not {step}")
        })?;
        let highest = i64::MAX - step;
        require(max <= highest, "max", || {
            format!("must be at most {highest} (2^63 - 1 - step), not {max}")
        })?;
        require(start >= 0, "start", || {
            format!("must be 0 or more, not {start}")
        })?;
        require(start <= max, "start", || {
            format!("must be at most `max`; {start} is above {max}")
        })?;
        self.check_block()?;
        self.check_layout()?;
        self.check_period()?;
        self.check_declared_rate()?;
        self.check_limit()?;
        self.check_description()
    }

    /// Refuses a format whose ids could repeat or could not be read back.
    pub(crate) fn check_format(&self) -> Result<(), DefinitionError> {
        match Format::of(self) {
            Ok(_) => Ok(()),
            Err(error) => invalid("format", error.to_string()),
        }
    }

    fn check_block(&self) -> Result<(), DefinitionError> {
        let (min, max) = (self.block.min, self.block.max);
        require((1..=MAX_COUNT).contains(&max), "block.max", || {
            format!("must be 1 to {MAX_COUNT}, not {max}")
        })?;
        require(min >= 1, "block.min", || {
            "must be 1 or more, not 0".to_owned()
        })?;
        require(min <= max, "block.min", || {
            format!("must be at most `block.max`; {min} is above {max}")
        })?;
        let spans = Span::from_seconds(1)..=MAX_SPAN;
        for (field, span) in [
            ("block.hold", self.block.hold),
            ("block.refill", self.block.refill),
        ] {
            require(spans.contains(&span), field, || {
                format!("must be 1s to {MAX_SPAN}, not {span}")
            })?;
        }
        Ok(())
    }

    fn check_declared_rate(&self) -> Result<(), DefinitionError> {
        let Some(rate) = self.declared_rate else {
            return Ok(());
        };
        require(rate > 0.0 && rate <= MAX_RATE, "declared_rate", || {
            format!("must be above 0 and at most {MAX_RATE:.0} numbers a second, not {rate}")
        })
    }

    fn check_description(&self) -> Result<(), DefinitionError> {
        let length = self.description.chars().count();
        require(length <= MAX_DESCRIPTION, "description", || {
            format!("may have at most {MAX_DESCRIPTION} characters, not {length}")
        })?;
        let has_control = self.description.chars().any(char::is_control);
        require(!has_control, "description", || {
            "may not have control characters".to_owned()
        })
    }

    fn check_store(&self) -> Result<(), DefinitionError> {
        require(is_store_name(&self.store), "store", || {
            "must be the name of a store: a lower-case letter, then up to 31 lower-case letters, \
             digits and `_`"
                .to_owned()
        })
    }

    /// Refuses a change of a field that stays as it was created.
    pub(crate) fn check_unchanged(&self, existing: &Self) -> Result<(), DefinitionError> {
        kept("kind", &self.kind, &existing.kind)?;
        kept(
            "start",
            &self.start.to_string(),
            &existing.start.to_string(),
        )?;
        kept("step", &self.step, &existing.step)?;
        kept("period", &self.period, &existing.period)?;
        kept("time_zone", &self.time_zone, &existing.time_zone)?;
        kept("cutover", &self.cutover, &existing.cutover)?;
        kept("year_starts", &self.year_starts, &existing.year_starts)?;
        kept("store", &self.store, &existing.store)?;
        kept("layout", &self.layout, &existing.layout)?;
        if existing.order == Order::Relaxed {
            kept("order", &self.order, &existing.order)?;
        }
        Ok(())
    }

    /// Refuses a format or an overflow that could print an id again.
    ///
    /// If former formats may be unknown, the caller must confirm the change. The format that the
    /// sequence gives up is added to the former formats.
    pub(crate) fn keep_ids_apart(
        &mut self,
        before: &Self,
        issued: bool,
        confirmed: bool,
    ) -> Result<(), DefinitionError> {
        if self.format == before.format && self.overflow == before.overflow {
            return Ok(());
        }
        // No counter shows which ids a time-ordered sequence has issued. And a store that forgot
        // formats may have forgotten counters, too.
        let issued = issued || self.kind == Kind::Snowflake || self.formats_unknown;
        if issued && self.format != before.format {
            let given_up = FormerFormat {
                format: before.format.clone(),
                overflow: before.overflow,
            };
            if !self.former_formats.contains(&given_up) {
                self.former_formats.push(given_up);
            }
        }
        let might_repeat = |former: &&FormerFormat| {
            // No number is issued twice, so one format never prints an id twice.
            former.format != self.format && !self.prints_none_of(former)
        };
        let in_the_way = self.former_formats.iter().rev().find(might_repeat);
        if let Some(former) = in_the_way {
            return Err(DefinitionError::FormatInUse {
                used: json(&former.format),
            });
        }
        require(
            self.former_formats.len() <= MAX_FORMER_FORMATS,
            "format",
            || format!("may change {MAX_FORMER_FORMATS} times once numbers were issued"),
        )?;
        if self.formats_unknown && !confirmed {
            return Err(DefinitionError::FormatsUnknown);
        }
        // A caller that confirms a change of `overflow` confirms no later change of the format.
        self.formats_unknown &= self.format == before.format;
        Ok(())
    }

    /// Builds a former format, with the overflow that numbers were printed with.
    pub(crate) fn at_the_time_of(&self, former: &FormerFormat) -> Result<Format, FormatError> {
        let mut definition = self.clone();
        definition.overflow = former.overflow;
        definition.format.clone_from(&former.format);
        Format::unchecked(&definition, &former.format)
    }

    /// Returns whether it is certain that this definition prints no id of a former format.
    fn prints_none_of(&self, former: &FormerFormat) -> bool {
        match (Format::of(self), self.at_the_time_of(former)) {
            (Ok(format), Ok(former)) => format.cannot_print_any_of(&former),
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    /// Refuses a lower end of the sequence if numbers above that end are reserved already.
    pub(crate) fn check_high_water(
        &self,
        before: &Self,
        next_value: i64,
    ) -> Result<(), DefinitionError> {
        let reserved = next_value.saturating_sub(self.step);
        let is_below = |end: i64| next_value > self.start && end < reserved;
        let is_high_enough = self.max >= before.max || !is_below(self.max);
        require(is_high_enough, "max", || {
            format!("may not fall below {reserved}, the last number reserved")
        })?;
        let highest = Format::highest_of(&self.format, self.overflow);
        if highest < Format::highest_of(&before.format, before.overflow) && is_below(highest) {
            let (field, reason) = match self.format == before.format {
                true => ("overflow", "must stay \"widen\""),
                false => ("format", "must have room for more digits"),
            };
            return invalid(
                field,
                format!(
                    "{reason}: {reserved} is reserved already, and there is room for {highest}"
                ),
            );
        }
        Ok(())
    }
}

/// Refuses a field unless its value is right. The reason is read after the field's name.
pub(crate) fn require(
    is_right: bool,
    field: &'static str,
    reason: impl FnOnce() -> String,
) -> Result<(), DefinitionError> {
    if is_right {
        return Ok(());
    }
    invalid(field, reason())
}

pub(crate) fn invalid(field: &'static str, reason: String) -> Result<(), DefinitionError> {
    Err(DefinitionError::Invalid { field, reason })
}

/// Returns whether a store may have this name: `^[a-z][a-z0-9_]{0,31}$`.
#[must_use]
pub fn is_store_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= MAX_STORE_NAME
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn kept<T: PartialEq + Serialize>(
    field: &'static str,
    value: &T,
    existing: &T,
) -> Result<(), DefinitionError> {
    if value == existing {
        return Ok(());
    }
    Err(DefinitionError::Immutable {
        field,
        existing: json(existing),
    })
}

/// Shows a value as its definition would show it. A long value is cut.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    cut(&serde_json::to_string(value).unwrap_or_default())
}

/// Cuts a text of a caller, so that it is short enough for a reply.
pub(crate) fn cut(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}
