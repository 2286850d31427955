//! Reads and writes the trace that a call belongs to, as W3C Trace Context (level 1) defines it.
//!
//! The header is read strictly. The reply names the trace, with a span of this service's own. A
//! call without the header has no trace, unless spans are exported. A call with a broken header
//! gets a new trace, as the recommendation asks. Its reply then says at least that the header came.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use odometer_process::log;
use tracing::Span;

use super::parse;

/// The header that names a trace, in both directions.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of a header in the version that is written: `00-`, the trace, the span, the flags.
const WHOLE: usize = 55;
/// The bytes of the header with the id of the trace.
const TRACE: std::ops::Range<usize> = 3..35;
/// The bytes of the header with the id of the span.
const SPAN: std::ops::Range<usize> = 36..52;
/// The only flag with a meaning: the caller keeps the spans that it records.
const SAMPLED: u32 = 1;

/// A call's place in a trace: which trace, and the span that this service gave the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Trace {
    /// The text of the reply's header.
    text: [u8; WHOLE],
}

/// Returns the span of a call, and the call's place in a trace if it has one.
pub(crate) fn enter(headers: &HeaderMap, request_id: &str) -> (Span, Option<Trace>) {
    let span = log::call(request_id);
    #[cfg(feature = "otlp")]
    let trace = Trace::exported(headers, &span).or_else(|| Trace::of(headers));
    #[cfg(not(feature = "otlp"))]
    let trace = Trace::of(headers);
    if let Some(trace) = &trace {
        log::note_trace(&span, trace.id());
    }
    (span, trace)
}

impl Trace {
    /// Returns the place of `span` in the caller's trace, or in a trace of its own. Returns `None`
    /// if no spans are exported.
    #[cfg(feature = "otlp")]
    fn exported(headers: &HeaderMap, span: &Span) -> Option<Self> {
        let given = parse::single(headers, &TRACEPARENT).ok().flatten();
        let caller = given.and_then(|given| read(given.as_bytes()));
        let in_text = |id| std::str::from_utf8(id).unwrap_or_default();
        let caller = caller.map(|caller| {
            let (trace, span) = (in_text(caller.trace), in_text(caller.span));
            (trace, span, caller.is_sampled)
        });
        let place = log::place(span, caller)?;
        Some(Self::new(
            place.trace.as_bytes(),
            place.is_sampled,
            Some(place.span.as_bytes()),
        ))
    }

    /// Returns the trace that a call asks to be part of, if it asks.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        match parse::single(headers, &TRACEPARENT) {
            Ok(given) => given.map(|given| Self::after(given.as_bytes())),
            // The header came twice or is not ASCII, so no trace can be read.
            Err(_) => Some(Self::anew()),
        }
    }

    /// Returns the trace of this header, or a new trace if the header cannot be read.
    #[inline]
    pub(crate) fn after(given: &[u8]) -> Self {
        match read(given) {
            Some(given) => Self::new(given.trace, given.is_sampled, None),
            None => Self::anew(),
        }
    }

    /// Starts a trace of which nothing is kept.
    fn anew() -> Self {
        // All bits are random. An id of zero is not valid, and would come once in 2^128.
        let id = rand::random::<u128>().max(1);
        let mut trace = [0; TRACE.end - TRACE.start];
        print(id, &mut trace);
        Self::new(&trace, false, None)
    }

    /// Creates a trace with the given span, or with a new one. An id of the wrong length is
    /// ignored.
    fn new(trace: &[u8], is_sampled: bool, span: Option<&[u8]>) -> Self {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        if let Some(place) = text.get_mut(TRACE).filter(|at| at.len() == trace.len()) {
            place.copy_from_slice(trace);
        }
        if let Some(place) = text.get_mut(SPAN) {
            match span.filter(|span| span.len() == place.len()) {
                Some(span) => place.copy_from_slice(span),
                None => print(rand::random::<u64>().max(1).into(), place),
            }
        }
        if let Some(last) = text.last_mut() {
            *last = b'0' | u8::from(is_sampled);
        }
        Self { text }
    }

    /// Returns the id of the trace, for the log.
    pub(crate) fn id(&self) -> &str {
        let id = self.text.get(TRACE).unwrap_or_default();
        std::str::from_utf8(id).unwrap_or_default()
    }

    /// Returns the header of the reply.
    #[inline]
    pub(crate) fn header(&self) -> HeaderValue {
        // The text has only digits, letters and dashes, which a header can have.
        HeaderValue::from_bytes(&self.text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// The content of a header, with each id in its hexadecimal digits.
struct TraceHeader<'a> {
    trace: &'a [u8],
    #[cfg(feature = "otlp")]
    span: &'a [u8],
    is_sampled: bool,
}

/// Reads a header. Returns `None` if the header is not well-formed.
///
/// A header of an unknown version is read at the places that version 00 has.
fn read(given: &[u8]) -> Option<TraceHeader<'_>> {
    let (whole, more) = given.split_at_checked(WHOLE)?;
    let is_known = whole.starts_with(b"00-");
    if whole.starts_with(b"ff") || !(more.is_empty() || (!is_known && more.starts_with(b"-"))) {
        return None;
    }
    let is_well_formed = whole.iter().enumerate().all(|(at, byte)| match at {
        2 | 35 | 52 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    });
    let (trace, span) = (whole.get(TRACE)?, whole.get(SPAN)?);
    let is_set = |id: &[u8]| id.iter().any(|byte| *byte != b'0');
    if !is_well_formed || !is_set(trace) || !is_set(span) {
        return None;
    }
    let flags = char::from(*whole.last()?).to_digit(16)?;
    Some(TraceHeader {
        trace,
        #[cfg(feature = "otlp")]
        span,
        is_sampled: flags & SAMPLED != 0,
    })
}

