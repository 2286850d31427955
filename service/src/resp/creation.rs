//! Creates sequences for clients that set a key before they count: `SETNX`, and `SET` with `NX`.

use std::rc::Rc;

use odometer_core::definition::DefinitionChange;
use odometer_core::name::SequenceName;
use odometer_core::period::Period;
use odometer_sequence::FirstUse;
use odometer_sequence::description::Condition;
use odometer_sequence::error::SequenceError;

use super::arguments::{Arguments, integer};
use super::error_line::{
    ErrorLine, NEVER_EXPIRES, NEVER_TAKEN_BACK, NOT_AN_INTEGER, PERIOD_BEGINS_BY_INCR,
    START_OF_ADMINISTRATOR, SYNTAX,
};
use super::key_rules;
use super::session::Session;
use crate::access::right::Right;
use crate::calls::caller::Caller;
use crate::calls::evidence::Evidence;
use crate::calls::problem::Problem;
use crate::calls::state::Calls;
use crate::calls::{quotas, sources, suggestions};

/// Reads the value that `SET` sets, if it is to set it only for an unknown key.
///
/// # Errors
/// The options cannot be read, or the command would set the value of a known key.
pub(super) fn value_of_set(
    arguments: &Arguments<'_>,
    ignores_expiry: bool,
) -> Result<i64, ErrorLine> {
    let (mut is_new_only, mut has_expiry, mut at) = (false, false, 3);
    while let Some(option) = arguments.get(at) {
        at += 1;
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        if is("NX") {
            is_new_only = true;
        } else if is("XX") && !is_new_only {
            return Err(NEVER_TAKEN_BACK);
        } else if ["EX", "PX", "EXAT", "PXAT"].into_iter().any(is) && !has_expiry {
            let time = arguments.get(at).ok_or(SYNTAX)?;
            at += 1;
            has_expiry = true;
            if integer(time).ok_or(NOT_AN_INTEGER)? <= 0 {
                return Err(ErrorLine::bad_expiry("set"));
            }
        } else {
            return Err(SYNTAX);
        }
    }
    match (is_new_only, has_expiry && !ignores_expiry) {
        (false, _) => Err(NEVER_TAKEN_BACK),
        (true, true) => Err(NEVER_EXPIRES),
        (true, false) => value(arguments.text(2)),
    }
}

/// Reads the value of a key. The first number comes after it.
///
/// # Errors
/// It is no whole number, or no number can come after it.
pub(super) fn value(text: &[u8]) -> Result<i64, ErrorLine> {
    let value = integer(text).filter(|value| (-1..i64::MAX).contains(value));
    value.ok_or(NOT_AN_INTEGER)
}

/// Creates the sequence behind a key, if there is none. Its first number comes after `value`.
/// Returns whether there was none.
///
/// # Errors
/// The caller may not create it, or not with this start.
pub(super) async fn create(session: &Session, key: &[u8], value: i64) -> Result<bool, ErrorLine> {
    let worker = Rc::clone(&session.worker);
    let (resp, calls) = (&worker.resp, &worker.resp.calls);
    let (name, period) = key_rules::target(&resp.rules, key).checked()?;
    let evidence = session.evidence()?;
    let of = (&name, period.as_ref());
    let taker = sources::admit_taker(&evidence, calls, Right::Take, of).await?;
    let source = &taker.source;
    if !is_unused(calls, &taker.caller, (source, period.as_ref())).await? {
        return Ok(false);
    }
    let start = value.saturating_add(1);
    if calls.directory.creates(source) {
        let Some(given) = start_by_template(calls, source).await? else {
            return Ok(false);
        };
        if given == start {
            let change = DefinitionChange::default();
            return Ok(define(calls, &evidence, (&taker.caller, source), change).await?);
        }
    }
    // Nobody but a definer chooses where a sequence starts.
    let access = &calls.access;
    let has_password = access.asks_who() && !access.has_roles();
    if has_password && !taker.caller.is_administrator() {
        return Err(START_OF_ADMINISTRATOR);
    }
    let definer = access.admit(&evidence, Right::Define, source).await?;
    // The taker is the same caller, so a first use has its room in the quota already.
    let _creation = match taker.is_first() {
        true => None,
        false => quotas::creation_of_name(calls, &definer, source).await?,
    };
    let change = DefinitionChange {
        start: Some(start),
        ..DefinitionChange::default()
    };
    Ok(define(calls, &evidence, (&definer, source), change).await?)
}

