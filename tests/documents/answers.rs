//! Compares an answer with the one that a document shows.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Fields that depend on the time or the machine. Only their type must be right.
const VARYING: [&str; 12] = [
    "everywhere_by",
    "started",
    "version",
    "rate",
    "days_left",
    "reserve_seconds",
    "last_refill",
    "holder",
    "reserved_at",
    "token",
    "until_ms",
    "expires_ms",
];

/// The day that the documents show. In an answer, today's date stands in its place, in the zone of
/// the only sequence of the documents that counts by days.
const SHOWN_DAY: &str = "20261120";
const ZONE: &str = "Europe/Berlin";

/// Replaces today's date in an answer by the day that the documents show.
fn on_the_shown_day(came: &str) -> String {
    let now = Timestamp::now();
    // The answer may have come before midnight.
    let a_moment_ago = now - SignedDuration::from_mins(1);
    let days = [now, a_moment_ago].map(|at| {
        let there = at.in_tz(ZONE).expect("a zone that exists");
        there.strftime("%Y%m%d").to_string()
    });
    days.iter()
        .fold(came.to_owned(), |came, day| came.replace(day, SHOWN_DAY))
}

/// Returns the difference between the shown answer and the real one, or `None` if they agree.
///
/// JSON on one line, and text, must be equal. JSON on several lines is compared by its values.
pub(super) fn difference(kind: &str, shown: &str, came: &str) -> Option<String> {
    let came = on_the_shown_day(came);
    let (shown, came) = (shown.trim_end(), came.trim_end());
    if kind == "json" && shown.contains('\n') {
        let shown: Value = match serde_json::from_str(shown) {
            Ok(shown) => shown,
            Err(error) => return Some(format!("what is shown is not JSON: {error}")),
        };
        return match serde_json::from_str(came) {
            Ok(came) => value_difference("", &shown, &came),
            Err(error) => Some(format!("what came is not JSON: {error}")),
        };
    }
    (shown != came).then(|| "not the same text".to_owned())
}

fn value_difference(path: &str, shown: &Value, came: &Value) -> Option<String> {
    match (shown, came) {
        (Value::Object(shown), Value::Object(came)) => {
            let keys = |of: &serde_json::Map<String, Value>| -> Vec<String> {
                of.keys().cloned().collect()
            };
            if keys(shown) != keys(came) {
                return Some(format!("{path}: {:?} and {:?}", keys(shown), keys(came)));
            }
            shown.iter().zip(came.values()).find_map(|((key, a), b)| {
                let path = format!("{path}.{key}");
                if VARYING.contains(&key.as_str()) {
                    type_difference(&path, a, b)
                } else {
                    value_difference(&path, a, b)
                }
            })
        }
        (Value::Array(shown), Value::Array(came)) if shown.len() == came.len() => {
            let pairs = shown.iter().zip(came).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (a, b))| value_difference(&format!("{path}[{at}]"), a, b))
        }
        (shown, came) => (shown != came).then(|| format!("{path}: {shown} and {came}")),
    }
}

fn type_difference(path: &str, shown: &Value, came: &Value) -> Option<String> {
    let same = std::mem::discriminant(shown) == std::mem::discriminant(came);
    (!same).then(|| format!("{path}: {shown} and {came}"))
}

#[test]
fn answers_are_compared_by_form() {
    let one = r#"{"id":"1"}"#;
    assert_eq!(difference("json", one, one), None);
    assert!(difference("json", one, r#"{"id": "1"}"#).is_some());
    assert!(difference("text", "ready\n", "ready\n").is_none());
    let shown = "{\n\"a\": [1, {\"rate\": 0.5}]}";
    assert_eq!(
        difference("json", shown, r#"{"a":[1,{"rate":7.25}]}"#),
        None
    );
    for other in [
        r#"{"a":[2,{"rate":0.5}]}"#,
        r#"{"a":[1,{"rate":"0.5"}]}"#,
        r#"{"a":[1]}"#,
        r#"{"a":[1,{"rate":0.5}],"b":1}"#,
        "nothing",
    ] {
        assert!(difference("json", shown, other).is_some(), "{other}");
    }
}
