//! Replies that carry numbers, written by hand into one buffer: they are what the service is
//! asked for millions of times.
//!
//! Neither a name nor a period nor an id holds a character that JSON escapes, so they are copied
//! as they are.

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Bytes;
use odometer_core::block::Block;
use odometer_core::format::Printer;

use super::parse::Wanted;

/// Media type of a number.
const JSON: &str = "application/json";

const TEXT: &str = "text/plain; charset=utf-8";

/// Where lines of ids have their period.
const PERIOD: HeaderName = HeaderName::from_static("odometer-period");

/// Bytes of the reply for one number apart from the name, the number and its printed form.
const ONE_FRAME: usize = 48;

/// The longest number: 2^63 - 1 has 19 digits.
const MAX_DIGITS: usize = 19;

/// Whose numbers a reply carries, and how they are printed.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'a> {
    /// The name of the sequence.
    pub(super) sequence: &'a str,
    /// The period they belong to, where the sequence has periods.
    pub(super) period: Option<&'a str>,
    /// What prints them; `None` where an id is the bare number.
    pub(super) printer: Option<&'a Printer>,
}

/// Of a sequence without periods, whose ids are the bare numbers.
pub(super) fn plain(sequence: &str) -> Numbers<'_> {
    Numbers {
        sequence,
        period: None,
        printer: None,
    }
}

impl Numbers<'_> {
    /// The reply for one number.
    pub(super) fn one(&self, value: i64, wanted: Wanted) -> HttpResponse {
        match wanted {
            Wanted::Json => ok(JSON, self.one_json(value)),
            Wanted::Text => {
                let mut line = String::with_capacity(self.longest_id() + 1);
                self.push_id(&mut line, value);
                line.push('\n');
                self.text(line)
            }
        }
    }

    /// The reply for a batch; `ids` says whether the printed ids stand beside the ranges.
    pub(super) fn batch(&self, ranges: &[Block], ids: bool, wanted: Wanted) -> HttpResponse {
        match wanted {
            Wanted::Json => ok(JSON, self.batch_json(ranges, ids)),
            Wanted::Text => self.text(self.lines(ranges)),
        }
    }

    fn text(&self, lines: String) -> HttpResponse {
        let mut response = ok(TEXT, lines);
        // All characters of a period may stand in a header.
        let period = self.period.map(HeaderValue::from_str);
        if let Some(Ok(period)) = period {
            response.headers_mut().insert(PERIOD, period);
        }
        response
    }

    /// The JSON of one number.
    fn one_json(&self, value: i64) -> String {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value);
        let mut body = String::with_capacity(self.frame() + digits.len() + self.id_room(digits));
        self.push_head(&mut body);
        body.push_str(",\"id\":\"");
        match self.printer {
            None => body.push_str(digits),
            Some(printer) => printer.print(value, &mut body),
        }
        body.push_str("\",\"value\":\"");
        body.push_str(digits);
        body.push_str("\"}");
        body
    }

    fn batch_json(&self, ranges: &[Block], ids: bool) -> String {
        let count: u64 = ranges.iter().map(Block::count).sum();
        let id_room = if ids { self.room(ranges, 3) } else { 0 };
        let mut body = String::with_capacity(256 + self.frame() + id_room);
        self.push_head(&mut body);
        body.push_str(",\"count\":");
        push(&mut body, count);
        body.push_str(",\"ranges\":[");
        for (index, range) in ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            body.push_str(comma);
            body.push_str("{\"first\":\"");
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
                self.push_id(&mut body, value);
                body.push_str("\",");
            }
            // The comma after the last id.
            if body.len() > start {
                body.pop();
            }
            body.push(']');
        }
        body.push('}');
        body
    }

    fn lines(&self, ranges: &[Block]) -> String {
        let mut lines = String::with_capacity(self.room(ranges, 1));
        for value in ranges.iter().flat_map(Block::values) {
            self.push_id(&mut lines, value);
            lines.push('\n');
        }
        lines
    }

    /// The members that every reply starts with.
    fn push_head(&self, body: &mut String) {
        body.push_str("{\"sequence\":\"");
        body.push_str(self.sequence);
        match self.period {
            None => body.push_str("\",\"period\":null"),
            Some(period) => {
                body.push_str("\",\"period\":\"");
                body.push_str(period);
                body.push('"');
            }
        }
    }

    fn push_id(&self, body: &mut String, value: i64) {
        match self.printer {
            None => push(body, value),
            Some(printer) => printer.print(value, body),
        }
    }

    /// Bytes of the reply for one number apart from the number and its printed form.
    fn frame(&self) -> usize {
        // Two quotes and not `null`.
        let period = self.period.map_or(0, |period| period.len());
        ONE_FRAME + self.sequence.len() + period.saturating_sub(2)
    }

    fn id_room(&self, digits: &str) -> usize {
        self.printer.map_or(digits.len(), Printer::room)
    }

    fn longest_id(&self) -> usize {
        self.printer.map_or(MAX_DIGITS, Printer::room)
    }

    /// Bytes that the ids of these ranges take, with so many around each. A batch has at most ten
    /// thousand, so this is a small bound.
    fn room(&self, ranges: &[Block], around: usize) -> usize {
        let count: u64 = ranges.iter().map(Block::count).sum();
        let each = self.longest_id() + around;
        usize::try_from(count).map_or(0, |count| count.saturating_mul(each))
    }
}

