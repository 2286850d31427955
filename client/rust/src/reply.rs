//! Reads the numbers of a reply.

use std::{collections::VecDeque, time::Instant};

use odometer_core::block::Block;
use serde_json::Value;

use crate::{
    buffer::{Item, Run},
    error::Error,
    service::Answer,
};

/// Reads a batch or a block. There is at least one number. `asked` is when it was asked for.
///
/// # Errors
/// [`Error::InvalidReply`] if the reply has no numbers, or fewer ids than numbers.
pub(crate) fn runs_of(answer: &Answer, with_ids: bool, asked: Instant) -> Result<Vec<Run>, Error> {
    let read = || {
        let body = &answer.body;
        let ranges = match body.get("ranges") {
            Some(ranges) => ranges.as_array()?.as_slice(),
            None => std::slice::from_ref(body),
        };
        let mut ids = ids_in(body, with_ids)?;
        let mut runs = Vec::new();
        for range in ranges {
            let numbers = block_in(range)?;
            runs.push(Run {
                numbers,
                ids: match &mut ids {
                    Some(ids) => Some(take_ids(ids, numbers.count())?),
                    None => None,
                },
                born: asked,
            });
        }
        (!runs.is_empty()).then_some(runs)
    };
    read().ok_or_else(|| unreadable(answer))
}

/// Reads one unbroken range of so many numbers.
///
/// # Errors
/// [`Error::InvalidReply`] if the reply has another one.
pub(crate) fn range_of(answer: &Answer, count: u64) -> Result<Block, Error> {
    let runs = runs_of(answer, false, Instant::now())?;
    if let [run] = runs.as_slice()
        && run.numbers.count() == count
    {
        return Ok(run.numbers);
    }
    let detail = format!("another range than {count} unbroken numbers");
    Err(Error::invalid_reply(&answer.endpoint, detail))
}

/// Reads the reply to a call for one number.
///
/// # Errors
/// [`Error::InvalidReply`] if the reply has none.
pub(crate) fn one_of(answer: &Answer) -> Result<Item, Error> {
    let read = || {
        let value = number(answer.body.get("value")?)?;
        let id = answer.body.get("id")?.as_str()?.to_owned();
        Some(Item {
            value,
            id: Some(id),
        })
    };
    read().ok_or_else(|| unreadable(answer))
}

/// Returns whether the numbers are of a period. They are wrong in the next one.
pub(crate) fn has_period(answer: &Answer) -> bool {
    let period = answer.body.get("period");
    period.is_some_and(|period| !period.is_null())
}

fn block_in(range: &Value) -> Option<Block> {
    let (first, last) = (number(range.get("first")?)?, number(range.get("last")?)?);
    let (count, step) = (range.get("count")?.as_u64()?, range.get("step")?.as_i64()?);
    let block = Block::new(first, count, step).ok()?;
    (block.last() == last).then_some(block)
}

/// Returns the ids of a reply: `Some(None)` if none are wanted, and `None` if they are missing.
fn ids_in(body: &Value, with_ids: bool) -> Option<Option<VecDeque<&str>>> {
    if !with_ids {
        return Some(None);
    }
    let ids = body.get("ids")?.as_array()?.iter().map(Value::as_str);
    Some(Some(ids.collect::<Option<VecDeque<&str>>>()?))
}

/// Takes so many ids off the start.
fn take_ids(ids: &mut VecDeque<&str>, count: u64) -> Option<VecDeque<String>> {
    let count = usize::try_from(count).ok()?;
    let is_enough = ids.len() >= count;
    is_enough.then(|| ids.drain(..count).map(str::to_owned).collect())
}

/// Reads a number that is a string, as numbers that identify are, or a number.
fn number(value: &Value) -> Option<i64> {
    match value.as_str() {
        Some(text) => text.parse().ok(),
        None => value.as_i64(),
    }
}

fn unreadable(answer: &Answer) -> Error {
    Error::invalid_reply(&answer.endpoint, "numbers that cannot be read")
}
