//! Writes refusals as `application/problem+json` (RFC 9457).
//!
//! Only this file knows which status an error has.

use std::borrow::Cow;
use std::fmt;

use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::{HttpResponse, ResponseError};
use odometer_core::definition::{ChangeError, DefinitionError};
use odometer_core::name::InvalidName;
use odometer_core::period::InvalidPeriod;
use odometer_sequence::{
    error::SequenceError,
    workers::{LeaseError, WorkerError},
};
use serde::Serialize;
use utoipa::ToSchema;

/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Seconds that a caller is asked to wait after a 503 or a 429.
///
/// The service itself tries again several times a second, so a longer wait has no use.
const RETRY_AFTER_S: u64 = 1;
/// The longest wait that a caller is asked for, in seconds. A clock may be repaired sooner.
const MAX_RETRY_AFTER_S: u64 = 60;

macro_rules! codes {
    ($($variant:ident, $status:ident, $code:literal, $title:literal;)+) => {
        /// What went wrong, as a word that a program can rely on.
        ///
        /// The list is closed: a client may match it exhaustively.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Code { $($variant),+ }

        impl Code {
            /// The closed list, in the order of the contract.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the word in `code`, which also ends `type`.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// Returns the status of a reply with this code.
            pub(crate) fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            /// Returns the short text that is the same for every problem of this code.
            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }
        }
    };
}

codes! {
    InvalidName, BAD_REQUEST, "invalid_name", "The name is not valid";
    InvalidCount, BAD_REQUEST, "invalid_count", "The count is not valid";
    InvalidPeriod, BAD_REQUEST, "invalid_period", "The period is not valid";
    InvalidId, BAD_REQUEST, "invalid_id", "The id is not valid";
    InvalidDefinition, BAD_REQUEST, "invalid_definition", "The definition is not valid";
    InvalidParameter, BAD_REQUEST, "invalid_parameter", "A parameter is not valid";
    InvalidBody, BAD_REQUEST, "invalid_body", "The body is not valid";
    Unauthenticated, UNAUTHORIZED, "unauthenticated", "The token is missing or wrong";
    Forbidden, FORBIDDEN, "forbidden", "The call is not allowed";
    SequenceNotFound, NOT_FOUND, "sequence_not_found", "There is no such sequence";
    RouteNotFound, NOT_FOUND, "route_not_found", "There is no such path";
    MethodNotAllowed, METHOD_NOT_ALLOWED, "method_not_allowed", "The path does not take this method";
    SequenceExhausted, CONFLICT, "sequence_exhausted", "The sequence has not enough numbers left";
    ImmutableField, CONFLICT, "immutable_field", "The field cannot change any more";
    ConfirmNeeded, CONFLICT, "confirm_needed", "The call needs to be confirmed";
    NotForKind, CONFLICT, "not_for_kind", "The call does not fit the kind of the sequence";
    LeaseLost, CONFLICT, "lease_lost", "The lease is lost";
    TooManySequences, CONFLICT, "too_many_sequences", "There are too many sequences";
    TooManyPeriods, CONFLICT, "too_many_periods", "There are too many periods";
    SequenceRetired, GONE, "sequence_retired", "The sequence is retired";
    PeriodRemoved, GONE, "period_removed", "The period is removed";
    AlreadyExists, PRECONDITION_FAILED, "already_exists", "The sequence exists already";
    VersionMismatch, PRECONDITION_FAILED, "version_mismatch", "The definition has another version";
    BodyTooLarge, PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large";
    UnsupportedMediaType, UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body has another media type";
    RateLimited, TOO_MANY_REQUESTS, "rate_limited", "The sequence is at its speed limit";
    QuotaExceeded, TOO_MANY_REQUESTS, "quota_exceeded", "The role has used up its quota";
    StoreUnavailable, SERVICE_UNAVAILABLE, "store_unavailable", "The store does not answer";
    StoreWentBack, SERVICE_UNAVAILABLE, "store_went_back", "The store went back to an earlier state";
    RefillTimeout, SERVICE_UNAVAILABLE, "refill_timeout", "No number arrived in time";
    Overloaded, SERVICE_UNAVAILABLE, "overloaded", "Too many calls at once";
    ClockBehind, SERVICE_UNAVAILABLE, "clock_behind", "The clock is behind";
    ClockAhead, SERVICE_UNAVAILABLE, "clock_ahead", "The clock is ahead";
    NoWorkerId, SERVICE_UNAVAILABLE, "no_worker_id", "No worker id is free";
    Draining, SERVICE_UNAVAILABLE, "draining", "This replica is stopping";
    Internal, INTERNAL_SERVER_ERROR, "internal", "Something went wrong inside";
}

