//! Says whether a sequence may be buffered, and which calls ask for its numbers.

use odometer_core::name::SequenceName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::{error::Error, service::Answer};

/// The most numbers that one call of `next` gives.
pub(crate) const MAX_COUNT: u64 = 10_000;
/// What a query does not have as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// What a path does not have as it is.
const ENCODED_IN_PATHS: &AsciiSet = &ENCODED.remove(b':');

/// Whether the numbers of a sequence are kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Numbers are fetched ahead, and counted in memory.
    Buffered,
    /// Each number is a call: for strict, period and time-ordered sequences.
    Unbuffered,
}

/// What a client must know of a sequence. It never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Definition {
    pub(crate) is_buffered: bool,
    /// Whether a printed number is its bare value. If not, or not known, the service prints.
    pub(crate) prints_values: bool,
}

impl Definition {
    /// Of a sequence whose numbers are calls, however it is defined.
    pub(crate) const UNBUFFERED: Self = Self {
        is_buffered: false,
        prints_values: false,
    };

    /// Reads the description of a sequence.
    ///
    /// # Errors
    /// [`Error::InvalidReply`] if it is none.
    pub(crate) fn of(answer: &Answer) -> Result<Self, Error> {
        let Some(given) = answer.body.get("definition").filter(|it| it.is_object()) else {
            return Err(Error::invalid_reply(&answer.endpoint, "no definition"));
        };
        let field = |name: &str| given.get(name).and_then(Value::as_str);
        let fields = ["kind", "order", "period"].map(field);
        Ok(Self {
            is_buffered: fields == [Some("block"), Some("relaxed"), Some("none")],
            prints_values: field("format") == Some("{value}"),
        })
    }

    /// Returns what the program says of a sequence that it may not look at.
    pub(crate) fn said(kind: Kind) -> Self {
        Self {
            is_buffered: kind == Kind::Buffered,
            prints_values: false,
        }
    }
}

/// The paths of a sequence's calls.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    base: String,
    /// The parameter of the period; empty without one.
    period: String,
}

impl Paths {
    pub(crate) fn new(name: &SequenceName, period: Option<&str>) -> Self {
        let encoded = period.map(|period| utf8_percent_encode(period, ENCODED));
        Self {
            base: definition_path(name.as_str()),
            period: encoded.map_or_else(String::new, |period| format!("period={period}")),
        }
    }

    pub(crate) fn definition(&self) -> &str {
        &self.base
    }

    pub(crate) fn one(&self) -> String {
        self.with_period("next", '?')
    }

    pub(crate) fn batch(&self, count: u64, with_ids: bool) -> String {
        let ids = if with_ids { "" } else { "&ids=false" };
        self.with_period(&format!("next?count={count}{ids}"), '&')
    }

    /// Returns the path of a call for one unbroken range.
    pub(crate) fn unbroken(&self, count: u64) -> String {
        if count > MAX_COUNT {
            return self.block(count);
        }
        let call = format!("next?count={count}&contiguous=true&ids=false");
        self.with_period(&call, '&')
    }

    pub(crate) fn block(&self, size: u64) -> String {
        self.with_period(&format!("blocks?size={size}"), '&')
    }

    fn with_period(&self, call: &str, before: char) -> String {
        let Self { base, period } = self;
        if period.is_empty() {
            return format!("{base}/{call}");
        }
        format!("{base}/{call}{before}{period}")
    }
}

/// Returns the path of a sequence's definition.
pub(crate) fn definition_path(name: &str) -> String {
    let name = utf8_percent_encode(name, ENCODED_IN_PATHS);
    format!("/v1/sequences/{name}")
}
