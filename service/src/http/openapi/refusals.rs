//! Lists how each call can be refused: groups of codes, and the groups of each operation.

use std::collections::BTreeMap;

use utoipa::PartialSchema as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{
    ContentBuilder, HeaderBuilder, Ref, RefOr, Response, ResponseBuilder, Schema,
};

use crate::calls::problem::Code;
use crate::http::problem::{self, ProblemBody};

/// The refusals of each call below `/v1`, also of calls that this replica answers from its memory.
const CALLING: &[Code] = &[
    Code::InvalidParameter,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::Overloaded,
    Code::Internal,
];

/// The refusals of every operation: a chunked body is read before it is known which route answers.
const ANYWHERE: &[Code] = &[Code::InvalidBody, Code::BodyTooLarge];

/// The refusals of calls with a body.
const SENDING: &[Code] = &[Code::UnsupportedMediaType];

/// The refusals of calls that ask the store.
const ASKING: &[Code] = &[Code::StoreUnavailable];

/// The refusals of calls that wait for an answer of the store.
const WAITING: &[Code] = &[Code::StoreUnavailable, Code::RefillTimeout];

/// The refusals of calls that write to the store.
const WRITING: &[Code] = &[
    Code::UnsupportedMediaType,
    Code::StoreUnavailable,
    Code::StoreWentBack,
    Code::Draining,
];

/// The refusals of calls that may name the version that they change.
const CONDITIONAL: &[Code] = &[Code::VersionMismatch];

/// The refusals of calls that name a sequence or a pool.
const NAMING: &[Code] = &[Code::InvalidName];

/// The refusals of calls for a sequence that has to exist.
const EXISTING: &[Code] = &[Code::InvalidName, Code::SequenceNotFound];

/// The refusals of calls that name a period or a key.
const PERIOD: &[Code] = &[Code::InvalidPeriod];

/// The refusals of calls that need a period which was not removed.
const LIVE_PERIOD: &[Code] = &[Code::InvalidPeriod, Code::PeriodRemoved];

/// The refusals of calls that may create a period, and that not every kind of sequence takes.
const NEW_PERIOD: &[Code] = &[Code::NotForKind, Code::TooManyPeriods];

/// The refusals of calls that take ids by the clock.
const CLOCK: &[Code] = &[Code::ClockBehind, Code::ClockAhead, Code::NoWorkerId];

const TAKING: &[Code] = &[
    Code::InvalidCount,
    Code::SequenceExhausted,
    Code::ConfirmNeeded,
    Code::TooManySequences,
    Code::SequenceRetired,
    Code::RateLimited,
    Code::QuotaExceeded,
];

const DEFINING: &[Code] = &[
    Code::InvalidDefinition,
    Code::ImmutableField,
    Code::ConfirmNeeded,
    Code::TooManySequences,
    Code::SequenceRetired,
    Code::AlreadyExists,
];

/// The refusals of calls that make a sequence live again.
const NAMED: &[Code] = &[Code::TooManySequences];

const ADVANCING: &[Code] = &[Code::ConfirmNeeded, Code::SequenceRetired];

const LEASING: &[Code] = &[
    Code::ImmutableField,
    Code::TooManySequences,
    Code::QuotaExceeded,
];

/// The refusals of a renewal and of a return. A return is never refused because of the clock.
const HOLDING: &[Code] = &[Code::LeaseLost, Code::ClockAhead];

/// The refusals of calls about ids that were printed.
const PRINTED: &[Code] = &[Code::InvalidId];

const EXPLAINING: &[Code] = &[Code::StoreWentBack];

const READY: &[Code] = &[
    Code::MethodNotAllowed,
    Code::StoreUnavailable,
    Code::Draining,
];

/// The refusals of the metrics.
const SCRAPING: &[Code] = &[
    Code::Unauthenticated,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::Overloaded,
];

/// The refusals of the description of the API.
const SERVING: &[Code] = &[Code::Forbidden, Code::MethodNotAllowed, Code::Overloaded];