fn ok(media_type: &'static str, body: String) -> HttpResponse {
    let mut response = HttpResponse::with_body(StatusCode::OK, BoxBody::new(Bytes::from(body)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn push(body: &mut String, number: impl itoa::Integer) {
    body.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::definition::{Definition, PeriodKind};
    use odometer_core::format::Format;
    use odometer_core::period::Period;
    use serde_json::{Value, json};

    use super::*;

    fn ranges(of: &[(i64, u64, i64)]) -> Vec<Block> {
        of.iter()
            .map(|(first, count, step)| Block::new(*first, *count, *step).unwrap())
            .collect()
    }

    /// Of a sequence without periods whose ids are bare numbers.
    const ORDERS: Numbers<'_> = Numbers {
        sequence: "orders",
        period: None,
        printer: None,
    };

    fn printer() -> Printer {
        let definition = Definition {
            period: PeriodKind::Day,
            format: "{period}-{value:04}".to_owned(),
            ..Definition::default()
        };
        let format = Format::of(&definition).unwrap();
        format.printer(&Period::parse("20261120").unwrap())
    }

    fn by_day(printer: &Printer) -> Numbers<'_> {
        Numbers {
            sequence: "orders",
            period: Some("20261120"),
            printer: Some(printer),
        }
    }

    fn batch_of(of: &[(i64, u64, i64)], ids: bool) -> Value {
        serde_json::from_str(&ORDERS.batch_json(&ranges(of), ids)).unwrap()
    }

    #[test]
    fn one_number_is_written_as_the_contract_has_it() {
        let expected = r#"{"sequence":"orders","period":null,"id":"1001","value":"1001"}"#;
        assert_eq!(ORDERS.one_json(1001), expected);
    }

    #[test]
    fn a_printed_number_stands_beside_the_bare_one_and_its_period() {
        let printer = printer();
        let expected =
            r#"{"sequence":"orders","period":"20261120","id":"20261120-0007","value":"7"}"#;
        assert_eq!(by_day(&printer).one_json(7), expected);
        let body = by_day(&printer).batch_json(&ranges(&[(7, 2, 1)]), true);
        let expected = r#"{"sequence":"orders","period":"20261120","count":2,"ranges":[{"first":"7","last":"8","count":2,"step":1}],"ids":["20261120-0007","20261120-0008"]}"#;
        assert_eq!(body, expected);
    }

    #[test]
    fn text_has_its_period_in_a_header() {
        let printer = printer();
        let reply = by_day(&printer).one(7, Wanted::Text);
        assert_eq!(reply.headers().get("Odometer-Period").unwrap(), "20261120");
        assert!(!ORDERS.one(7, Wanted::Text).headers().contains_key(PERIOD));
        let lines = by_day(&printer).lines(&ranges(&[(7, 1, 1), (9, 1, 1)]));
        assert_eq!(lines, "20261120-0007\n20261120-0009\n");
    }

    #[test]
    fn the_buffer_of_one_number_is_exact() {
        for value in [0, 7, i64::MAX - 1] {
            let digits = value.to_string().len();
            let body = ORDERS.one_json(value);
            assert_eq!(body.len(), ONE_FRAME + "orders".len() + 2 * digits);
            assert_eq!(body.capacity(), body.len());
        }
    }

    #[test]
    fn a_batch_is_written_as_the_contract_has_it() {
        let body = ORDERS.batch_json(&ranges(&[(1001, 3, 1)]), true);
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
        let lines = ORDERS.lines(&ranges(&[(9, 2, 1), (20, 1, 1)]));
        assert_eq!(lines, "9\n10\n20\n");
    }
}
