//! Says what a sequence is, what a caller may set, and what a caller may change.
//!
//! A definition has all fields of the API. Fields that are not for its kind keep their defaults. A
//! definition that sets such a field is refused.

mod change;
mod check;
mod check_period;
mod error;
mod limit;
mod number;
mod once;
mod skip;
mod span;
mod stripe;
#[cfg(test)]
mod tests;
mod time_ordered;
#[cfg(test)]
mod time_ordered_tests;
mod warning;

pub use change::{BlockChange, DefinitionChange};
pub use check::is_store_name;
pub use error::{ChangeError, DefinitionError, StoredDefinitionError};
pub use number::whole_number;
pub use span::{InvalidSpan, Span};
pub use stripe::{MAX_STRIPES, Stripe};

use serde::{Deserialize, Serialize};

use crate::format::{Format, Overflow};
use crate::period::PeriodKind;
use crate::snowflake::Layout;
use crate::speed_limit::SpeedLimit;

/// Names the store of a definition that names no store. This store always exists, and it knows in
/// which store every name lives.
pub const DEFAULT_STORE: &str = "default";

/// The definition of a sequence. The default has the default values of the API.
///
/// A definition is written as the JSON of the API. Numbers that identify are strings, and numbers
/// that count are JSON numbers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// The kind: how the numbers are made.
    pub kind: Kind,
    /// The first number: 0 to `max`.
    #[serde(with = "number")]
    pub start: i64,
    /// The distance between two numbers: 1 to 2^53 − 1.
    pub step: i64,
    /// The bound of the numbers: no number is above it. `start` to 2^63 − 1 − `step`.
    #[serde(with = "number")]
    pub max: i64,
    /// The promise about the order of numbers.
    pub order: Order,
    /// The kind of period. In each period, numbers start again from `start`.
    pub period: PeriodKind,
    /// The IANA time zone of calendar periods, spelled as the time zone database spells it.
    pub time_zone: String,
    /// The time of day at which a day ends and the next one begins, `HH:MM`. A day has the date on
    /// which it ends; at `00:00` it is the day of the calendar.
    pub cutover: String,
    /// The month and day on which years start, `MM-DD`. `01-01` for every other kind of period.
    pub year_starts: String,
    /// The longest time ago that a calendar period may have ended, for a caller to name it: up to
    /// 100 years.
    pub period_back: Span,
    /// The longest time ahead that a calendar period may begin, for a caller to name it: up to 100
    /// years.
    pub period_ahead: Span,
    /// The time for which calendar periods are kept after their end: longer than `period_back`, up
    /// to 100 years.
    pub retain: Span,
    /// The sizes and times of blocks.
    pub block: BlockPolicy,
    /// The pattern that numbers are printed with.
    pub format: String,
    /// The rule for a number that is too long for the format.
    pub overflow: Overflow,
    /// The expected numbers a second, if the caller knows them.
    pub declared_rate: Option<f64>,
    /// How fast numbers of each counter may be reserved. `None` if there is no limit.
    #[serde(default)]
    pub limit: Option<SpeedLimit>,
    /// The store that keeps the sequence.
    pub store: String,
    /// A text for people: at most 1024 characters.
    pub description: String,
    /// The layout: how the bits of a time-ordered id are divided. Only the time-ordered kind has a
    /// layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// The formats that numbers were issued under before. No id of theirs is printed again.
    ///
    /// Only the store gets this field.
    #[serde(skip_serializing)]
    pub former_formats: Vec<FormerFormat>,
    /// `true` if numbers may have been issued under formats that are not among the former formats,
    /// because the store forgot them.
    ///
    /// Only the store gets this field.
    #[serde(skip_serializing)]
    pub formats_unknown: bool,
}

/// A format that numbers of the sequence were issued under.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FormerFormat {
    /// The pattern of the format.
    pub format: String,
    /// The rule for a number that was too long for the format.
    pub overflow: Overflow,
}

/// The policy that decides how much of a sequence is reserved at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockPolicy {
    /// The smallest block, in numbers: 1 to `max`.
    pub min: u64,
    /// The largest block, in numbers: `min` to 2^32.
    pub max: u64,
    /// The next block is fetched when the rest lasts for less than this: a second to 366 days.
    ///
    /// For a time-ordered kind, how far ahead time is reserved: 2 seconds to 366 days.
    pub hold: Span,
    /// The time for which a block should last: a second to 366 days.
    pub refill: Span,
}

/// The kind of a sequence, which says how its numbers are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Numbers are counted, and come from reserved blocks.
    #[default]
    Block,
    /// Ids are composed of a time, a worker id and a counter.
    Snowflake,
}

/// The promise about the order of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Numbers ascend on one replica. Across replicas they only tend to ascend.
    #[default]
    Relaxed,
    /// Numbers ascend across replicas in real time.
    Strict,
}

