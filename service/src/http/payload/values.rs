//! Describes values that many fields have, each once: names, numbers in strings, times, choices.

#![expect(dead_code, reason = "describes JSON that is written and read by hand")]

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use utoipa::Number;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Declares texts: the rules of each, as utoipa writes them.
macro_rules! texts {
    ($($(#[$about:meta])* $name:ident: $($rule:ident = $said:tt),+;)+) => {
        $(
            $(#[$about])*
            #[derive(Default, Serialize, Deserialize, ToSchema)]
            #[schema(value_type = String, $($rule = $said),+)]
            pub(crate) struct $name(String);

            impl<T: Display> From<T> for $name {
                fn from(value: T) -> Self {
                    Self(value.to_string())
                }
            }
        )+
    };
}

texts! {
    /// The name of a sequence, or of a pool of worker ids. Case matters.
    SequenceName:
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$", min_length = 1, max_length = 128,
        example = "orders";

    /// A period as it is printed: `20261120` for a day, `2026W47` for a week, `202611` for a month,
    /// `2026` for a year. Of kind `keyed`, the caller's key.
    Period:
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$", min_length = 1, max_length = 64,
        example = "2026";

    /// A pattern over names: `*` stands for any characters, `?` for one, `[a-f]` for one of a set.
    Glob:
        pattern = r"^[A-Za-z0-9*?\[][A-Za-z0-9._:*?\[\]!-]*$", min_length = 1, example = "invoice-*";

    /// The printed form of a number: the number in the format of its sequence.
    PrintedId: pattern = r"^[ !#-\[\]-~]+$", min_length = 1, example = "1001";

    /// What shows that you hold a worker id. Keep it secret.
    LeaseToken:
        pattern = "^[0-9a-f]{32}$", min_length = 32, max_length = 32,
        example = "0f9d6b1c5a3e47d28b60c4a917fe2d35";

    /// A span of time: a whole number and one of the units `s`, `m`, `h`, `d`, `w`.
    Duration: pattern = "^[0-9]+[smhdw]$", example = "15m";

    /// A moment in UTC, to the millisecond (RFC 3339).
    Timestamp: format = DateTime, example = "2026-11-20T13:22:15.519Z";

    /// A time of day, `HH:MM`.
    TimeOfDay: pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$", example = "22:00";

    /// A month and a day that every year has, `MM-DD`.
    DayOfYear:
        pattern = "^((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))$",
        example = "04-06";

    /// The name of an IANA time zone.
    TimeZone:
        pattern = "^[A-Za-z][A-Za-z0-9_+/-]*$", min_length = 1, max_length = 64,
        example = "Europe/Berlin";

    /// The name of a store in the configuration.
    StoreName:
        pattern = "^[a-z][a-z0-9_]{0,31}$", min_length = 1, max_length = 32,
        example = "default";

    /// How a number is printed: text, and fields in braces. Exactly one field prints the number, as
    /// `{value}`, `{value:06}`, `{value:b36}`, `{value:b62:06}` or `{value:crockford}`. Others are
    /// `{period}`, `{yyyy}`, `{yy}`, `{MM}`, `{dd}`, `{JJJ}`, `{check:luhn}` and `{check:mod97}`.
    Format:
        pattern = r"^[ !#-\[\]-~]*\{value(:(b36|b62|crockford))?(:0[1-9][0-9]?)?\}[ !#-\[\]-~]*$",
        min_length = 7, max_length = 128, example = "INV-{yyyy}-{value:06}";

    /// The version of a definition, as the `ETag` of a reply has it.
    EntityTag: pattern = "^\"[0-9]{1,19}\"$", example = "\"1\"";

    /// A trace and a span in it, as W3C Trace Context writes them.
    TraceContext:
        pattern = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$",
        example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
}

/// Declares choices: the example of each, and its words.
macro_rules! choices {
    ($($(#[$about:meta])* $name:ident, $example:tt: $($choice:ident = $word:tt),+;)+) => {
        $(
            $(#[$about])*
            #[derive(Deserialize, ToSchema)]
            #[schema(example = $example)]
            pub(crate) enum $name {
                $(#[serde(rename = $word)] $choice,)+
            }
        )+
    };
}

choices! {
    /// Any version of a definition.
    AnyVersion, "*": Any = "*";

    /// How the numbers of a sequence come about. `block`: they are counted, out of blocks that are
    /// reserved ahead. `snowflake`: they are composed of time, worker id and a counter.
    SequenceKind, "block": Block = "block", Snowflake = "snowflake";

    /// What is promised about order. `relaxed`: numbers ascend on one replica. `strict`: numbers
    /// ascend across all replicas in real time.
    SequenceOrder, "relaxed": Relaxed = "relaxed", Strict = "strict";

    /// In what a sequence counts from its start again. `none`: never. `keyed`: for each key that
    /// callers give.
    PeriodKind, "none":
        None = "none", Day = "day", Week = "week", Month = "month", Year = "year", Keyed = "keyed";

    /// How long a tick of a time-ordered id lasts.
    LayoutUnit, "1ms": Millisecond = "1ms", TenMilliseconds = "10ms", Second = "1s";

    /// The layout whose ids JavaScript reads exactly.
    LayoutPreset, "53-bit": Bits53 = "53-bit";

    /// The order of names in memory. `name`: by the bytes of the names. `reserve`: numbers in memory
    /// that last for the shortest time first. `runway`: numbers that are not reserved yet and last
    /// for the shortest time first.
    LiveSort, "reserve": Name = "name", Reserve = "reserve", Runway = "runway";

    /// Whether a sequence issues numbers (`live`) or was retired.
    SequenceStatus, "live": Live = "live", Retired = "retired";

    /// What a store is. `database`: one database. `striped`: several databases that share each
    /// sequence. `redis`: a database, with Redis counting for sequences in strict order.
    StoreKind, "database": Database = "database", Striped = "striped", Redis = "redis";
}

// What follows is not indented, because the lines of its descriptions fill the width.

texts! {
/// A number of a sequence, in decimal digits. It is a string because JavaScript loses digits above
/// 2^53.
NumberString: pattern = "^[0-9]{1,19}$", min_length = 1, max_length = 19, example = "1001";
}

choices! {
/// What happens to a number that is too long for the format. `refuse`: it is not issued. `widen`:
/// it is printed wider.
Overflow, "refuse": Refuse = "refuse", Widen = "widen";

/// What stands in the highest bits of a time-ordered id. `worker`: the worker id, and the clock is
/// read only at start.
LayoutHigh, "time": Time = "time", Worker = "worker";

/// An end that the numbers of a sequence run up to. `max`: that of the definition. `width`: what
/// fits the padding of the format. `exact`: 2^53 - 1, above which programs that count in floating
/// point lose digits. `time`: the end of a time-ordered layout, its only one.
RunwayEnd, "max": Max = "max", Width = "width", Exact = "exact", Time = "time";

/// What became of a block. `held`: its holder has not said. `spent`: it was used up. `returned`:
/// the rest was given back. `adopted`: another holder took over the rest. `abandoned`: the rest is
/// a gap.
BlockFate, "held":
    Held = "held", Spent = "spent", Returned = "returned", Adopted = "adopted",
    Abandoned = "abandoned";

/// What became of a number. `not_reserved`: it is not reserved. `held`: its holder has not said.
/// `issued`: it was certainly given to a caller; no number gets this answer yet. `issued_or_lost`:
/// it left its holder's memory, to a caller or with the holder. `returned`: it was given back and
/// waits to be adopted. `adopted`: it was given back and taken over; no more is known. `abandoned`:
/// it was neither issued nor returned. `no_record`: the journal has no row of it.
NumberFate, "issued_or_lost":
    NotReserved = "not_reserved", Held = "held", Issued = "issued",
    IssuedOrLost = "issued_or_lost", Returned = "returned", Adopted = "adopted",
    Abandoned = "abandoned", NoRecord = "no_record";
}

/// A number of a sequence, from 0 to 2^63 - 1: decimal digits in a string, or a JSON number. Use a
/// string above 2^53.
#[derive(Deserialize)]
pub(crate) struct NumberInput(String);

/// A printed id, as a reply has it. If it is a plain number, a JSON number works too.
pub(crate) struct IdInput(String);

/// A worker id. A pool whose ids have N bits has the ids 0 to 2^N - 1.
#[derive(ToSchema)]
#[schema(value_type = u32, minimum = 0, maximum = 4_294_967_295_u64, format = Int64, example = 17)]
pub(crate) struct WorkerId(u32);

/// A moment in milliseconds of Unix time.
#[derive(Serialize, ToSchema)]
#[schema(value_type = i64, example = 1_795_000_030_000_i64)]
pub(crate) struct UnixMilliseconds(pub(crate) i64);

/// Returns the schema of a string or a whole number from 0 to `maximum`.
fn text_or_number(
    pattern: &str,
    maximum: impl Into<Number>,
    description: &str,
    example: &str,
) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Integer]))
        .minimum(Some(0))
        .maximum(Some(maximum))
        .pattern(Some(pattern))
        .description(Some(description))
        .examples([example])
        .into()
}

impl PartialSchema for NumberInput {
    fn schema() -> RefOr<Schema> {
        let description = "A number of a sequence, from 0 to 2^63 - 1: decimal digits in a \
            string, or a JSON number. Use a string above 2^53.";
        text_or_number("^[0-9]{1,19}$", i64::MAX, description, "1001")
    }
}

impl ToSchema for NumberInput {}

impl PartialSchema for IdInput {
    fn schema() -> RefOr<Schema> {
        let description = "A printed id, as a reply has it. If it is a plain number, a JSON number \
            works too.";
        text_or_number(r"^[ !#-\[\]-~]+$", u64::MAX, description, "INV-2026-000042")
    }
}

impl ToSchema for IdInput {}
