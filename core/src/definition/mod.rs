//! Definitions: what a sequence is, what may be set, what may be changed.
//!
//! A definition has all fields of the contract. Those that its kind has no use for keep their
//! defaults: whoever sets one is told.

mod change;
mod check;
mod check_period;
mod error;
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

/// The store of a definition that names none. It is there in any case, and knows where every name
/// lives.
pub const DEFAULT_STORE: &str = "default";

/// What a sequence is. The default is the contract's.
///
/// It serialises as the contract's JSON: what identifies as a string, what counts as a number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// How its numbers come about.
    pub kind: Kind,
    /// The first number: 0 to `max`.
    #[serde(with = "number")]
    pub start: i64,
    /// The distance between two numbers: 1 to 2^53 − 1.
    pub step: i64,
    /// No number is above this one: `start` to 2^63 − 1 − `step`.
    #[serde(with = "number")]
    pub max: i64,
    /// What is promised about order.
    pub order: Order,
    /// In what it counts from its start again.
    pub period: PeriodKind,
    /// The IANA zone in which calendar periods are cut, as the database of zones spells it.
    pub time_zone: String,
    /// The time of day at which calendar periods are cut, `HH:MM`; a day is the one that ends then,
    /// or at `00:00` the calendar's.
    pub cutover: String,
    /// The month and day on which years start, `MM-DD`; `01-01` for every other kind of period.
    pub year_starts: String,
    /// How far back a caller may name a calendar period: up to 100 years.
    pub period_back: Span,
    /// How far ahead a caller may name a calendar period: up to 100 years.
    pub period_ahead: Span,
    /// For how long calendar periods are kept after their end: above `period_back`, up to 100
    /// years.
    pub retain: Span,
    /// How much is reserved at once.
    pub block: BlockPolicy,
    /// How numbers are printed.
    pub format: String,
    /// What happens to a number too long for the format.
    pub overflow: Overflow,
    /// Numbers a second to expect, if the caller knows.
    pub declared_rate: Option<f64>,
    /// The store that keeps the sequence.
    pub store: String,
    /// What people should know about it: at most 1024 characters.
    pub description: String,
    /// How the bits of a time-ordered kind are divided: there for that kind, and for no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// The formats that numbers were issued under before: none of their ids is printed again.
    /// Only the store is told of them.
    #[serde(skip_serializing)]
    pub former_formats: Vec<FormerFormat>,
    /// Whether numbers may have been issued under formats that are not among the former ones,
    /// because the store forgot them. Only the store is told.
    #[serde(skip_serializing)]
    pub formats_unknown: bool,
}

/// A format that numbers were issued under.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FormerFormat {
    /// Its pattern.
    pub format: String,
    /// What happened to a number too long for it.
    pub overflow: Overflow,
}

/// How much of a sequence is reserved at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockPolicy {
    /// The least numbers of a block: 1 to `max`.
    pub min: u64,
    /// The most numbers of a block: `min` to 2^32.
    pub max: u64,
    /// The next block is fetched when less than this is left: a second to 366 days. Of a
    /// time-ordered kind, how far ahead time is reserved: 2 seconds to 366 days.
    pub hold: Span,
    /// For how long a block should last: a second to 366 days.
    pub refill: Span,
}

/// How a sequence's numbers come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Counted, out of reserved blocks.
    #[default]
    Block,
    /// Composed of time, worker id and a counter.
    Snowflake,
}

/// What is promised about the order of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Ascending on one replica, a trend across replicas.
    #[default]
    Relaxed,
    /// Ascending across replicas in real time.
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
    /// Reads what [`to_stored`](Self::to_stored) wrote, of this version or another one: a field
    /// that is absent has its default, one that is unknown is passed over.
    ///
    /// # Errors
    /// [`StoredDefinitionError`] where it cannot be read, or asks for what this version cannot do.
    pub fn from_stored(json: &str) -> Result<Self, StoredDefinitionError> {
        let definition: Self = serde_json::from_str(json)?;
        definition.check()?;
        Ok(definition)
    }

    /// The definition as the store keeps it: JSON, every field written out.
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
        // Only maps with keys that are no strings cannot be written; there are none.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// No number is above this one: `max`, or the highest of the layout, or the highest that the
    /// format has room for. A number that cannot be printed does not exist.
    #[must_use]
    pub fn limit(&self) -> i64 {
        let highest = self.layout.as_ref().map_or(self.max, Layout::highest);
        highest.min(Format::highest_of(&self.format, self.overflow))
    }

    /// Whether it counts in the same periods: the same kind, cut in the same way.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        self.period == other.period
            && self.time_zone == other.time_zone
            && self.cutover == other.cutover
            && self.year_starts == other.year_starts
    }

    /// How many numbers are left from `next_value` up to the [`limit`](Self::limit), that one
    /// included.
    #[must_use]
    pub fn left(&self, next_value: i64) -> u64 {
        self.left_up_to(self.limit(), next_value)
    }

    /// How many numbers there are from `next_value` up to `limit`.
    pub(crate) fn left_up_to(&self, limit: i64, next_value: i64) -> u64 {
        if next_value > limit {
            return 0;
        }
        let steps = limit.abs_diff(next_value) / self.step.unsigned_abs().max(1);
        steps.saturating_add(1)
    }

    /// The lowest number of the sequence that is not below `floor`; [`Definition::end`] where there
    /// is none, and `None` where `floor` lies above that.
    #[must_use]
    pub fn first_from(&self, floor: i64) -> Option<i64> {
        let number = self.on_grid(floor)?;
        (number == self.start || number <= self.end()).then_some(number)
    }

    /// The lowest number that whole steps reach from `start` and that is not below `floor`, whether
    /// or not the sequence goes so far; `None` where there is none below 2^63.
    #[must_use]
    pub fn on_grid(&self, floor: i64) -> Option<i64> {
        if floor <= self.start {
            return Some(self.start);
        }
        let step = self.step.unsigned_abs().max(1);
        let steps = i64::try_from(floor.abs_diff(self.start).div_ceil(step)).ok()?;
        steps.checked_mul(self.step)?.checked_add(self.start)
    }

    /// Whether it has no number at all, as one database of many may have none of a short sequence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exhausted(self.start)
    }

    /// Whether no number is left from `next_value` on.
    #[must_use]
    pub fn exhausted(&self, next_value: i64) -> bool {
        next_value > self.limit()
    }
}