/// Returns whether nobody has used a sequence.
async fn is_unused(
    calls: &Calls,
    caller: &Caller,
    (name, period): (&SequenceName, Option<&Period>),
) -> Result<bool, ErrorLine> {
    let first_use = calls.directory.first_use(name, period);
    match suggestions::with_suggestions(calls, caller, first_use).await? {
        None => Ok(false),
        Some(FirstUse::Name) if period.is_none() => Ok(true),
        Some(FirstUse::Name | FirstUse::Key) => Err(PERIOD_BEGINS_BY_INCR),
    }
}

/// Returns the first number that a sequence would get by its template; `None` if it exists.
async fn start_by_template(calls: &Calls, name: &SequenceName) -> Result<Option<i64>, Problem> {
    let (change, condition) = (DefinitionChange::default(), Condition::MustNotExist);
    match calls.directory.rehearse(name, change, condition).await {
        Ok(rehearsed) => Ok(Some(rehearsed.definition.start)),
        Err(SequenceError::AlreadyExists { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Defines a sequence that does not exist. Returns whether it did not.
async fn define(
    calls: &Calls,
    evidence: &Evidence<'_>,
    (caller, name): (&Caller, &SequenceName),
    change: DefinitionChange,
) -> Result<bool, Problem> {
    let author = caller.author(evidence);
    let condition = Condition::MustNotExist;
    match calls
        .directory
        .define(name, change, condition, author)
        .await
    {
        Ok(_defined) => Ok(true),
        Err(SequenceError::AlreadyExists { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests may fail loudly")]
mod tests {
    use super::super::arguments::{CommandBounds, Parsed, parse};
    use super::*;

    fn read(line: &str, ignores_expiry: bool) -> Result<i64, String> {
        let line = format!("{line}\n");
        let parsed = parse(line.as_bytes(), &CommandBounds::LET_IN);
        let Parsed::Whole { arguments, .. } = parsed else {
            panic!("{line}")
        };
        let read = value_of_set(&arguments, ignores_expiry);
        read.map_err(|error| String::from_utf8_lossy(error.text()).into_owned())
    }

    #[test]
    fn only_an_unknown_key_can_be_set() {
        assert_eq!(read("SET k 41 NX", false), Ok(41));
        assert_eq!(read("SET k -1 nx", false), Ok(-1));
        assert_eq!(read("SET k 0 EX 5 NX", true), Ok(0));
        for (line, told) in [
            ("SET k 5", "ERR a number is never taken back"),
            ("SET k 5 XX", "ERR a number is never taken back"),
            ("SET k 5 EX 5", "ERR a number is never taken back"),
            ("SET k 5 NX XX", "ERR syntax error"),
            ("SET k 5 BAD", "ERR syntax error"),
            ("SET k 5 EX", "ERR syntax error"),
            ("SET k 5 EX 5 PX 5", "ERR syntax error"),
            ("SET k 5 NX GET", "ERR syntax error"),
            (
                "SET k 5 EX x NX",
                "ERR value is not an integer or out of range",
            ),
            (
                "SET k 5 PX 0 NX",
                "ERR invalid expire time in 'set' command",
            ),
            ("SET k x NX", "ERR value is not an integer or out of range"),
            ("SET k -2 NX", "ERR value is not an integer or out of range"),
            (
                "SET k 9223372036854775807 NX",
                "ERR value is not an integer or out of range",
            ),
        ] {
            assert_eq!(read(line, true), Err(told.to_owned()), "{line}");
        }
        let refused = read("SET k 0 NX EX 5", false);
        assert!(refused.is_err_and(|told| told.contains("resp.expire")));
    }
}
