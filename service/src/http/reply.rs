//! Writes replies that carry numbers, by hand into one buffer, because callers ask for them
//! millions of times.
//!
//! A name holds no character that JSON escapes, so it is copied as it is.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Bytes;
use odometer_core::block::Block;
use odometer_core::format::{Format, Printer};
use odometer_core::period::Period;
use odometer_sequence::{Directory, issued::IssuedBy};

use super::large_replies;
use super::parse::MediaType;
use super::payload::parameters::NextQuery;

/// The media type of numbers in JSON.
const JSON: &str = "application/json";

const TEXT: &str = "text/plain; charset=utf-8";

/// Bytes of the reply for one number, without the names and the number itself.
const ONE_FRAME: usize = 48;

/// The most digits of a number: 2^63 - 1 has 19 digits.
const MAX_DIGITS: usize = 19;

/// Bytes around an id in a list: two quotation marks and a comma.
const FRAME_OF_AN_ID: usize = 3;

/// The header that tells the reader of a text the period of its numbers.
const PERIOD: HeaderName = HeaderName::from_static("odometer-period");

/// Returns the most bytes that the ids of a reply can have, as far as their sequence is known.
pub(crate) fn most_bytes(
    directory: &Directory,
    name: &str,
    asked: &NextQuery,
    wanted: MediaType,
) -> u64 {
    let prints_ids = asked.ids || wanted == MediaType::Text;
    let count = asked.count.unwrap_or(1);
    let n_ids = if prints_ids { count } else { 0 };
    let with_ids_of = |room: usize| n_ids.saturating_mul((room + FRAME_OF_AN_ID) as u64);
    let unknown = with_ids_of(Format::MAX_ID);
    if !large_replies::is_large(unknown) {
        return unknown;
    }
    let period = asked.period.as_ref().map(Period::as_str);
    let printer = directory.pin().printer(name, period);
    printer.map_or(unknown, |printer| with_ids_of(room_of(printer.as_ref())))
}

/// Returns the JSON of one number.
fn one_json(shown: IssuedBy<'_>, value: i64) -> Bytes {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value);
    let id_room = shown.printer.map_or(digits.len(), |printer| printer.room());
    let key = shown.key;
    // The size is exact if nothing is printed. A buffer with unused bytes costs one more
    // allocation.
    let room = ONE_FRAME + key.sequence.as_str().len() + key.period.as_str().len();
    let mut body = String::with_capacity(room + id_room + digits.len());
    push_head(&mut body, shown);
    body.push_str(",\"id\":\"");
    match shown.printer {
        None => body.push_str(digits),
        Some(printer) => printer.print(value, &mut body),
    }
    body.push_str("\",\"value\":\"");
    body.push_str(digits);
    body.push_str("\"}");
    Bytes::from(body)
}

/// Returns the reply for one number.
pub(crate) fn one(shown: IssuedBy<'_>, value: i64, wanted: MediaType) -> HttpResponse {
    match wanted {
        MediaType::Json => ok(JSON, one_json(shown, value)),
        MediaType::Text => text(shown, std::iter::once(value), 1),
    }
}

/// Returns the reply for a batch. `ids` says whether the reply has the printed ids next to the
/// ranges.
pub(crate) fn batch(
    shown: IssuedBy<'_>,
    ranges: &[Block],
    ids: bool,
    wanted: MediaType,
) -> HttpResponse {
    match wanted {
        MediaType::Json => ok(JSON, batch_json(shown, ranges, ids)),
        MediaType::Text => text(
            shown,
            ranges.iter().flat_map(Block::values),
            n_numbers(ranges),
        ),
    }
}

