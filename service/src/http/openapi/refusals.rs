//! Lists how each call can be refused: one table, by operation.

use std::collections::BTreeMap;

use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{
    ContentBuilder, HeaderBuilder, Ref, RefOr, Response, ResponseBuilder, Schema,
};

use crate::http::problem::{self, Code};

/// The refusals of `next` and `blocks`.
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

/// The refusals of `parse`, which changes nothing and can be called while the database is away.
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
    Code::ConfirmNeeded,
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

/// The refusals of `DELETE` and `restore`.
const CHANGING_STATE: &[Code] = &[
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

/// The refusals of a renewal and of a return. A return is never refused because of the clock.
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

/// The refusals of calls that this replica answers from its memory alone.
const FROM_MEMORY: &[Code] = &[
    Code::InvalidParameter,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::Overloaded,
    Code::Internal,
];

const ONE_FROM_MEMORY: &[Code] = &[
    Code::InvalidName,
    Code::InvalidPeriod,
    Code::InvalidParameter,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::Overloaded,
    Code::Internal,
];

const READY: &[Code] = &[
    Code::MethodNotAllowed,
    Code::StoreUnavailable,
    Code::Draining,
];

/// The refusals of the metrics and of the description of the API.
const SERVING: &[Code] = &[Code::Forbidden, Code::MethodNotAllowed, Code::Overloaded];

/// The refusals of every operation: a chunked body is read before it is known which route answers.
const ANYWHERE: &[Code] = &[Code::InvalidBody, Code::BodyTooLarge];

/// Adds the refusals of an operation to its responses.
pub(crate) fn add(operation: &mut Operation) {
    let codes = match operation.operation_id.as_deref().unwrap_or_default() {
        "takeNumbers" | "reserveBlock" => TAKING,
        "parseNumber" => PARSING,
        "explainNumber" => EXPLAINING,
        "listSequences" => LISTING,
        "getSequence" => READING,
        "defineSequence" => DEFINING,
        "advanceSequence" => ADVANCING,
        "retireSequence" | "restoreSequence" => CHANGING_STATE,
        "removePeriod" => REMOVING,
        "leaseWorker" => LEASING,
        "renewWorker" | "returnWorker" => HOLDING,
        "listWorkers" => LISTING_WORKERS,
        "getReplica" | "listLiveSequences" => FROM_MEMORY,
        "getLiveSequence" => ONE_FROM_MEMORY,
        "checkReadiness" => READY,
        "getMetrics" | "getOpenApi" => SERVING,
        _ => &[Code::MethodNotAllowed],
    };
    let mut statuses: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    let further = ANYWHERE.iter().filter(|code| !codes.contains(code));
    for code in codes.iter().chain(further) {
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
        503 => Some(("Retry-After", seconds, "Seconds to wait before you retry.")),
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

/// Returns the schema that every refusal has.
pub(crate) fn problem_schema() -> RefOr<Schema> {
    let text = |description: &str, example: &str| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(description))
            .examples([example])
    };
    let status = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(400))
        .maximum(Some(599))
        .description(Some("The status of the reply."))
        .examples([404]);
    let code = text(
        "What went wrong, in a word of a closed list.",
        "sequence_not_found",
    );
    let code = code.enum_values(Some(Code::ALL.iter().map(|code| code.as_str())));
    let r#type = text(
        "`urn:odometer:problem:` and the code.",
        "urn:odometer:problem:sequence_not_found",
    );
    let r#type = r#type.pattern(Some("^urn:odometer:problem:[a-z_]+$"));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("Why a call was refused (RFC 9457)."))
        .property("type", r#type)
        .required("type")
        .property(
            "title",
            text(
                "The same for every problem of this code.",
                "There is no such sequence",
            ),
        )
        .required("title")
        .property("status", status)
        .required("status")
        .property(
            "detail",
            text(
                "What is wrong here, and what to do.",
                "There is no sequence `orders`.",
            ),
        )
        .required("detail")
        .property("code", code)
        .required("code")
        .into()
}
