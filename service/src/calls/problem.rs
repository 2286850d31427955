//! Defines refusals: a code of a closed list, and a sentence that says what to do.
//!
//! Each protocol has one file that says how a refusal is written.

use std::borrow::Cow;
use std::fmt;

use odometer_core::definition::{ChangeError, DefinitionError};
use odometer_core::name::InvalidName;
use odometer_core::period::InvalidPeriod;
use odometer_sequence::{
    error::SequenceError,
    workers::{LeaseError, WorkerError},
};

/// The longest wait that a caller is asked for, in seconds. A clock may be repaired sooner.
const MAX_RETRY_AFTER_S: u64 = 60;

macro_rules! codes {
    ($($variant:ident, $code:literal, $title:literal;)+) => {
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

            /// Returns the short text that is the same for every problem of this code.
            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }
        }
    };
}

codes! {
    InvalidName, "invalid_name", "The name is not valid";
    InvalidCount, "invalid_count", "The count is not valid";
    InvalidPeriod, "invalid_period", "The period is not valid";
    InvalidId, "invalid_id", "The id is not valid";
    InvalidDefinition, "invalid_definition", "The definition is not valid";
    InvalidParameter, "invalid_parameter", "A parameter is not valid";
    InvalidBody, "invalid_body", "The body is not valid";
    Unauthenticated, "unauthenticated", "The token is missing or wrong";
    Forbidden, "forbidden", "The call is not allowed";
    SequenceNotFound, "sequence_not_found", "There is no such sequence";
    RouteNotFound, "route_not_found", "There is no such path";
    MethodNotAllowed, "method_not_allowed", "The path does not take this method";
    SequenceExhausted, "sequence_exhausted", "The sequence has not enough numbers left";
    ImmutableField, "immutable_field", "The field cannot change any more";
    ConfirmNeeded, "confirm_needed", "The call needs to be confirmed";
    NotForKind, "not_for_kind", "The call does not fit the kind of the sequence";
    LeaseLost, "lease_lost", "The lease is lost";
    TooManySequences, "too_many_sequences", "There are too many sequences";
    TooManyPeriods, "too_many_periods", "There are too many periods";
    SequenceRetired, "sequence_retired", "The sequence is retired";
    PeriodRemoved, "period_removed", "The period is removed";
    AlreadyExists, "already_exists", "The sequence exists already";
    VersionMismatch, "version_mismatch", "The definition has another version";
    BodyTooLarge, "body_too_large", "The body is too large";
    UnsupportedMediaType, "unsupported_media_type", "The body has another media type";
    RateLimited, "rate_limited", "The sequence is at its speed limit";
    QuotaExceeded, "quota_exceeded", "The role has used up its quota";
    StoreUnavailable, "store_unavailable", "The store does not answer";
    StoreWentBack, "store_went_back", "The store went back to an earlier state";
    RefillTimeout, "refill_timeout", "No number arrived in time";
    Overloaded, "overloaded", "Too many calls at once";
    ClockBehind, "clock_behind", "The clock is behind";
    ClockAhead, "clock_ahead", "The clock is ahead";
    NoWorkerId, "no_worker_id", "No worker id is free";
    Draining, "draining", "This replica is stopping";
    Internal, "internal", "Something went wrong inside";
}

impl Code {
    /// Returns whether the service cannot answer now, although nothing is wrong with the call.
    pub(crate) fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::StoreUnavailable
                | Self::StoreWentBack
                | Self::RefillTimeout
                | Self::Overloaded
                | Self::ClockBehind
                | Self::ClockAhead
                | Self::NoWorkerId
                | Self::Draining
        )
    }
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
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Returns the sentence that says what is wrong, and what to do.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the methods that the path takes, if the call had another one.
    pub(crate) fn allow(&self) -> Option<&'static str> {
        self.allow
    }

    /// Returns after how many seconds the caller may come back, if a better time than the usual one
    /// is known.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        self.retry_after_s
    }

    /// Returns whether the reply closes its connection.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Returns the names that the caller may have meant.
    pub(crate) fn suggestions(&self) -> &[String] {
        &self.suggestions
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.as_str(), self.detail)
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
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::name::SequenceName;

    use super::*;

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
}
