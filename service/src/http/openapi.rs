//! The description of the API, OpenAPI 3.1: made of the routes' own annotations, the warm path
//! included, and of one table that says how each call can be refused.

use std::collections::BTreeMap;

use actix_web::web::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, HeaderBuilder, OpenApi, PathItem, Ref, RefOr, Response, ResponseBuilder, Schema,
};
use utoipa::{OpenApi as _, ToSchema};

use super::problem::{self, Code};
use super::{explain, health, lifecycle, numbers, printed, replica, sequences, workers};

/// An object without fields.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// One number, or a batch where `count` was given.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes JSON that is written by hand")]
pub(super) enum Numbers {
    One(OneNumber),
    Batch(Batch),
}

/// One number.
#[derive(Serialize, ToSchema)]
pub(super) struct OneNumber {
    /// The name of the sequence.
    #[schema(example = "orders")]
    sequence: String,
    /// The period it belongs to; null where the sequence counts without periods.
    period: Option<String>,
    /// The printed form.
    #[schema(example = "1001")]
    id: String,
    /// The bare number.
    #[schema(example = "1001")]
    value: String,
}

/// Numbers given by one call.
#[derive(Serialize, ToSchema)]
pub(super) struct Batch {
    /// The name of the sequence.
    #[schema(example = "orders")]
    sequence: String,
    /// The period they belong to; null where the sequence counts without periods.
    period: Option<String>,
    /// How many numbers.
    #[schema(example = 3)]
    count: u64,
    /// The bare numbers, ascending.
    ranges: Vec<Range>,
    /// The printed forms; absent with `ids=false`.
    #[schema(required = false)]
    ids: Vec<String>,
}

/// Numbers at an even distance.
#[derive(Serialize, ToSchema)]
pub(super) struct Range {
    #[schema(example = "1001")]
    first: String,
    #[schema(example = "1003")]
    last: String,
    #[schema(example = 3)]
    count: u64,
    #[schema(example = 1)]
    step: i64,
}

/// What a definition has become, or with `dry_run=true` would become.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what is written as one or the other")]
pub(super) enum WrittenOrRehearsed {
    Written(sequences::Written),
    Rehearsed(sequences::Rehearsal),
}

/// A number as it was printed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes JSON that is read by hand")]
pub(super) struct Printed {
    /// As a reply has it; a whole number will do as well.
    #[schema(example = "INV-2026-000042")]
    id: String,
}

/// What to raise the floor to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes JSON that is read by hand")]
pub(super) struct Floor {
    /// Nothing below it is issued any more; a number will do as well.
    #[schema(example = "5001")]
    floor: String,
    /// Whether more than 1 % of what is left may be skipped.
    #[schema(required = false, default = false)]
    confirm: bool,
    /// The period, for sequences that have periods.
    #[schema(required = false)]
    period: Option<String>,
}

/// What a sequence is. Numbers that identify are strings; in a request a number will do.
#[derive(Serialize, ToSchema)]
pub(super) struct DefinitionFields {
    #[schema(required = false, example = "block")]
    kind: String,
    /// The first number.
    #[schema(required = false, example = "1")]
    start: String,
    /// The distance between two numbers.
    #[schema(required = false, minimum = 1, example = 1)]
    step: i64,
    /// No number is above this one.
    #[schema(required = false, example = "9007199254740991")]
    max: String,
    #[schema(required = false, example = "relaxed")]
    order: String,
    #[schema(required = false, example = "none")]
    period: String,
    #[schema(required = false, example = "UTC")]
    time_zone: String,
    #[schema(required = false, example = "00:00")]
    cutover: String,
    #[schema(required = false, example = "01-01")]
    year_starts: String,
    #[schema(required = false, example = "2d")]
    period_back: String,
    #[schema(required = false, example = "2d")]
    period_ahead: String,
    #[schema(required = false, example = "400d")]
    retain: String,
    #[schema(required = false)]
    block: BlockFields,
    #[schema(required = false, example = "{value}")]
    format: String,
    #[schema(required = false, example = "refuse")]
    overflow: String,
    #[schema(required = false)]
    declared_rate: Option<f64>,
    #[schema(required = false, example = "default")]
    store: String,
    #[schema(required = false, max_length = 1024)]
    description: String,
    /// Of kind `snowflake`, and only there; in a request `"53-bit"` stands for the layout whose ids
    /// JavaScript reads exactly.
    #[schema(required = false)]
    layout: Option<LayoutFields>,
}