/// A refusal: a code of the closed list, and a sentence that says what to do.
///
/// The sentence is public. So the code that writes a sentence puts nothing into it that the caller
/// may not see: no message of a database, no URL, no token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    allow: Option<&'static str>,
    /// Seconds after which a caller may come back, if a better time than the usual one is known.
    retry_after_s: Option<u64>,
    /// Whether the reply closes its connection.
    is_closing: bool,
    /// Names that the caller may have meant.
    suggestions: Vec<String>,
    /// The most numbers that the call could have now, if its size was refused.
    limit: Option<u64>,
}

/// Why a call was refused (RFC 9457).
#[derive(Serialize, ToSchema)]
pub(crate) struct ProblemBody<'a> {
    /// Where the service has a page about this code: `/docs/errors/` and the code. It is a path on
    /// the same server. Programs should compare `code` instead.
    #[schema(
        pattern = "^/docs/errors/[a-z_]+$",
        examples("/docs/errors/sequence_not_found")
    )]
    r#type: &'a str,
    /// The same for every problem of this code.
    #[schema(examples("There is no such sequence"))]
    title: &'a str,
    /// The status of the reply.
    #[schema(value_type = isize, minimum = 400, maximum = 599, examples(404))]
    status: u16,
    /// What is wrong here, and what to do.
    #[schema(examples("There is no sequence `orders`."))]
    detail: &'a str,
    /// What went wrong, in a word of a closed list.
    #[schema(examples("sequence_not_found"))]
    code: &'a str,
    /// Names that you may have meant, the nearest first. Present only if the sequence does not
    /// exist and such names do.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(
        value_type = Vec<super::payload::values::SequenceName>,
        required = false,
        max_items = 3,
        examples(json!(["orders"]))
    )]
    suggestions: &'a [String],
    /// The most numbers that this call could have now. Present only if its size was refused, and a
    /// smaller one is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        value_type = String,
        required = false,
        pattern = "^[0-9]+$",
        examples("10000")
    )]
    limit: Option<String>,
}

impl Problem {
    /// Creates a problem of this code, with the sentence that says what to do.
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            allow: None,
            retry_after_s: None,
            is_closing: false,
            suggestions: Vec::new(),
            limit: None,
        }
    }

    /// Creates a 405 for a path that takes only the methods in `allow`, written as in the `Allow`
    /// header.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let detail = format!("This path takes {allow} only.");
        Self {
            allow: Some(allow),
            ..Self::new(Code::MethodNotAllowed, detail)
        }
    }

    /// Asks the caller to wait this many milliseconds, rounded up to seconds, and at most a minute.
    pub(crate) fn after_ms(mut self, wait_ms: u64) -> Self {
        let seconds = wait_ms.div_ceil(1000);
        self.retry_after_s = Some(seconds.clamp(1, MAX_RETRY_AFTER_S));
        self
    }

    /// Closes the connection with this reply.
    pub(crate) fn closing(mut self) -> Self {
        self.is_closing = true;
        self
    }

    /// Suggests names that the caller may have meant.
    pub(crate) fn suggesting(mut self, names: Vec<String>) -> Self {
        self.suggestions = names;
        self
    }

    /// Tells the caller how many numbers this call could have now. Tells nothing if that is 0.
    pub(crate) fn limited_to(mut self, most: u64) -> Self {
        self.limit = (most > 0).then_some(most);
        self
    }

    /// Returns how many numbers the caller is told that it could have.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the code of this problem.
    #[cfg(test)]
    pub(crate) fn code(&self) -> Code {
        self.code
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.as_str(), self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.code.status();
        let mut response = HttpResponse::build(status);
        response
            .insert_header((header::CONTENT_TYPE, MEDIA_TYPE))
            .insert_header((header::CACHE_CONTROL, "no-store"));
        if let Some(allow) = self.allow {
            response.insert_header((header::ALLOW, allow));
        }
        if let StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS = status {
            let seconds = self.retry_after_s.unwrap_or(RETRY_AFTER_S);
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if self.code == Code::Unauthenticated {
            let scheme = HeaderValue::from_static("Bearer");
            response.insert_header((header::WWW_AUTHENTICATE, scheme));
        }
        let mut response = response.json(ProblemBody {
            r#type: &format!("/docs/errors/{}", self.code.as_str()),
            title: self.code.title(),
            status: status.as_u16(),
            detail: &self.detail,
            code: self.code.as_str(),
            suggestions: &self.suggestions,
            limit: self.limit.map(|limit| limit.to_string()),
        });
        response.extensions_mut().insert(self.code);
        if self.is_closing {
            let head = response.head_mut();
            head.set_connection_type(ConnectionType::Close);
        }
        response
    }
}

