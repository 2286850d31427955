//! Writes refusals as `application/problem+json` (RFC 9457).
//!
//! Only this file knows which status an error has.

use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;
use utoipa::ToSchema;

use crate::calls::problem::{Code, Problem};

/// The media type of a problem.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Seconds that a caller is asked to wait after a 503 or a 429.
///
/// The service itself tries again several times a second, so a longer wait has no use.
const RETRY_AFTER_S: u64 = 1;

impl Code {
    /// Returns the status of a reply with this code.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidName
            | Self::InvalidCount
            | Self::InvalidPeriod
            | Self::InvalidId
            | Self::InvalidDefinition
            | Self::InvalidParameter
            | Self::InvalidBody => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::SequenceNotFound | Self::RouteNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::SequenceExhausted
            | Self::ImmutableField
            | Self::ConfirmNeeded
            | Self::NotForKind
            | Self::LeaseLost
            | Self::TooManySequences
            | Self::TooManyPeriods => StatusCode::CONFLICT,
            Self::SequenceRetired | Self::PeriodRemoved => StatusCode::GONE,
            Self::AlreadyExists | Self::VersionMismatch => StatusCode::PRECONDITION_FAILED,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RateLimited | Self::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            Self::StoreUnavailable
            | Self::StoreWentBack
            | Self::RefillTimeout
            | Self::Overloaded
            | Self::ClockBehind
            | Self::ClockAhead
            | Self::NoWorkerId
            | Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
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

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code().status()
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.code().status();
        let mut response = HttpResponse::build(status);
        response
            .insert_header((header::CONTENT_TYPE, MEDIA_TYPE))
            .insert_header((header::CACHE_CONTROL, "no-store"));
        if let Some(allow) = self.allow() {
            response.insert_header((header::ALLOW, allow));
        }
        if let StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS = status {
            let seconds = self.retry_after_s().unwrap_or(RETRY_AFTER_S);
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if self.code() == Code::Unauthenticated {
            let scheme = HeaderValue::from_static("Bearer");
            response.insert_header((header::WWW_AUTHENTICATE, scheme));
        }
        let mut response = response.json(ProblemBody {
            r#type: &format!("/docs/errors/{}", self.code().as_str()),
            title: self.code().title(),
            status: status.as_u16(),
            detail: self.detail(),
            code: self.code().as_str(),
            suggestions: self.suggestions(),
            limit: self.limit().map(|limit| limit.to_string()),
        });
        response.extensions_mut().insert(self.code());
        if self.is_closing() {
            let head = response.head_mut();
            head.set_connection_type(ConnectionType::Close);
        }
        response
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
    use odometer_sequence::error::SequenceError;
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
    fn what_the_service_cannot_answer_now_is_a_503() {
        for code in Code::ALL {
            let is_503 = code.status() == StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(code.is_unavailable(), is_503, "{code:?}");
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
        assert!(problem.detail().contains("12345"), "{problem}");
    }
}
