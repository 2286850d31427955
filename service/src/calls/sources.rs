//! Lets callers pass who have a right on the sequence behind a name.

use std::time::{Duration, Instant};

use odometer_core::name::SequenceName;
use odometer_core::period::{CounterKey, Period};
use odometer_sequence::{FirstUse, audit::Taking, error::SequenceError};
use tokio::time::timeout_at;

use super::audit_note::AuditNote;
use super::caller::Caller;
use super::evidence::Evidence;
use super::problem::{Code, Problem};
use super::state::Calls;
use super::{quotas, suggestions};
use crate::access::quotas::names::Creation;
use crate::access::right::Right;

/// A caller who may take numbers.
pub(crate) struct Taker {
    pub(crate) caller: Caller,
    /// The sequence that gives the numbers. Without roles, it is not looked up: this is the name in
    /// the call.
    pub(crate) source: SequenceName,
    /// For how long the call may still wait for the store.
    pub(crate) time_left: Duration,
    /// Whether nobody has used the sequence or the key before.
    is_first: bool,
    _creation: Option<Creation>,
}

/// What is found out about the name in a call for numbers.
struct NameInCall {
    source: SequenceName,
    is_first: bool,
    creation: Option<Creation>,
}

/// Lets a caller pass who has `right` on the sequence behind a name: the sequence of this name, or
/// the one whose numbers the name shares.
///
/// # Errors
/// As [`Access::admit`](super::access::Access::admit), or the store was asked and did not answer.
pub(crate) async fn admit(
    evidence: &Evidence<'_>,
    calls: &Calls,
    right: Right,
    name: &SequenceName,
) -> Result<Caller, Problem> {
    let caller = calls.access.identify(evidence, right).await?;
    if !caller.may_all(right) {
        source(calls, &caller, right, name).await?;
    }
    Ok(caller)
}

/// Does the same for a call that takes numbers, and so may be the first one to use a name or a key.
/// For that, the caller also needs the right to create it, and room in the quota of its role.
///
/// What was used once stays in the store for good, so a caller who passes here creates nothing that
/// it may not create.
///
/// # Errors
/// As [`admit`], and 401, 403 or 409 if the caller may not create what does not exist. 503 if that
/// is not found out in the time of a call.
pub(crate) async fn admit_taker(
    evidence: &Evidence<'_>,
    calls: &Calls,
    right: Right,
    (name, period): (&SequenceName, Option<&Period>),
) -> Result<Taker, Problem> {
    let caller = calls.access.identify(evidence, right).await?;
    let until = Instant::now() + calls.directory.call_time();
    let found = match calls.access.has_roles() {
        true => in_time(until, look_at(calls, &caller, right, (name, period))).await?,
        false => NameInCall::of_used(name.clone()),
    };
    Ok(Taker {
        caller,
        source: found.source,
        time_left: until.saturating_duration_since(Instant::now()),
        is_first: found.is_first,
        _creation: found.creation,
    })
}

/// Waits for an answer, at most until `until`. What is asked for changes nothing, so it may be left
/// at any time.
///
/// # Errors
/// 503 if the answer does not come in time, or the error that came.
pub(crate) async fn in_time<T>(
    until: Instant,
    answer: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let answer = timeout_at(until.into(), answer).await;
    answer.unwrap_or_else(|_elapsed| Err(SequenceError::RefillTimeout.into()))
}

/// Finds out about the name in a call for numbers, and whether the caller may use it.
async fn look_at(
    calls: &Calls,
    caller: &Caller,
    right: Right,
    (name, period): (&SequenceName, Option<&Period>),
) -> Result<NameInCall, Problem> {
    let source = source(calls, caller, right, name).await?;
    let directory = &calls.directory;
    let first_use = directory.first_use(&source, period);
    let code = match suggestions::with_suggestions(calls, caller, first_use).await? {
        // If no call creates the name, the right to create it would not help.
        Some(FirstUse::Name) if directory.creates(&source) => Code::TooManySequences,
        Some(FirstUse::Key) => Code::TooManyPeriods,
        Some(FirstUse::Name) | None => return Ok(NameInCall::of_used(source)),
    };
    if !caller.may(Right::Create, &source) {
        let names = told(caller, name, &source);
        let names = format!("{names}, which nobody has used yet");
        return Err(caller.refusal(Right::Create, &names));
    }
    let creation = quotas::creation(calls, caller, code).await?;
    Ok(NameInCall {
        source,
        is_first: true,
        creation,
    })
}

impl NameInCall {
    /// Describes the name of a sequence that was used before.
    fn of_used(source: SequenceName) -> Self {
        Self {
            source,
            is_first: false,
            creation: None,
        }
    }
}

impl Taker {
    /// Returns whether the caller may be the first one to use the sequence or the key. Its role has
    /// room for that until this value is dropped.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Begins the audit line about the first use of the sequence or key, if this is one.
    pub(crate) fn note_first_use(
        &self,
        evidence: &Evidence<'_>,
        period: Option<&Period>,
    ) -> Option<AuditNote> {
        self.is_first
            .then(|| self.note(evidence, period, Taking::FirstUse))
    }

    /// Begins an audit line about what the caller takes.
    pub(crate) fn note(
        &self,
        evidence: &Evidence<'_>,
        period: Option<&Period>,
        what: Taking,
    ) -> AuditNote {
        let counter = CounterKey {
            sequence: self.source.clone(),
            period: period.cloned().unwrap_or_else(Period::none),
        };
        AuditNote::begin(self.caller.author(evidence), counter, what)
    }
}

/// Returns the sequence behind a name, on which the caller has `right`.
async fn source(
    calls: &Calls,
    caller: &Caller,
    right: Right,
    name: &SequenceName,
) -> Result<SequenceName, Problem> {
    let Some(target) = calls.directory.shared_by_template(name) else {
        caller.check(right, name)?;
        return Ok(name.clone());
    };
    // Rights come before existence.
    if !caller.may(right, name) && !caller.may(right, &target) {
        return Err(caller.refusal(right, &format!("`{name}`")));
    }
    let source = calls.directory.source(name);
    let source = suggestions::with_suggestions(calls, caller, source).await?;
    match caller.may(right, &source) {
        true => Ok(source),
        false => Err(caller.refusal(right, &told(caller, name, &source))),
    }
}

/// Returns how a refusal names a sequence: by the name in the call, if the caller may not look at
/// the sequence behind it.
pub(crate) fn told(caller: &Caller, name: &SequenceName, source: &SequenceName) -> String {
    match caller.may(Right::Look, source) {
        true => format!("`{source}`"),
        false => format!("the sequence behind `{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn an_answer_that_does_not_come_in_time_is_given_up() {
        let now = Instant::now();
        let came = in_time(now + Duration::from_secs(60), ready(Ok(7))).await;
        assert_eq!(came, Ok(7));
        let late = in_time(now, pending::<Result<u64, Problem>>()).await;
        assert_eq!(late.map_err(|late| late.code()), Err(Code::RefillTimeout));
    }
}