/// How the bits of a time-ordered id are divided: 63 at most, time and sequence 32 or more.
#[derive(Serialize, ToSchema)]
pub(super) struct LayoutFields {
    /// What stands in the highest bits: `time`, or `worker`, and then the clock is read at start
    /// only.
    #[schema(required = false, example = "time")]
    high: String,
    /// Where time begins: RFC 3339, in whole milliseconds, not in the future.
    #[schema(required = false, example = "2026-01-01T00:00:00Z")]
    epoch: String,
    /// How long a tick lasts: `1ms`, `10ms` or `1s`.
    #[schema(required = false, example = "1ms")]
    unit: String,
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

/// How long the numbers that nobody has reserved yet last, of a sequence with periods those of one
/// period: up to the nearest end, and up to each.
#[derive(Serialize, ToSchema)]
pub(super) struct Runway {
    /// The nearest end that is not behind: `max`; `width`, what fits the format's padding; `exact`,
    /// 2^53 − 1, above which programs that count in floating point lose digits; `time`, the end of
    /// a time-ordered kind's layout, its only one.
    #[schema(example = "max")]
    limit: String,
    /// Numbers left up to there.
    #[schema(example = 9_007_199_254_739_991_u64)]
    numbers_left: u64,
    /// Days that they last at the measured rate, or at `declared_rate` where that is higher; null
    /// at rate 0. To the end of `time` it is days at any rate.
    days_left: Option<f64>,
    /// All ends of the sequence.
    limits: Vec<RunwayLimit>,
}

/// How far it is to one of the ends.
#[derive(Serialize, ToSchema)]
pub(super) struct RunwayLimit {
    #[schema(example = "max")]
    limit: String,
    #[schema(example = 9_007_199_254_739_991_u64)]
    numbers_left: u64,
    days_left: Option<f64>,
}

/// How much of a sequence is reserved at once.
#[derive(Serialize, ToSchema)]
pub(super) struct BlockFields {
    /// The least numbers of a block.
    #[schema(required = false, minimum = 1, example = 1)]
    min: u64,
    /// The most numbers of a block.
    #[schema(required = false, minimum = 1, example = 1_000_000_000)]
    max: u64,
    /// The next block is fetched when less than this is left.
    #[schema(required = false, example = "15m")]
    hold: String,
    /// For how long a block should last.
    #[schema(required = false, example = "30m")]
    refill: String,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Odometer",
        description = "Numbers that never repeat. Any status but 2xx: no number was given. \
            Every call takes `X-Request-Id`, which its reply repeats, and the \
            `traceparent` of W3C Trace Context, whose trace its reply then names.",
    ),
    paths(
        numbers::next,
        numbers::blocks,
        printed::parse,
        sequences::list,
        sequences::read,
        sequences::define,
        lifecycle::advance,
        lifecycle::retire,
        lifecycle::restore,
        lifecycle::remove_period,
        explain::explain,
        workers::lease,
        workers::renew,
        workers::give_back,
        workers::list,
        replica::replica,
        replica::list,
        replica::watch,
        health::livez,
        health::readyz,
        health::metrics,
        health::openapi,
    ),
    tags(
        (name = "numbers", description = "Taking numbers"),
        (name = "sequences", description = "Definitions and state"),
        (name = "workers", description = "Worker ids for programs with a snowflake library of their own"),
        (name = "operation", description = "For operators"),
    ),
)]
struct Description;

/// Ways in which every call to `next` or `blocks` can be refused.
const TAKING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidCount,
    Code::InvalidPeriod,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Forbidden,
    Code::SequenceNotFound,
    Code::MethodNotAllowed,
    Code::SequenceExhausted,
    Code::NotForKind,
    Code::TooManySequences,
    Code::TooManyPeriods,
    Code::SequenceRetired,
    Code::PeriodRemoved,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::RefillTimeout,
    Code::Overloaded,
    Code::ClockBehind,
    Code::ClockAhead,
    Code::NoWorkerId,
    Code::Draining,
    Code::Internal,
];

const LISTING: &[Code] = &[
    Code::InvalidParameter,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::StoreUnavailable,
    Code::Overloaded,
    Code::Internal,
];

const READING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidPeriod,
    Code::InvalidParameter,
    Code::Forbidden,
    Code::SequenceNotFound,
    Code::MethodNotAllowed,
    Code::PeriodRemoved,
    Code::StoreUnavailable,
    Code::RefillTimeout,
    Code::Overloaded,
    Code::Internal,
];

