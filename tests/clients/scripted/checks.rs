//! Compares what callers, hooks and replicas saw with what a case expects.

use std::collections::BTreeSet;

use super::{
    call::Call,
    counter::Run,
    player::Played,
    script::{CallKind, Case, Expected},
    stage::{Log, Stage},
};
use crate::clients::{
    driver::{Given, Hooks},
    language::Language,
};

/// Says how the numbers of an answer differ from what is expected. `None` if they do not.
pub(super) fn given(
    given: &Given,
    answer: &str,
    stage: &Stage,
    expected: &Expected,
) -> Option<String> {
    if let Some(ranges) = &expected.given {
        let printed = answer.split_whitespace().nth(1).unwrap_or_default();
        if printed != ranges {
            return Some(format!("instead of the numbers {ranges}"));
        }
    }
    if let Some(above) = expected.above
        && given.values().iter().any(|value| *value <= above)
    {
        return Some(format!("not all are above {above}"));
    }
    if expected.unbroken && given.ranges.len() != 1 {
        return Some("not one range".to_owned());
    }
    if let Some(size) = expected.asked_above {
        let log = stage.log();
        if !log.calls.iter().any(|call| call.size > size) {
            return Some(format!("no call asked for more than {size}"));
        }
    }
    if let Some(least) = expected.n_calls {
        let n_calls = stage.log().n_calls_for_numbers();
        if n_calls < least {
            return Some(format!("{n_calls} calls for numbers instead of {least}"));
        }
    }
    count_and_error(given.n_numbers(), given.error.as_deref(), expected)
}

pub(super) fn count_and_error(
    n_numbers: u64,
    error: Option<&str>,
    expected: &Expected,
) -> Option<String> {
    let is_error = match (error, &expected.error) {
        (None, None) => true,
        (Some(code), Some(codes)) => codes.split('|').any(|it| it == code),
        (None, Some(_)) | (Some(_), None) => false,
    };
    if !is_error {
        return Some(format!("instead of the error {:?}", expected.error));
    }
    let wanted = expected.n.filter(|wanted| *wanted != n_numbers);
    wanted.map(|wanted| format!("{n_numbers} numbers instead of {wanted}"))
}

/// Says how the hooks differ from what is expected, and from what the replicas know.
pub(super) fn hooks(hooks: &Hooks, stage: &Stage, expected: &Expected) -> Option<String> {
    for refill in &hooks.refills {
        let is_known = stage
            .endpoints()
            .iter()
            .any(|it| refill.endpoint.contains(it));
        if !is_known || refill.outcome.is_empty() || refill.seconds < 0.0 {
            return Some(format!("no refill of this case: {refill:?}"));
        }
    }
    if hooks.waited.iter().any(|seconds| *seconds < 0.0) {
        return Some("a caller waited less than no time".to_owned());
    }
    if hooks.dropped.iter().any(|dropped| dropped.cause.is_empty()) {
        return Some("numbers were dropped without a cause".to_owned());
    }
    let n_delivered: u64 = stage.log().counter.delivered().map(|run| run.count).sum();
    if hooks.n_brought() > n_delivered {
        return Some(format!("the replicas gave {n_delivered} numbers"));
    }
    for outcome in &expected.outcomes {
        if hooks.n_with(&[outcome.as_str()]) == 0 {
            return Some(format!("no refill with the outcome {outcome}"));
        }
    }
    if let Some(dropped) = expected.dropped
        && hooks.n_dropped() < dropped
    {
        return Some(format!(
            "{} dropped instead of {dropped}",
            hooks.n_dropped()
        ));
    }
    let waited = expected.waited.filter(|least| hooks.waited.len() < *least);
    waited.map(|least| format!("{} callers waited instead of {least}", hooks.waited.len()))
}

/// Checks the numbers of a whole case: each is one that the replicas gave, each is given once, and
/// they come in the order in which the replicas gave them.
pub(super) fn numbers(played: &Played, case: &Case) -> Result<(), String> {
    let distinct: BTreeSet<i64> = played.given.iter().copied().collect();
    let n_repeated = played.given.len() - distinct.len();
    if case.repeats {
        return match n_repeated {
            0 => Err("the control finds no number that came twice".to_owned()),
            _ => Ok(()),
        };
    }
    if n_repeated > 0 {
        return Err(format!(
            "{n_repeated} numbers came twice: {:?}",
            played.given
        ));
    }
    let log = played.stage.log();
    let delivered: Vec<Run> = log.counter.delivered().collect();
    let is_invented = |value: &&i64| !delivered.iter().any(|run| run.contains(**value));
    if let Some(invented) = played.given.iter().find(is_invented) {
        return Err(format!("no replica gave {invented}"));
    }
    // Ids and numbers come from one buffer, and a case has one of the two.
    if case.drops || case.overlaps || !played.ids.is_empty() {
        return Ok(());
    }
    let delivered = delivered.into_iter().flat_map(Run::values);
    let mut in_order: Vec<i64> = delivered.take(played.given.len()).collect();
    let mut given = played.given.clone();
    if played.is_shared {
        in_order.sort_unstable();
        given.sort_unstable();
    }
    let differs = in_order
        .iter()
        .zip(&given)
        .find(|(wanted, value)| wanted != value);
    differs.map_or(Ok(()), |(wanted, value)| {
        Err(format!("{value} came where {wanted} was next in order"))
    })
}