/// Says which code an error has. Its sentence is the detail of the problem.
macro_rules! problem_of {
    ($($error:ty => $code:expr;)+) => {
        $(
            impl From<$error> for Problem {
                fn from(error: $error) -> Self {
                    let code_of: fn(&$error) -> Code = $code;
                    Self::new(code_of(&error), error.to_string())
                }
            }
        )+
    };
}

problem_of! {
    InvalidName => |_| Code::InvalidName;
    InvalidPeriod => |_| Code::InvalidPeriod;
    ChangeError => |error| match error {
        ChangeError::NotJson { .. } => Code::InvalidBody,
        ChangeError::Wrong { .. } => Code::InvalidDefinition,
    };
    WorkerError => |error| match error {
        WorkerError::Lease(refused) => lease_code(refused),
        WorkerError::Draining => Code::Draining,
    };
}

impl From<SequenceError> for Problem {
    fn from(error: SequenceError) -> Self {
        let mut problem = Self::new(sequence_code(&error), error.to_string());
        if let SequenceError::ClockBehind { wait_ms } | SequenceError::RateLimited { wait_ms, .. } =
            &error
        {
            problem = problem.after_ms(*wait_ms);
        }
        if let SequenceError::BatchTooLarge { most }
        | SequenceError::TooLarge { limit: most }
        | SequenceError::AboveBurst { burst: most }
        | SequenceError::RateLimited {
            n_available: most, ..
        }
        | SequenceError::LimitTimeout {
            n_available: most, ..
        } = &error
        {
            problem = problem.limited_to(*most);
        }
        problem
    }
}

fn sequence_code(error: &SequenceError) -> Code {
    match error {
        SequenceError::NotFound { .. } | SequenceError::NotCreated { .. } => Code::SequenceNotFound,
        SequenceError::TooManySequences { .. } => Code::TooManySequences,
        SequenceError::PeriodNeeded
        | SequenceError::PeriodMissing { .. }
        | SequenceError::NoPeriods { .. }
        | SequenceError::InvalidPeriod(_)
        | SequenceError::OfAnotherPeriod { .. }
        | SequenceError::PeriodOutOfBounds { .. } => Code::InvalidPeriod,
        SequenceError::InvalidId(_) => Code::InvalidId,
        SequenceError::PeriodRemoved { .. } => Code::PeriodRemoved,
        SequenceError::TooManyPeriods { .. } => Code::TooManyPeriods,
        SequenceError::NotForKind | SequenceError::TimeOrdered { .. } => Code::NotForKind,
        SequenceError::BatchTooLarge { .. }
        | SequenceError::TooLarge { .. }
        | SequenceError::AboveBurst { .. } => Code::InvalidCount,
        SequenceError::RateLimited { .. } | SequenceError::LimitTimeout { .. } => Code::RateLimited,
        SequenceError::ClockBehind { .. } => Code::ClockBehind,
        SequenceError::ClockAhead { .. } => Code::ClockAhead,
        SequenceError::NoWorkerId { .. }
        | SequenceError::NoSuchWorker { .. }
        | SequenceError::WorkerHeld { .. } => Code::NoWorkerId,
        SequenceError::Exhausted { .. } | SequenceError::TimeEnded { .. } => {
            Code::SequenceExhausted
        }
        SequenceError::Retired { .. } => Code::SequenceRetired,
        SequenceError::Definition(refused) => definition_code(refused),
        SequenceError::AlreadyExists { .. } => Code::AlreadyExists,
        SequenceError::VersionMismatch { .. } => Code::VersionMismatch,
        SequenceError::FloorTooHigh { .. } => Code::InvalidBody,
        SequenceError::ConfirmNeeded { .. } => Code::ConfirmNeeded,
        SequenceError::StoreUnavailable
        | SequenceError::NotChanged
        | SequenceError::Incomplete { .. }
        | SequenceError::MayHaveChanged => Code::StoreUnavailable,
        SequenceError::StoreWentBack => Code::StoreWentBack,
        SequenceError::RefillTimeout => Code::RefillTimeout,
        SequenceError::Overloaded { .. } => Code::Overloaded,
        SequenceError::Draining => Code::Draining,
        SequenceError::Internal | SequenceError::Elsewhere => Code::Internal,
    }
}