const EXPLAINING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidPeriod,
    Code::InvalidId,
    Code::InvalidParameter,
    Code::Forbidden,
    Code::SequenceNotFound,
    Code::MethodNotAllowed,
    Code::PeriodRemoved,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::RefillTimeout,
    Code::Overloaded,
    Code::Internal,
];

/// Of `parse`, which changes nothing and may be asked with the database away.
const PARSING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidId,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Forbidden,
    Code::SequenceNotFound,
    Code::MethodNotAllowed,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::RefillTimeout,
    Code::Overloaded,
    Code::Internal,
];

const DEFINING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidDefinition,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::ImmutableField,
    Code::TooManySequences,
    Code::SequenceRetired,
    Code::AlreadyExists,
    Code::VersionMismatch,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::Overloaded,
    Code::Draining,
    Code::Internal,
];

const ADVANCING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidPeriod,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::SequenceNotFound,
    Code::MethodNotAllowed,
    Code::ConfirmNeeded,
    Code::NotForKind,
    Code::TooManyPeriods,
    Code::SequenceRetired,
    Code::PeriodRemoved,
    Code::VersionMismatch,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::RefillTimeout,
    Code::Overloaded,
    Code::Draining,
    Code::Internal,
];

/// Of `DELETE` and `restore`.
const LIVING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::SequenceNotFound,
    Code::MethodNotAllowed,
    Code::VersionMismatch,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::Overloaded,
    Code::Draining,
    Code::Internal,
];

const REMOVING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidPeriod,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::SequenceNotFound,
    Code::MethodNotAllowed,
    Code::NotForKind,
    Code::TooManyPeriods,
    Code::VersionMismatch,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::Overloaded,
    Code::Draining,
    Code::Internal,
];

const LEASING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::ImmutableField,
    Code::TooManySequences,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::RefillTimeout,
    Code::Overloaded,
    Code::ClockBehind,
    Code::ClockAhead,
    Code::NoWorkerId,
    Code::Draining,
    Code::Internal,
];

/// Of a renewal, and of an end but for the clock.
const HOLDING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidParameter,
    Code::InvalidBody,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::LeaseLost,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::RefillTimeout,
    Code::Overloaded,
    Code::ClockAhead,
    Code::Draining,
    Code::Internal,
];

const LISTING_WORKERS: &[Code] = &[
    Code::InvalidName,
    Code::InvalidParameter,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::StoreUnavailable,
    Code::Overloaded,
    Code::Internal,
];

/// Of what this replica knows by itself.
const LOOKING: &[Code] = &[
    Code::InvalidParameter,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::Overloaded,
    Code::Internal,
];

const WATCHING: &[Code] = &[
    Code::InvalidName,
    Code::InvalidPeriod,
    Code::InvalidParameter,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::Overloaded,
    Code::Internal,
];

/// The whole description, as it is served.
///
/// # Errors
/// It cannot be written as JSON, which no input can bring about.
pub(super) fn document() -> serde_json::Result<Bytes> {
    serde_json::to_vec(&description()).map(Bytes::from)
}

fn description() -> OpenApi {
    let mut api = Description::openapi();
    api.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let components = api.components.get_or_insert_default();
    components
        .schemas
        .insert("Problem".to_owned(), problem_schema());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("administrator", SecurityScheme::Http(bearer));
    for (path, item) in &mut api.paths.paths {
        refusals_of(path, item);
    }
    api
}

fn refusals_of(path: &str, item: &mut PathItem) {
    let readyz = [
        Code::MethodNotAllowed,
        Code::StoreUnavailable,
        Code::Draining,
    ];
    let only_method = [Code::MethodNotAllowed];
    let reading = match path {
        "/v1/sequences" => LISTING,
        "/v1/sequences/{name}" => READING,
        "/v1/sequences/{name}/explain" => EXPLAINING,
        "/v1/workers/{pool}" => LISTING_WORKERS,
        "/v1/replica" | "/v1/replica/sequences" => LOOKING,
        "/v1/replica/sequences/{name}" => WATCHING,
        "/readyz" => &readyz,
        _ => &only_method,
    };
    let posting = match path {
        "/v1/sequences/{name}/parse" => PARSING,
        "/v1/sequences/{name}/advance" => ADVANCING,
        "/v1/sequences/{name}/restore" => LIVING,
        "/v1/workers" => LEASING,
        "/v1/workers/{pool}/{worker}/renew" => HOLDING,
        _ => TAKING,
    };
    let deleting = match path {
        "/v1/sequences/{name}" => LIVING,
        "/v1/workers/{pool}/{worker}" => HOLDING,
        _ => REMOVING,
    };
    let operations = [
        (&mut item.get, reading),
        (&mut item.post, posting),
        (&mut item.put, DEFINING),
        (&mut item.delete, deleting),
    ];
    for (operation, codes) in operations {
        if let Some(operation) = operation {
            add_refusals(operation, codes);
        }
    }
}

