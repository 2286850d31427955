//! Answers what clients ask of keys: whether they are known, and how far their numbers go.

use std::rc::Rc;

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
    /// How many of the keys are known.
    Existence,
    Type,
    /// A number never expires.
    TimeToLive,
}

/// A sequence, and the period of it that a key leads to.
type KnownCounter = (SequenceName, Option<Period>);

/// Answers a reading.
///
/// # Errors
/// The caller may not look at the sequence, or the store was asked and did not answer.
pub(super) async fn read(
    session: &Session,
    reading: Reading,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) -> Result<(), ErrorLine> {
    let worker = Rc::clone(&session.worker);
    let (resp, evidence) = (&worker.resp, session.evidence()?);
    if reading == Reading::Existence {
        let mut n_known = 0;
        for key in arguments.starting_at(1) {
            n_known += i64::from(known(resp, &evidence, key).await?.is_some());
        }
        replies.integer(n_known);
        return Ok(());
    }
    let found = known(resp, &evidence, arguments.text(1)).await?;
    match (reading, found) {
        (Reading::Value, Some(counter)) => {
            let value = last_reserved(resp, counter).await?;
            replies.bulk(itoa::Buffer::new().format(value).as_bytes());
        }
        (Reading::Value, None) => replies.nothing(),
        (Reading::Type, Some(_)) => replies.simple("string"),
        (Reading::Type, None) => replies.simple("none"),
        (Reading::TimeToLive | Reading::Existence, Some(_)) => replies.integer(-1),
        (Reading::TimeToLive | Reading::Existence, None) => replies.integer(-2),
    }
    Ok(())
}

/// Returns what a key leads to, if it was used before.
async fn known(
    resp: &Resp,
    evidence: &Evidence<'_>,
    key: &[u8],
) -> Result<Option<KnownCounter>, ErrorLine> {
    let (name, period) = key_rules::target(&resp.rules, key).checked()?;
    let (calls, directory) = (&resp.calls, &resp.calls.directory);
    let _caller = sources::admit(evidence, calls, Right::Look, &name).await?;
    let source = directory.source(&name).await.map_err(Problem::from)?;
    let first_use = directory.first_use(&source, period.as_ref()).await;
    let first_use = first_use.map_err(Problem::from)?;
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
