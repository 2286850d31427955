//! Answers what clients ask of keys: whether they are known, and how far their numbers go.

use std::rc::Rc;
use std::time::Instant;

use odometer_core::definition::Kind;
use odometer_core::name::SequenceName;
use odometer_core::period::{Period, PeriodKind};
use odometer_sequence::description::Description;
use odometer_sequence::error::SequenceError;

use super::arguments::Arguments;
use super::error_line::ErrorLine;
use super::key_rules;
use super::reply::Replies;
use super::session::Session;
use super::state::Resp;
use crate::access::right::Right;
use crate::calls::evidence::Evidence;
use crate::calls::problem::Problem;
use crate::calls::sources;

/// What a client asks of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// An upper bound of the numbers that were given.
    Value,
    Type,
    /// A number never expires.
    TimeToLive,
    /// Whether there is what would expire, if the configuration lets such commands do nothing.
    Expiry,
}

impl Reading {
    /// Returns the right that a caller needs. A program that lets a key expire counts on it before.
    fn right(self) -> Right {
        match self {
            Self::Value | Self::Type | Self::TimeToLive => Right::Look,
            Self::Expiry => Right::Take,
        }
    }
}

/// A sequence, and the period of it that a key leads to.
type KnownCounter = (SequenceName, Option<Period>);

/// Answers a reading.
///
/// # Errors
/// The caller lacks the right, or the store was asked and did not answer.
pub(super) async fn read(
    session: &Session,
    reading: Reading,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) -> Result<(), ErrorLine> {
    let worker = Rc::clone(&session.worker);
    let (resp, evidence) = (&worker.resp, session.evidence()?);
    let found = known(resp, &evidence, reading.right(), arguments.text(1)).await?;
    match (reading, found) {
        (Reading::Value, Some(counter)) => {
            let value = last_reserved(resp, counter).await?;
            replies.bulk(itoa::Buffer::new().format(value).as_bytes());
        }
        (Reading::Value, None) => replies.nothing(),
        (Reading::Type, Some(_)) => replies.simple("string"),
        (Reading::Type, None) => replies.simple("none"),
        (Reading::TimeToLive, Some(_)) => replies.integer(-1),
        (Reading::TimeToLive, None) => replies.integer(-2),
        (Reading::Expiry, found) => replies.integer(i64::from(found.is_some())),
    }
    Ok(())
}

/// Returns how many of the keys in a command are known. All together have the time of one call.
///
/// # Errors
/// The caller may not look at one of the sequences, or the store was asked and did not answer.
pub(super) async fn count_known(
    session: &Session,
    arguments: &Arguments<'_>,
) -> Result<i64, ErrorLine> {
    let worker = Rc::clone(&session.worker);
    let (resp, evidence) = (&worker.resp, session.evidence()?);
    let until = Instant::now() + resp.calls.directory.call_time();
    let counting = async {
        let mut n_known = 0;
        for key in arguments.starting_at(1) {
            let found = known(resp, &evidence, Right::Look, key).await?;
            n_known += i64::from(found.is_some());
        }
        Ok(n_known)
    };
    Ok(sources::in_time(until, counting).await?)
}

/// Returns what a key leads to, if it was used before and the caller has `right` on it.
async fn known(
    resp: &Resp,
    evidence: &Evidence<'_>,
    right: Right,
    key: &[u8],
) -> Result<Option<KnownCounter>, Problem> {
    let (name, period) = key_rules::target(&resp.rules, key).checked()?;
    let (calls, directory) = (&resp.calls, &resp.calls.directory);
    let _caller = sources::admit(evidence, calls, right, &name).await?;
    let source = directory.source(&name).await?;
    let first_use = directory.first_use(&source, period.as_ref()).await?;
    Ok(first_use.is_none().then_some((source, period)))
}

/// Returns the last number that is reserved, or what comes before the first one.
async fn last_reserved(resp: &Resp, (name, period): KnownCounter) -> Result<i64, Problem> {
    let described = resp.calls.directory.describe(&name, period.as_ref()).await;
    Ok(value_of(&described?)?)
}

fn value_of(described: &Description) -> Result<i64, SequenceError> {
    let definition = &described.definition;
    if let Some(next) = described.state.high_water_mark {
        return Ok(next.saturating_sub(definition.step));
    }
    Err(match (definition.kind, definition.period) {
        (Kind::Snowflake, _) => SequenceError::NotForKind,
        (Kind::Block, PeriodKind::Keyed) if described.state.period.is_none() => {
            SequenceError::PeriodNeeded
        }
        (Kind::Block, _) => SequenceError::StoreUnavailable,
    })
}
