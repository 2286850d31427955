//! Describes bodies whose JSON is written or read by hand.

#![expect(dead_code, reason = "describes JSON that is written and read by hand")]

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::values::{IdInput, NumberInput, NumberString, Period, PrintedId, SequenceName};

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
    #[schema(value_type = SequenceName)]
    sequence: String,
    /// The period of the number; null if the sequence counts without periods.
    #[schema(value_type = Option<Period>)]
    period: Option<String>,
    #[schema(value_type = PrintedId)]
    id: String,
    /// The bare number.
    #[schema(value_type = NumberString)]
    value: String,
}

/// Numbers of one call that nobody else gets.
#[derive(Serialize, ToSchema)]
pub(crate) struct IssuedBatch {
    #[schema(value_type = SequenceName)]
    sequence: String,
    /// The period of the numbers; null if the sequence counts without periods.
    #[schema(value_type = Option<Period>)]
    period: Option<String>,
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
    #[schema(value_type = NumberString)]
    first: String,
    /// The last number.
    #[schema(value_type = NumberString, example = "1003")]
    last: String,
    /// How many numbers.
    #[schema(minimum = 1, example = 3)]
    count: u64,
    /// The distance between two numbers.
    #[schema(minimum = 1, example = 1)]
    step: i64,
}

/// A number as it was printed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParseRequest {
    id: IdInput,
}

/// What to raise the floor of a sequence to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdvanceRequest {
    /// Nothing below this number is issued any more.
    #[schema(example = "5001")]
    floor: NumberInput,
    /// Whether more than 1 % of what is left may be skipped.
    #[schema(required = false)]
    confirm: bool,
    /// The period, for sequences that have periods.
    #[schema(required = false, value_type = Option<Period>)]
    period: Option<String>,
}