/// Writes the lowest hexadecimal digits of a number, as many as `room` has bytes.
fn print(number: u128, room: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut left = number;
    for place in room.iter_mut().rev() {
        // A remainder of a division by 16 has a digit.
        *place = DIGITS.get((left % 16) as usize).copied().unwrap_or(b'0');
        left /= 16;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn after(given: &str) -> Trace {
        Trace::after(given.as_bytes())
    }

    /// Returns the trace, the span and the flags of a reply's header, which is well-formed in any
    /// case.
    fn told(trace: &Trace) -> (String, String, String) {
        let header = trace.header();
        assert!(read(header.as_bytes()).is_some(), "{header:?}");
        let text = header.to_str().unwrap();
        let parts: Vec<&str> = text.split('-').collect();
        let [version, id, span, flags] = parts.as_slice() else {
            panic!("{text}");
        };
        assert_eq!((*version, *id), ("00", trace.id()));
        ((*id).to_owned(), (*span).to_owned(), (*flags).to_owned())
    }

    #[test]
    fn a_trace_goes_on_with_a_span_of_our_own() {
        let (id, span, flags) = told(&after(GIVEN));
        assert_eq!((id.as_str(), flags.as_str()), (TRACE_ID, "01"));
        assert_ne!(span, "00f067aa0ba902b7");
        let (_, another, _) = told(&after(GIVEN));
        assert_ne!(span, another);
    }

    #[test]
    fn only_the_flag_with_a_meaning_is_told() {
        for (given, told_flags) in [("00", "00"), ("01", "01"), ("fe", "00"), ("af", "01")] {
            let (id, _, flags) = told(&after(&format!("00-{TRACE_ID}-00f067aa0ba902b7-{given}")));
            assert_eq!((id.as_str(), flags.as_str()), (TRACE_ID, told_flags));
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for given in [
            GIVEN.replacen("00-", "01-", 1),
            GIVEN.replacen("00-", "cc-", 1) + "-what-the-future-holds",
            GIVEN.replacen("00-", "fe-", 1) + "-",
        ] {
            assert_eq!(told(&after(&given)).0, TRACE_ID, "{given}");
        }
    }

    #[test]
    fn what_is_broken_begins_a_trace_of_which_nothing_is_kept() {
        for given in [
            "",
            "00",
            &GIVEN[1..],
            &GIVEN[..54],
            &format!("{GIVEN}-more"),
            &format!("{GIVEN}-"),
            &format!("{GIVEN}0"),
            &GIVEN.replacen("00-", "ff-", 1),
            &(GIVEN.replacen("00-", "cc-", 1) + ".what"),
            &(GIVEN.replacen("00-", "cc-", 1) + "0"),
            &GIVEN.replacen("00-", "0x-", 1),
            &GIVEN.to_uppercase(),
            &GIVEN.replace('-', "_"),
            &GIVEN.replace("4bf9", "4bg9"),
            &GIVEN.replace("02b7", "02 7"),
            &GIVEN.replace("-01", "-0x"),
            &GIVEN.replace(TRACE_ID, &"0".repeat(32)),
            &GIVEN.replace("00f067aa0ba902b7", &"0".repeat(16)),
        ] {
            let (id, _, flags) = told(&after(given));
            assert_ne!(id, TRACE_ID, "{given}");
            assert_eq!(flags, "00", "{given}");
            assert_ne!(id, told(&after(given)).0, "{given}");
        }
    }

    #[test]
    fn no_header_is_no_trace_and_two_are_a_new_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(Trace::of(&headers), None);
        headers.append(TRACEPARENT, HeaderValue::from_static(GIVEN));
        assert_eq!(Trace::of(&headers).unwrap().id(), TRACE_ID);
        headers.append(TRACEPARENT, HeaderValue::from_static(GIVEN));
        assert_ne!(Trace::of(&headers).unwrap().id(), TRACE_ID);
    }
}
