//! Describes definitions: as replies show them, as requests change them, and how long their numbers
//! last.

#![expect(dead_code, reason = "describes JSON that is written and read by hand")]

use serde::Deserialize;
use utoipa::ToSchema;

use super::values::{
    DayOfYear, Duration, Format, LayoutHigh, LayoutPreset, LayoutUnit, NumberInput, NumberString,
    Overflow, PeriodKind, RunwayEnd, SequenceKind, SequenceOrder, StoreName, TimeOfDay, TimeZone,
    Timestamp,
};

/// What a sequence is.
#[derive(ToSchema)]
pub(crate) struct Definition {
    kind: SequenceKind,
    /// The first number.
    #[schema(example = "1")]
    start: NumberString,
    /// The distance between two numbers.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, example = 1)]
    step: i64,
    /// No number is above this one.
    #[schema(example = "9007199254740991")]
    max: NumberString,
    order: SequenceOrder,
    period: PeriodKind,
    /// The time zone in which calendar periods are cut.
    time_zone: TimeZone,
    /// The time of day at which calendar periods are cut.
    cutover: TimeOfDay,
    /// The day on which years start, for `period` `year`.
    year_starts: DayOfYear,
    /// How far back a caller may name a calendar period.
    period_back: Duration,
    /// How far ahead a caller may name a calendar period.
    period_ahead: Duration,
    /// For how long calendar periods are kept after their end.
    retain: Duration,
    block: BlockPolicy,
    format: Format,
    overflow: Overflow,
    /// Numbers a second that you expect; null if you do not know.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000, example = 100.0)]
    declared_rate: Option<f64>,
    /// How fast numbers may be reserved; null if there is no limit.
    limit: Option<SpeedLimit>,
    /// The store that keeps the sequence.
    store: StoreName,
    /// What people should know about the sequence.
    #[schema(max_length = 1024, example = "Order numbers of the shop")]
    description: String,
    /// How the bits of an id are divided. Present for kind `snowflake` only.
    #[schema(required = false)]
    layout: Layout,
}

/// How much of a sequence is reserved at once.
#[derive(ToSchema)]
pub(crate) struct BlockPolicy {
    /// The fewest numbers of a block.
    #[schema(minimum = 1, maximum = 4_294_967_296_u64, example = 1)]
    min: u64,
    /// The most numbers of a block.
    #[schema(minimum = 1, maximum = 4_294_967_296_u64, example = 1_000_000_000)]
    max: u64,
    /// The next block is fetched when the numbers in memory last for less than this. For kind
    /// `snowflake`, how far ahead time is reserved.
    hold: Duration,
    /// For how long a block should last.
    #[schema(example = "30m")]
    refill: Duration,
}

/// How fast the numbers of each counter may be reserved. A failover that lost commits skips as many.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpeedLimit {
    /// Numbers a second.
    #[schema(minimum = 1, maximum = 1_000_000_000, example = 100_000)]
    rate: u32,
    /// Numbers at once after a rest: at most what `rate` gives in a day.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64, example = 10_000_000)]
    burst: u64,
}

/// How the bits of a time-ordered id are divided: at most 63 in all, and at least 32 for time and
/// sequence together.
#[derive(ToSchema)]
pub(crate) struct Layout {
    high: LayoutHigh,
    /// Where time begins.
    #[schema(example = "2026-01-01T00:00:00Z")]
    epoch: Timestamp,
    unit: LayoutUnit,
    /// Bits of the time.
    #[schema(minimum = 1, maximum = 61, example = 41)]
    time: u32,
    /// Bits of the worker id.
    #[schema(minimum = 1, maximum = 22, example = 10)]
    worker: u32,
    /// Bits of the counter.
    #[schema(minimum = 1, maximum = 22, example = 12)]
    sequence: u32,
}