fn lease_code(refused: &LeaseError) -> Code {
    match refused {
        LeaseError::NoneFree { .. } | LeaseError::Held { .. } => Code::NoWorkerId,
        LeaseError::NoneUsable { .. } => Code::ClockBehind,
        LeaseError::Lost => Code::LeaseLost,
        LeaseError::OtherWidth { .. } => Code::ImmutableField,
        LeaseError::TooManyPools { .. } => Code::TooManySequences,
        LeaseError::NotOfTheLease { .. } => Code::InvalidParameter,
        LeaseError::ClockAhead { .. } => Code::ClockAhead,
        LeaseError::Unavailable | LeaseError::MayHaveHappened => Code::StoreUnavailable,
        LeaseError::WentBack => Code::StoreWentBack,
        LeaseError::Deadline => Code::RefillTimeout,
    }
}

fn definition_code(refused: &DefinitionError) -> Code {
    if *refused == DefinitionError::FormatsUnknown {
        Code::ConfirmNeeded
    } else if refused.is_immutable() {
        Code::ImmutableField
    } else {
        Code::InvalidDefinition
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use std::collections::HashSet;

    use actix_web::body::to_bytes;
    use odometer_core::name::SequenceName;
    use serde_json::{Value, json};

    use super::*;

    async fn body_of(problem: &Problem) -> Value {
        let body = problem.error_response().into_body();
        serde_json::from_slice(&to_bytes(body).await.ok().unwrap()).unwrap()
    }

    fn header_of<'a>(response: &'a HttpResponse, name: &str) -> Option<&'a str> {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap())
    }

    #[actix_web::test]
    async fn a_problem_has_the_members_of_the_contract() {
        let problem = Problem::new(Code::InvalidCount, "`count` is 1 to 10000.");
        let response = problem.error_response();
        assert_eq!(header_of(&response, "content-type"), Some(MEDIA_TYPE));
        assert_eq!(header_of(&response, "cache-control"), Some("no-store"));
        assert_eq!(
            body_of(&problem).await,
            json!({
                "type": "/docs/errors/invalid_count",
                "title": "The count is not valid",
                "status": 400,
                "detail": "`count` is 1 to 10000.",
                "code": "invalid_count",
            })
        );
    }

    #[test]
    fn every_503_and_429_says_when_to_come_back() {
        for code in Code::ALL {
            let response = Problem::new(*code, "").error_response();
            let expected = matches!(code.status().as_u16(), 429 | 503).then_some("1");
            assert_eq!(header_of(&response, "retry-after"), expected, "{code:?}");
        }
        for (wait_ms, expected) in [(0, "1"), (1, "1"), (1_001, "2"), (3_600_000, "60")] {
            let name = SequenceName::parse("orders").unwrap();
            for error in [
                SequenceError::ClockBehind { wait_ms },
                SequenceError::RateLimited {
                    name,
                    n_available: 0,
                    wait_ms,
                },
            ] {
                let response = Problem::from(error).error_response();
                assert_eq!(
                    header_of(&response, "retry-after"),
                    Some(expected),
                    "{wait_ms}"
                );
            }
        }
    }

    #[test]
    fn a_405_names_the_methods_the_path_takes() {
        let response = Problem::method_not_allowed("GET, HEAD").error_response();
        assert_eq!(response.status(), 405);
        assert_eq!(header_of(&response, "allow"), Some("GET, HEAD"));
    }

    #[test]
    fn codes_are_the_closed_list_of_the_contract() {
        let contract = "400 invalid_name invalid_count invalid_period invalid_id invalid_definition \
            invalid_parameter invalid_body 401 unauthenticated 403 forbidden \
            404 sequence_not_found route_not_found 405 method_not_allowed \
            409 sequence_exhausted immutable_field confirm_needed not_for_kind lease_lost \
            too_many_sequences too_many_periods 410 sequence_retired period_removed \
            412 already_exists version_mismatch 413 body_too_large 415 unsupported_media_type \
            429 rate_limited quota_exceeded 503 store_unavailable store_went_back refill_timeout overloaded clock_behind \
            clock_ahead no_worker_id draining 500 internal";
        let mut status = String::new();
        let mut expected = Vec::new();
        for word in contract.split_whitespace() {
            if word.parse::<u16>().is_ok() {
                word.clone_into(&mut status);
            } else {
                expected.push(format!("{status} {word}"));
            }
        }
        let codes = Code::ALL.iter();
        let actual: Vec<_> = codes
            .map(|code| format!("{} {}", code.status().as_u16(), code.as_str()))
            .collect();
        assert_eq!(actual, expected);
        let titles: HashSet<_> = Code::ALL.iter().map(|code| code.title()).collect();
        assert_eq!(titles.len(), Code::ALL.len());
    }

    #[test]
    fn errors_of_sequences_have_their_codes() {
        let cases = [
            (SequenceError::StoreUnavailable, Code::StoreUnavailable),
            (SequenceError::NotChanged, Code::StoreUnavailable),
            (SequenceError::MayHaveChanged, Code::StoreUnavailable),
            (SequenceError::StoreWentBack, Code::StoreWentBack),
            (SequenceError::RefillTimeout, Code::RefillTimeout),
            (
                SequenceError::LimitTimeout {
                    name: SequenceName::parse("orders").unwrap(),
                    n_available: 0,
                },
                Code::RateLimited,
            ),
            (SequenceError::Draining, Code::Draining),
            (SequenceError::Internal, Code::Internal),
            (SequenceError::TooLarge { limit: 7 }, Code::InvalidCount),
            (SequenceError::AboveBurst { burst: 7 }, Code::InvalidCount),
            (
                SequenceError::VersionMismatch { current: 3 },
                Code::VersionMismatch,
            ),
            (
                SequenceError::TooManySequences { limit: 5 },
                Code::TooManySequences,
            ),
        ];
        for (error, code) in cases {
            assert_eq!(Problem::from(error).code(), code);
        }
    }

    #[test]
    fn errors_of_worker_ids_have_their_codes() {
        let cases = [
            (LeaseError::NoneFree { workers: 4 }, Code::NoWorkerId),
            (LeaseError::Lost, Code::LeaseLost),
            (LeaseError::OtherWidth { bits: 5 }, Code::ImmutableField),
            (LeaseError::ClockAhead { by_ms: 400_000 }, Code::ClockAhead),
            (LeaseError::MayHaveHappened, Code::StoreUnavailable),
        ];
        for (error, code) in cases {
            assert_eq!(Problem::from(WorkerError::from(error)).code(), code);
        }
        let draining = Problem::from(WorkerError::Draining);
        assert_eq!(draining.code(), Code::Draining);
    }

    #[actix_web::test]
    async fn a_refused_size_has_a_limit_and_nothing_else_has() {
        let name = || SequenceName::parse("orders").unwrap();
        let limited = |n_available| SequenceError::RateLimited {
            name: name(),
            n_available,
            wait_ms: 1,
        };
        let late = |n_available| SequenceError::LimitTimeout {
            name: name(),
            n_available,
        };
        for (error, limit) in [
            (SequenceError::TooLarge { limit: 12_345 }, Some("12345")),
            (SequenceError::AboveBurst { burst: 7 }, Some("7")),
            (SequenceError::BatchTooLarge { most: 4_096 }, Some("4096")),
            (limited(3), Some("3")),
            (limited(0), None),
            (late(5), Some("5")),
            (late(0), None),
            (
                SequenceError::Exhausted {
                    name: name(),
                    left: 3,
                },
                None,
            ),
            (SequenceError::RefillTimeout, None),
        ] {
            let problem = Problem::from(error);
            let body = body_of(&problem).await;
            assert_eq!(body.get("limit").and_then(Value::as_str), limit, "{body}");
            assert_eq!(body.get("limit").is_some(), limit.is_some(), "{body}");
        }
        let problem = Problem::from(SequenceError::TooLarge { limit: 12_345 });
        assert!(problem.detail.contains("12345"), "{problem}");
    }
}
