//! Describes bodies: those of requests, and those of replies whose JSON is written by hand.

#![expect(dead_code, reason = "describes JSON that is written by hand")]

use odometer_core::definition::whole_number;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Number, Value};
use utoipa::ToSchema;

use super::values::{
    IdInput, NumberInput, NumberString, Period, PrintedId, SequenceName, UnixMilliseconds,
};

/// One number, or a batch if the call had a `count`.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum IssuedNumbers {
    One(IssuedNumber),
    Batch(IssuedBatch),
}

/// One number that nobody else gets.
#[derive(Serialize, ToSchema)]
pub(crate) struct IssuedNumber {
    sequence: SequenceName,
    /// The period of the number; null if the sequence counts without periods.
    period: Option<Period>,
    id: PrintedId,
    /// The bare number.
    value: NumberString,
}

/// Numbers of one call that nobody else gets.
#[derive(Serialize, ToSchema)]
pub(crate) struct IssuedBatch {
    sequence: SequenceName,
    /// The period of the numbers; null if the sequence counts without periods.
    period: Option<Period>,
    /// How many numbers.
    #[schema(minimum = 1, maximum = 10_000, example = 3)]
    count: u64,
    /// The bare numbers, ascending.
    ranges: Vec<NumberRange>,
    /// The printed forms, in the order of `ranges`; absent with `ids=false`.
    #[schema(
        value_type = Vec<PrintedId>,
        required = false,
        example = json!(["1001", "1002", "1003"])
    )]
    ids: Vec<String>,
}

/// Numbers at an even distance.
#[derive(Serialize, ToSchema)]
pub(crate) struct NumberRange {
    /// The first number.
    first: NumberString,
    /// The last number.
    #[schema(example = "1003")]
    last: NumberString,
    /// How many numbers.
    #[schema(minimum = 1, example = 3)]
    count: u64,
    /// The distance between two numbers.
    #[schema(minimum = 1, example = 1)]
    step: i64,
}

/// A number as it was printed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct ParseRequest {
    #[schema(value_type = IdInput)]
    pub(crate) id: Value,
}

/// What to raise the floor of a sequence to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct AdvanceRequest {
    /// Nothing below this number is issued any more.
    #[schema(value_type = NumberInput, example = "5001")]
    pub(crate) floor: Value,
    /// Whether more than 1 % of what is left may be skipped.
    #[serde(default)]
    #[schema(required = false)]
    pub(crate) confirm: bool,
    /// The period, for sequences that have periods.
    #[schema(required = false, value_type = Option<Period>)]
    pub(crate) period: Option<Value>,
}

/// Which worker id to lease, and for how long.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct WorkerLeaseRequest {
    /// The pool that the id is from. Programs whose ids may meet name the same pool.
    #[schema(value_type = SequenceName, example = "billing")]
    pub(crate) pool: String,
    /// Width of the pool's worker ids. The first lease of a pool decides.
    #[schema(value_type = u32, example = 10, minimum = 1, maximum = 22)]
    pub(crate) bits: Whole,
    /// How long the lease lasts and how far ahead it reserves time, in milliseconds.
    #[schema(value_type = u64, example = 30_000, minimum = 1000, maximum = 3_600_000)]
    pub(crate) ttl_ms: Whole,
    /// Who asks, in printable ASCII. The same holder gets its former id back after a restart.
    #[schema(
        example = "billing-7",
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]{1,128}$"
    )]
    pub(crate) holder: String,
}

/// For how long a lease is renewed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct WorkerRenewalRequest {
    /// How long the lease lasts from now on, in milliseconds. Without it, as long as before.
    #[schema(
        value_type = u64,
        required = false,
        example = 30_000,
        minimum = 1000,
        maximum = 3_600_000
    )]
    pub(crate) ttl_ms: Option<Whole>,
}

/// What of a lease was not used.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(crate) struct WorkerReturnRequest {
    /// You made no id with this time or a later one, so the next holder may begin there. Without
    /// it, the worker id rests until `until_ms`.
    #[schema(value_type = UnixMilliseconds, required = false)]
    pub(crate) unused_from_ms: Option<Whole>,
}

/// A whole number in a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole(pub(crate) i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        let unfit = || de::Error::custom(format!("`{number}` is not a whole number"));
        whole_number(&number).map(Self).ok_or_else(unfit)
    }
}