impl Default for Definition {
    fn default() -> Self {
        Self {
            kind: Kind::default(),
            start: 1,
            step: 1,
            max: 9_007_199_254_740_991,
            order: Order::default(),
            period: PeriodKind::default(),
            time_zone: "UTC".to_owned(),
            cutover: "00:00".to_owned(),
            year_starts: "01-01".to_owned(),
            period_back: Span::from_days(2),
            period_ahead: Span::from_days(2),
            retain: Span::from_days(400),
            block: BlockPolicy::default(),
            format: Format::PLAIN.to_owned(),
            overflow: Overflow::default(),
            declared_rate: None,
            limit: Some(SpeedLimit::DEFAULT),
            store: DEFAULT_STORE.to_owned(),
            description: String::new(),
            layout: None,
            former_formats: Vec::new(),
            formats_unknown: false,
        }
    }
}

impl Default for BlockPolicy {
    fn default() -> Self {
        Self {
            min: 1,
            max: 1_000_000_000,
            hold: Span::from_minutes(15),
            refill: Span::from_minutes(30),
        }
    }
}

impl Definition {
    /// Reads a definition that [`to_stored`](Self::to_stored) wrote, in this version or another
    /// one.
    ///
    /// A field that is absent gets its default. An unknown field is ignored. If the definition has no
    /// limit, it gets the limit that suits it.
    ///
    /// # Errors
    /// [`StoredDefinitionError`] if the text cannot be read, or if this version cannot serve the
    /// definition.
    pub fn from_stored(json: &str) -> Result<Self, StoredDefinitionError> {
        let mut definition: Self = serde_json::from_str(json)?;
        definition.limit = definition.limit.or_else(|| definition.suitable_limit());
        definition.check()?;
        Ok(definition)
    }

    /// Writes the definition as the store keeps it: JSON, with the fields that have their defaults.
    ///
    /// `layout`, `former_formats` and `formats_unknown` are left out if the sequence has none.
    #[must_use]
    pub fn to_stored(&self) -> String {
        #[derive(Serialize)]
        struct Stored<'a> {
            #[serde(flatten)]
            definition: &'a Definition,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            former_formats: &'a [FormerFormat],
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            formats_unknown: bool,
        }
        let stored = Stored {
            definition: self,
            former_formats: &self.former_formats,
            formats_unknown: self.formats_unknown,
        };
        // Only a map with keys other than strings cannot be written, and there is none here.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Returns the highest number that the sequence may issue.
    ///
    /// It is `max`, or the highest id of the layout, or the highest number that the format can
    /// print, whichever is lowest. A number that cannot be printed does not exist.
    #[must_use]
    pub fn last(&self) -> i64 {
        let highest = self.layout.as_ref().map_or(self.max, Layout::highest);
        highest.min(Format::highest_of(&self.format, self.overflow))
    }

    /// Returns whether two definitions have the same periods: the same kind, with the same bounds.
    #[must_use]
    pub fn has_same_periods(&self, other: &Self) -> bool {
        self.period == other.period
            && self.time_zone == other.time_zone
            && self.cutover == other.cutover
            && self.year_starts == other.year_starts
    }

    /// Returns whether the same issuer serves both definitions: they have the same kind, order and
    /// periods, and their ids have the same layout.
    #[must_use]
    pub fn has_same_issuer(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.order == other.order
            && self.layout == other.layout
            && self.has_same_periods(other)
    }

    /// Counts the numbers that are left from `next_value` up to the [last one](Self::last), which
    /// is included.
    #[must_use]
    pub fn left(&self, next_value: i64) -> u64 {
        self.left_up_to(self.last(), next_value)
    }

    /// Counts the numbers from `next_value` up to `limit`, which is included.
    pub(crate) fn left_up_to(&self, limit: i64, next_value: i64) -> u64 {
        if next_value > limit {
            return 0;
        }
        let steps = limit.abs_diff(next_value) / self.step.unsigned_abs().max(1);
        steps.saturating_add(1)
    }

    /// Returns the lowest number of the sequence that is not below `floor`.
    ///
    /// If there is none, it returns [`Definition::end`]. If `floor` lies above the end, it returns
    /// `None`.
    #[must_use]
    pub fn first_from(&self, floor: i64) -> Option<i64> {
        let number = self.on_grid(floor)?;
        (number == self.start || number <= self.end()).then_some(number)
    }

    /// Returns the lowest number that is not below `floor` and that whole steps reach from `start`.
    ///
    /// The number may lie above the end of the sequence. `None` if there is no such number below
    /// 2^63.
    #[must_use]
    pub fn on_grid(&self, floor: i64) -> Option<i64> {
        if floor <= self.start {
            return Some(self.start);
        }
        let step = self.step.unsigned_abs().max(1);
        let steps = i64::try_from(floor.abs_diff(self.start).div_ceil(step)).ok()?;
        steps.checked_mul(self.step)?.checked_add(self.start)
    }

    /// Returns whether the sequence has no number at all. If several databases share a short
    /// sequence, some of them have no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exhausted(self.start)
    }

    /// Returns whether no number is left from `next_value` on.
    #[must_use]
    pub fn exhausted(&self, next_value: i64) -> bool {
        next_value > self.last()
    }
}