fn add_refusals(operation: &mut Operation, codes: &[Code]) {
    let mut statuses: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in codes {
        let words = statuses.entry(code.status().as_u16()).or_default();
        words.push(code.as_str());
    }
    for (status, words) in statuses {
        let response = RefOr::T(refusal(status, &words));
        operation
            .responses
            .responses
            .insert(status.to_string(), response);
    }
}

fn refusal(status: u16, words: &[&str]) -> Response {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .build();
    let response = ResponseBuilder::new()
        .description(format!("`{}`", words.join("`, `")))
        .content(problem::MEDIA_TYPE, content);
    let header = match status {
        405 => Some(("Allow", "The methods the path takes.")),
        503 => Some(("Retry-After", "Seconds to wait.")),
        _ => None,
    };
    match header {
        Some((name, description)) => {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let header = HeaderBuilder::new()
                .schema(Some(text))
                .description(Some(description));
            response.header(name, header.build()).build()
        }
        None => response.build(),
    }
}

fn problem_schema() -> RefOr<Schema> {
    let text = |description: &str| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(description))
    };
    let status = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("The status of the reply."));
    let code = text("What went wrong, in a word of a closed list.")
        .enum_values(Some(Code::ALL.iter().map(|code| code.as_str())));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("Why a call was refused (RFC 9457)."))
        .property("type", text("`urn:odometer:problem:` and the code."))
        .required("type")
        .property("title", text("The same for every problem of this code."))
        .required("title")
        .property("status", status)
        .required("status")
        .property("detail", text("What is wrong here, and what to do."))
        .required("detail")
        .property("code", code)
        .required("code")
        .into()
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use std::collections::BTreeSet;

    use odometer_core::{definition::Definition, snowflake::Layout};
    use serde_json::Value;

    use super::*;

    fn served() -> Value {
        serde_json::from_slice(&document().unwrap()).unwrap()
    }

    fn keys(value: &Value) -> BTreeSet<&str> {
        value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn it_is_openapi_3_1_and_holds_every_route() {
        let served = served();
        assert_eq!(served["openapi"], "3.1.0");
        let expected = [
            "/livez",
            "/metrics",
            "/openapi.json",
            "/readyz",
            "/v1/replica",
            "/v1/replica/sequences",
            "/v1/replica/sequences/{name}",
            "/v1/sequences",
            "/v1/sequences/{name}",
            "/v1/sequences/{name}/advance",
            "/v1/sequences/{name}/blocks",
            "/v1/sequences/{name}/explain",
            "/v1/sequences/{name}/next",
            "/v1/sequences/{name}/parse",
            "/v1/sequences/{name}/periods/{key}",
            "/v1/sequences/{name}/restore",
            "/v1/workers",
            "/v1/workers/{pool}",
            "/v1/workers/{pool}/{worker}",
            "/v1/workers/{pool}/{worker}/renew",
        ];
        assert_eq!(keys(&served["paths"]), BTreeSet::from(expected));
    }

    #[test]
    fn the_fields_of_a_definition_are_those_it_is_written_with() {
        let served = served();
        let schemas = &served["components"]["schemas"];
        let time_ordered = Definition {
            layout: Some(Layout::default()),
            ..Definition::default()
        };
        let written = serde_json::to_value(time_ordered).unwrap();
        let described = keys(&schemas["DefinitionFields"]["properties"]);
        assert_eq!(described, keys(&written));
        assert_eq!(
            keys(&schemas["LayoutFields"]["properties"]),
            keys(&written["layout"])
        );
        assert_eq!(
            keys(&schemas["BlockFields"]["properties"]),
            keys(&written["block"])
        );
        assert_eq!(schemas["DefinitionFields"]["required"], Value::Null);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let served = served();
        let mut found = BTreeSet::new();
        references(&served, &mut found);
        assert!(found.contains("#/components/schemas/Problem"));
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(served.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn a_refusal_names_its_codes() {
        let served = served();
        let responses = &served["paths"]["/v1/sequences/{name}/next"]["post"]["responses"];
        let gone = responses["410"]["description"].as_str().unwrap();
        assert_eq!(gone, "`sequence_retired`, `period_removed`");
        assert!(responses["503"]["headers"]["Retry-After"].is_object());
    }
}