/// Checks the calls of a whole case, and that the case met the faults of its script.
pub(super) fn calls(log: &Log, case: &Case, language: Language) -> Result<(), String> {
    let unused = log.unused(case.driver.contains_key("kind"));
    if !unused.is_empty() {
        return Err(format!("vacuous: no call met {unused:?}"));
    }
    for call in &log.calls {
        let fault = call
            .faults
            .first()
            .cloned()
            .or_else(|| fault_of(call, case));
        if let Some(fault) = fault {
            return Err(format!("{fault}: {}", call.head));
        }
    }
    if !case.overlaps && log.max_under_way > 1 {
        return Err(format!("{} calls for numbers at once", log.max_under_way));
    }
    let of_definition = |call: &&Call| call.kind == CallKind::Definition;
    let n_definitions = log.calls.iter().filter(of_definition).count();
    // A second process reads it as well. A forked child knows it.
    let n_others = if language.can_fork() {
        0
    } else {
        case.n_forks()
    };
    if n_definitions > case.definition.len() + 1 + n_others {
        return Err(format!("the definition was read {n_definitions} times"));
    }
    wanted_calls(log, case)
}

/// Returns what is wrong with a call of this case.
fn fault_of(call: &Call, case: &Case) -> Option<String> {
    let token = case.driver.get("token").and_then(|token| token.as_str());
    let wanted = token.map(|token| format!("Bearer {token}"));
    if call.header("authorization") != wanted.as_deref() {
        return Some(format!("instead of the authorization {wanted:?}"));
    }
    if call.is_refill() {
        let traceparent = call.header("traceparent").unwrap_or_default();
        if !is_traceparent(traceparent) {
            return Some(format!("the traceparent `{traceparent}`"));
        }
    }
    let is_plain = case.sequence.prefix.is_empty() && case.sequence.width == 0;
    // A library that may not look asks for ids, because the numbers may have another format.
    let wants_ids = !is_plain || case.is_hidden();
    if call.kind == CallKind::Batch && call.size > 1 && call.ids != wants_ids {
        return Some("ids are for formats that are not {value}, or not known".to_owned());
    }
    if call.kind == CallKind::Block && (call.size <= 10_000 || !is_plain) {
        return Some("blocks are for sizes above 10,000 without a format".to_owned());
    }
    None
}

/// Returns whether a text is `00-TRACE-SPAN-FLAGS` (W3C Trace Context).
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    lengths == [2, 32, 16, 2] && parts.iter().all(is_hex) && parts.first() == Some(&"00")
}

fn wanted_calls(log: &Log, case: &Case) -> Result<(), String> {
    let is_named = |kind| case.calls.iter().any(|wanted| wanted.call == kind);
    let with_definition = is_named(CallKind::Definition);
    let calls = log.calls.iter();
    let calls = calls.filter(|call| with_definition || call.is_for_numbers());
    let calls: Vec<&Call> = calls.collect();
    for (index, wanted) in case.calls.iter().enumerate() {
        match calls.get(index) {
            Some(call) if call.is(wanted) => {}
            Some(call) => {
                let came = call.shown();
                return Err(format!(
                    "call {}: {wanted:?} was expected, but came {came}",
                    index + 1
                ));
            }
            None => return Err(format!("call {}: {wanted:?} did not come", index + 1)),
        }
    }
    if case.no_more_calls && calls.len() > case.calls.len() {
        return Err(format!(
            "{} calls instead of {}",
            calls.len(),
            case.calls.len()
        ));
    }
    Ok(())
}

#[test]
fn a_traceparent_is_told_from_other_texts() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    assert!(is_traceparent(&format!("00-{trace}-00f067aa0ba902b7-01")));
    for bad in ["", "00", "00-4bf9-00f0-01", "01-x-y-z"] {
        assert!(!is_traceparent(bad), "{bad}");
    }
}
