//! Replies that carry numbers, written by hand into one buffer: they are what the service is
//! asked for millions of times.
//!
//! A name holds no character that JSON escapes, so it is copied as it is.

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Bytes;
use odometer_core::block::Block;

use super::parse::Wanted;

/// Media type of a number.
const JSON: &str = "application/json";

const TEXT: &str = "text/plain; charset=utf-8";

/// Bytes of the reply for one number apart from the name and twice the number.
const ONE_FRAME: usize = 48;

/// The longest number: 2^63 - 1 has 19 digits.
const MAX_DIGITS: usize = 19;

/// The JSON of one number.
fn one_json(name: &str, value: i64) -> Bytes {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value);
    let mut body = Vec::with_capacity(ONE_FRAME + name.len() + 2 * digits.len());
    body.extend_from_slice(b"{\"sequence\":\"");
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(b"\",\"period\":null,\"id\":\"");
    body.extend_from_slice(digits.as_bytes());
    body.extend_from_slice(b"\",\"value\":\"");
    body.extend_from_slice(digits.as_bytes());
    body.extend_from_slice(b"\"}");
    Bytes::from(body)
}

/// The reply for one number.
pub(super) fn one(name: &str, value: i64, wanted: Wanted) -> HttpResponse {
    match wanted {
        Wanted::Json => ok(JSON, one_json(name, value)),
        Wanted::Text => ok(TEXT, Bytes::from(format!("{value}\n"))),
    }
}

/// The reply for a batch; `ids` says whether the printed ids stand beside the ranges.
pub(super) fn batch(name: &str, ranges: &[Block], ids: bool, wanted: Wanted) -> HttpResponse {
    match wanted {
        Wanted::Json => ok(JSON, batch_json(name, ranges, ids)),
        Wanted::Text => ok(TEXT, lines(ranges)),
    }
}

fn ok(media_type: &'static str, body: Bytes) -> HttpResponse {
    let mut response = HttpResponse::with_body(StatusCode::OK, BoxBody::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn batch_json(name: &str, ranges: &[Block], ids: bool) -> Bytes {
    let count: u64 = ranges.iter().map(Block::count).sum();
    let mut body = Vec::with_capacity(256 + room(if ids { ranges } else { &[] }, 3));
    body.extend_from_slice(b"{\"sequence\":\"");
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(b"\",\"period\":null,\"count\":");
    push(&mut body, count);
    body.extend_from_slice(b",\"ranges\":[");
    for (index, range) in ranges.iter().enumerate() {
        body.extend_from_slice(if index == 0 {
            b"{\"first\":\""
        } else {
            b",{\"first\":\""
        });
        push(&mut body, range.first());
        body.extend_from_slice(b"\",\"last\":\"");
        push(&mut body, range.last());
        body.extend_from_slice(b"\",\"count\":");
        push(&mut body, range.count());
        body.extend_from_slice(b",\"step\":");
        push(&mut body, range.step());
        body.push(b'}');
    }
    body.push(b']');
    if ids {
        body.extend_from_slice(b",\"ids\":[");
        let start = body.len();
        for value in ranges.iter().flat_map(Block::values) {
            body.push(b'"');
            push(&mut body, value);
            body.extend_from_slice(b"\",");
        }
        // The comma after the last id.
        if body.len() > start {
            body.pop();
        }
        body.push(b']');
    }
    body.push(b'}');
    Bytes::from(body)
}

fn lines(ranges: &[Block]) -> Bytes {
    let mut body = Vec::with_capacity(room(ranges, 1));
    for value in ranges.iter().flat_map(Block::values) {
        push(&mut body, value);
        body.push(b'\n');
    }
    Bytes::from(body)
}

fn push(body: &mut Vec<u8>, number: impl itoa::Integer) {
    body.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Bytes that the numbers of these ranges take, with so many around each. A batch has at most ten
/// thousand, so this is a small bound.
fn room(ranges: &[Block], around: usize) -> usize {
    let count: u64 = ranges.iter().map(Block::count).sum();
    usize::try_from(count).map_or(0, |count| count.saturating_mul(MAX_DIGITS + around))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ranges(of: &[(i64, u64, i64)]) -> Vec<Block> {
        of.iter()
            .map(|(first, count, step)| Block::new(*first, *count, *step).unwrap())
            .collect()
    }

    fn batch_of(of: &[(i64, u64, i64)], ids: bool) -> Value {
        serde_json::from_slice(&batch_json("orders", &ranges(of), ids)).unwrap()
    }

    #[test]
    fn one_number_is_written_as_the_contract_has_it() {
        let expected = r#"{"sequence":"orders","period":null,"id":"1001","value":"1001"}"#;
        assert_eq!(one_json("orders", 1001), expected);
    }

    #[test]
    fn the_buffer_of_one_number_is_exact() {
        for value in [0, 7, i64::MAX - 1] {
            let digits = value.to_string().len();
            let body = one_json("orders", value);
            assert_eq!(body.len(), ONE_FRAME + "orders".len() + 2 * digits);
        }
    }

    #[test]
    fn a_batch_is_written_as_the_contract_has_it() {
        let body = batch_json("orders", &ranges(&[(1001, 3, 1)]), true);
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
        assert_eq!(lines(&ranges(&[(9, 2, 1), (20, 1, 1)])), "9\n10\n20\n");
    }
}