fn ok(media_type: &'static str, body: Bytes) -> HttpResponse {
    let mut response = HttpResponse::with_body(StatusCode::OK, BoxBody::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns a reply with one id in each line. The last line is ended, too.
fn text(shown: IssuedBy<'_>, values: impl Iterator<Item = i64>, count: usize) -> HttpResponse {
    let mut body = String::with_capacity(count.saturating_mul(room_of(shown.printer) + 1));
    for value in values {
        push_id(&mut body, shown, value);
        body.push('\n');
    }
    let mut response = ok(TEXT, Bytes::from(body));
    // A period has only characters that a header can have.
    if let Some(Ok(period)) = shown.key.period.shown().map(HeaderValue::from_str) {
        response.headers_mut().insert(PERIOD, period);
    }
    response
}

fn batch_json(shown: IssuedBy<'_>, ranges: &[Block], ids: bool) -> Bytes {
    let count: u64 = ranges.iter().map(Block::count).sum();
    let n_ids = if ids { n_numbers(ranges) } else { 0 };
    let mut body =
        String::with_capacity(256 + n_ids.saturating_mul(room_of(shown.printer) + FRAME_OF_AN_ID));
    push_head(&mut body, shown);
    body.push_str(",\"count\":");
    push(&mut body, count);
    body.push_str(",\"ranges\":[");
    for (index, range) in ranges.iter().enumerate() {
        body.push_str(if index == 0 {
            "{\"first\":\""
        } else {
            ",{\"first\":\""
        });
        push(&mut body, range.first());
        body.push_str("\",\"last\":\"");
        push(&mut body, range.last());
        body.push_str("\",\"count\":");
        push(&mut body, range.count());
        body.push_str(",\"step\":");
        push(&mut body, range.step());
        body.push('}');
    }
    body.push(']');
    if ids {
        body.push_str(",\"ids\":[");
        let start = body.len();
        for value in ranges.iter().flat_map(Block::values) {
            body.push('"');
            push_id(&mut body, shown, value);
            body.push_str("\",");
        }
        // Removes the comma after the last id.
        if body.len() > start {
            body.pop();
        }
        body.push(']');
    }
    body.push('}');
    Bytes::from(body)
}

/// Writes the beginning of every reply: its sequence and its period.
fn push_head(body: &mut String, shown: IssuedBy<'_>) {
    body.push_str("{\"sequence\":\"");
    body.push_str(shown.key.sequence.as_str());
    match shown.key.period.shown() {
        None => body.push_str("\",\"period\":null"),
        Some(period) => {
            body.push_str("\",\"period\":\"");
            body.push_str(period);
            body.push('"');
        }
    }
}

/// Writes a number as the sequence prints it. A printed id has no character that JSON escapes.
fn push_id(body: &mut String, shown: IssuedBy<'_>, value: i64) {
    match shown.printer {
        None => push(body, value),
        Some(printer) => printer.print(value, body),
    }
}

fn push(body: &mut String, number: impl itoa::Integer) {
    body.push_str(itoa::Buffer::new().format(number));
}

/// Returns the most bytes that one id takes.
fn room_of(printer: Option<&Arc<Printer>>) -> usize {
    printer.map_or(MAX_DIGITS, |printer| printer.room())
}

/// Returns how many numbers the ranges have. A batch has at most 10,000.
fn n_numbers(ranges: &[Block]) -> usize {
    let count: u64 = ranges.iter().map(Block::count).sum();
    usize::try_from(count).unwrap_or(0)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use actix_web::body::MessageBody;
    use odometer_core::{
        definition::Definition,
        name::SequenceName,
        period::{CounterKey, PeriodKind},
    };
    use serde_json::{Value, json};

    use super::*;

    fn ranges(of: &[(i64, u64, i64)]) -> Vec<Block> {
        of.iter()
            .map(|(first, count, step)| Block::new(*first, *count, *step).unwrap())
            .collect()
    }

    fn key(period: &str) -> CounterKey {
        CounterKey {
            sequence: SequenceName::parse("orders").unwrap(),
            period: Period::from_stored(period),
        }
    }

    fn plain(key: &CounterKey) -> IssuedBy<'_> {
        IssuedBy { key, printer: None }
    }

    fn batch_of(of: &[(i64, u64, i64)], ids: bool) -> Value {
        serde_json::from_slice(&batch_json(plain(&key("")), &ranges(of), ids)).unwrap()
    }

    fn body_of(response: HttpResponse) -> Bytes {
        response.into_body().try_into_bytes().unwrap()
    }

    #[test]
    fn one_number_is_written_as_the_contract_has_it() {
        let expected = r#"{"sequence":"orders","period":null,"id":"1001","value":"1001"}"#;
        assert_eq!(one_json(plain(&key("")), 1001), expected);
    }

    #[test]
    fn the_buffer_of_one_number_is_exact() {
        for value in [0, 7, i64::MAX - 1] {
            let digits = value.to_string().len();
            let body = one_json(plain(&key("")), value);
            assert_eq!(body.len(), ONE_FRAME + "orders".len() + 2 * digits);
        }
    }

    #[test]
    fn a_batch_is_written_as_the_contract_has_it() {
        let body = batch_json(plain(&key("")), &ranges(&[(1001, 3, 1)]), true);
        let expected = r#"{"sequence":"orders","period":null,"count":3,"ranges":[{"first":"1001","last":"1003","count":3,"step":1}],"ids":["1001","1002","1003"]}"#;
        assert_eq!(body, expected);
    }

    #[test]
    fn a_batch_of_two_ranges_counts_both() {
        let expected = json!({
            "sequence": "orders",
            "period": null,
            "count": 3,
            "ranges": [
                {"first": "5", "last": "15", "count": 2, "step": 10},
                {"first": "95", "last": "95", "count": 1, "step": 10},
            ],
            "ids": ["5", "15", "95"],
        });
        assert_eq!(batch_of(&[(5, 2, 10), (95, 1, 10)], true), expected);
    }

    #[test]
    fn ids_can_be_left_out() {
        let batch = batch_of(&[(1, 10_000, 1)], false);
        assert_eq!(batch.get("ids"), None);
        assert_eq!(batch.get("count"), Some(&json!(10_000)));
    }

    #[test]
    fn text_has_one_id_a_line_the_last_ended_too() {
        let ranges = ranges(&[(9, 2, 1), (20, 1, 1)]);
        let response = batch(plain(&key("")), &ranges, true, MediaType::Text);
        assert!(!response.headers().contains_key("odometer-period"));
        assert_eq!(body_of(response), "9\n10\n20\n");
    }

    #[test]
    fn a_period_is_named_and_printed() {
        let key = key("20261120");
        let definition = Definition {
            period: PeriodKind::Day,
            format: "{period}/{value:04}".to_owned(),
            ..Definition::default()
        };
        let printer = Arc::new(Format::of(&definition).unwrap().printer(&key.period));
        let shown = IssuedBy {
            key: &key,
            printer: Some(&printer),
        };
        let expected =
            r#"{"sequence":"orders","period":"20261120","id":"20261120/0042","value":"42"}"#;
        assert_eq!(one_json(shown, 42), expected);
        let text = one(shown, 42, MediaType::Text);
        assert_eq!(text.headers().get("odometer-period").unwrap(), "20261120");
        assert_eq!(body_of(text), "20261120/0042\n");
        let batch: Value =
            serde_json::from_slice(&batch_json(shown, &ranges(&[(7, 2, 1)]), true)).unwrap();
        assert_eq!(batch["ids"], json!(["20261120/0007", "20261120/0008"]));
        assert_eq!(batch["period"], "20261120");
    }
}