/// Returns the groups of refusals that an operation has besides those of every operation.
fn groups_of(operation_id: &str) -> &'static [&'static [Code]] {
    match operation_id {
        "takeNumbers" | "reserveBlock" => &[
            CALLING,
            EXISTING,
            LIVE_PERIOD,
            NEW_PERIOD,
            WRITING,
            WAITING,
            CLOCK,
            TAKING,
        ],
        "parseNumber" => &[CALLING, EXISTING, SENDING, WAITING, PRINTED],
        "explainNumber" => &[CALLING, EXISTING, LIVE_PERIOD, WAITING, PRINTED, EXPLAINING],
        "listSequences" => &[CALLING, ASKING],
        "getSequence" => &[CALLING, EXISTING, LIVE_PERIOD, WAITING],
        "defineSequence" => &[CALLING, NAMING, CONDITIONAL, WRITING, WAITING, DEFINING],
        "advanceSequence" => &[
            CALLING,
            EXISTING,
            CONDITIONAL,
            LIVE_PERIOD,
            NEW_PERIOD,
            WRITING,
            WAITING,
            ADVANCING,
        ],
        "retireSequence" => &[CALLING, EXISTING, CONDITIONAL, WRITING],
        "restoreSequence" => &[CALLING, EXISTING, CONDITIONAL, WRITING, WAITING, NAMED],
        "removePeriod" => &[
            CALLING,
            EXISTING,
            CONDITIONAL,
            PERIOD,
            NEW_PERIOD,
            WRITING,
            WAITING,
        ],
        "leaseWorker" => &[CALLING, NAMING, WRITING, WAITING, CLOCK, LEASING],
        "renewWorker" => &[CALLING, NAMING, WRITING, WAITING, HOLDING],
        "returnWorker" => &[CALLING, NAMING, WRITING, WAITING, HOLDING],
        "releasePool" => &[CALLING, NAMING, WRITING, WAITING],
        "listWorkers" => &[CALLING, NAMING, ASKING],
        "getCaller" | "getReplica" | "listLiveSequences" => &[CALLING],
        "getLiveSequence" => &[CALLING, NAMING, PERIOD],
        "checkLiveness" => &[&[Code::MethodNotAllowed, Code::Overloaded]],
        "checkReadiness" => &[READY],
        "getMetrics" => &[SCRAPING],
        "getOpenApi" => &[SERVING],
        _ => &[&[Code::MethodNotAllowed]],
    }
}

/// Adds the refusals of an operation to its responses.
pub(crate) fn add(operation: &mut Operation) {
    let groups = groups_of(operation.operation_id.as_deref().unwrap_or_default());
    let has = |code: &&Code| {
        groups
            .iter()
            .chain([&ANYWHERE])
            .any(|group| group.contains(code))
    };
    let mut statuses: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in Code::ALL.iter().filter(has) {
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
    let text = ObjectBuilder::new().schema_type(Type::String);
    let seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1));
    let header = match status {
        401 => Some(("WWW-Authenticate", text, "`Bearer`.")),
        405 => Some(("Allow", text, "The methods of the path.")),
        429 | 503 => Some(("Retry-After", seconds, "Seconds to wait before you retry.")),
        _ => None,
    };
    match header {
        Some((name, schema, description)) => {
            let header = HeaderBuilder::new()
                .schema(Some(schema))
                .description(Some(description));
            response.header(name, header.build()).build()
        }
        None => response.build(),
    }
}

/// Returns the schema that every refusal has, with the closed list of codes.
pub(crate) fn problem_schema() -> RefOr<Schema> {
    let mut schema = ProblemBody::schema();
    if let RefOr::T(Schema::Object(body)) = &mut schema
        && let Some(RefOr::T(Schema::Object(code))) = body.properties.get_mut("code")
    {
        let words = Code::ALL.iter().map(|code| code.as_str().into());
        code.enum_values = Some(words.collect());
    }
    schema
}