/// The fields of a definition to set. Fields that you leave out keep their value. For a new
/// sequence they come from the template of its name. A number that identifies is a string in every
/// reply; in a request a JSON number works too.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefinitionChange {
    #[schema(required = false)]
    kind: SequenceKind,
    /// The first number. It cannot change.
    #[schema(required = false, example = "1")]
    start: NumberInput,
    /// The distance between two numbers: 1 to 2^53 - 1. It cannot change.
    #[schema(required = false, example = 1)]
    step: NumberInput,
    /// No number is above this one: at most 2^63 - 1 - `step`.
    #[schema(required = false, example = "9007199254740991")]
    max: NumberInput,
    #[schema(required = false)]
    order: SequenceOrder,
    #[schema(required = false)]
    period: PeriodKind,
    /// The time zone in which calendar periods are cut. It cannot change.
    #[schema(required = false, example = "UTC")]
    time_zone: TimeZone,
    /// The time of day at which calendar periods are cut. It cannot change.
    #[schema(required = false, example = "00:00")]
    cutover: TimeOfDay,
    /// The day on which years start, for `period` `year`. It cannot change.
    #[schema(required = false, example = "01-01")]
    year_starts: DayOfYear,
    /// How far back a caller may name a calendar period: up to 100 years.
    #[schema(required = false, example = "2d")]
    period_back: Duration,
    /// How far ahead a caller may name a calendar period: up to 100 years.
    #[schema(required = false, example = "2d")]
    period_ahead: Duration,
    /// For how long calendar periods are kept after their end: more than `period_back`, and up to
    /// 100 years.
    #[schema(required = false, example = "400d")]
    retain: Duration,
    #[schema(required = false)]
    block: BlockPolicyChange,
    #[schema(required = false, example = "{value}")]
    format: Format,
    #[schema(required = false)]
    overflow: Overflow,
    /// Numbers a second that you expect; null if you do not know.
    #[schema(
        required = false,
        exclusive_minimum = 0,
        maximum = 1_000_000_000,
        example = 100.0
    )]
    declared_rate: Option<f64>,
    /// How fast numbers may be reserved; null for what suits the other fields. Not for kind
    /// `snowflake`.
    #[schema(required = false)]
    limit: Option<SpeedLimit>,
    /// The store that keeps the sequence. It cannot change.
    #[schema(required = false)]
    store: StoreName,
    /// What people should know about the sequence, without control characters.
    #[schema(
        required = false,
        max_length = 1024,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$",
        example = "Order numbers of the shop"
    )]
    description: String,
    /// How the bits of an id are divided. For kind `snowflake` only; null for every other kind. It
    /// cannot change.
    #[schema(required = false)]
    layout: Option<LayoutInput>,
    /// Whether `format` or `overflow` may change although a recovery of the database may have lost
    /// formats that the sequence had.
    #[schema(required = false)]
    confirm: bool,
}

/// The fields of a block policy to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockPolicyChange {
    /// The fewest numbers of a block.
    #[schema(
        required = false,
        minimum = 1,
        maximum = 4_294_967_296_u64,
        example = 1
    )]
    min: u64,
    /// The most numbers of a block.
    #[schema(
        required = false,
        minimum = 1,
        maximum = 4_294_967_296_u64,
        example = 1_000_000_000
    )]
    max: u64,
    /// The next block is fetched when the numbers in memory last for less than this: a second to
    /// 366 days. For kind `snowflake`, how far ahead time is reserved: at least 2 seconds.
    #[schema(required = false)]
    hold: Duration,
    /// For how long a block should last: a second to 366 days.
    #[schema(required = false, example = "30m")]
    refill: Duration,
}

/// A layout in fields, or by its name.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum LayoutInput {
    Preset(LayoutPreset),
    Fields(LayoutChange),
}

/// How the bits of a time-ordered id are divided: at most 63 in all, and at least 32 for time and
/// sequence together. Fields that you leave out have their default.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayoutChange {
    #[schema(required = false)]
    high: LayoutHigh,
    /// Where time begins (RFC 3339): a day that there is, in whole milliseconds, from 1970 on, not in
    /// the future. Replies have it in UTC.
    #[schema(
        required = false,
        pattern = r"^(19[7-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,3})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$",
        example = "2026-01-01T00:00:00Z"
    )]
    epoch: String,
    #[schema(required = false)]
    unit: LayoutUnit,
    /// Bits of the time.
    #[schema(required = false, minimum = 1, maximum = 61, example = 41)]
    time: u32,
    /// Bits of the worker id.
    #[schema(required = false, minimum = 1, maximum = 22, example = 10)]
    worker: u32,
    /// Bits of the counter.
    #[schema(required = false, minimum = 1, maximum = 22, example = 12)]
    sequence: u32,
}

/// How long the numbers last that are not reserved yet, up to the nearest end and up to each end.
/// For a sequence with periods, those of one period.
#[derive(ToSchema)]
pub(crate) struct Runway {
    /// The nearest end that is still ahead.
    limit: RunwayEnd,
    /// Numbers left up to that end.
    #[schema(example = 9_007_199_254_739_991_u64)]
    numbers_left: u64,
    /// Days that they last at the measured rate, or at `declared_rate` if that is higher; null at
    /// rate 0. Up to the end of `time`, days at any rate.
    #[schema(example = 365.25)]
    days_left: Option<f64>,
    /// All ends of the sequence.
    limits: Vec<RunwayLimit>,
}

/// How far it is to one of the ends.
#[derive(ToSchema)]
pub(crate) struct RunwayLimit {
    limit: RunwayEnd,
    /// Numbers left up to that end.
    #[schema(example = 9_007_199_254_739_991_u64)]
    numbers_left: u64,
    /// Days that they last; null at rate 0.
    #[schema(example = 365.25)]
    days_left: Option<f64>,
}
