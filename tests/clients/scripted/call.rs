//! A call that a scripted replica got.

use std::time::{Duration, Instant};

use super::script::{CallKind, WantedCall};
use crate::support::raw;

/// A request, as it came.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The replica, in the order in which the library first called them.
    pub(super) replica: usize,
    /// The connection that it came over, in the order in which they were opened.
    pub(super) connection: usize,
    pub(super) arrived: Instant,
    /// The time since the answer to the call for numbers before.
    pub(super) since_answer: Option<Duration>,
    pub(super) kind: CallKind,
    /// How many numbers are asked for: 1 for `next` without a count.
    pub(super) size: u64,
    /// Whether the printed ids are asked for.
    pub(super) ids: bool,
    /// The head, without the empty line.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// What is wrong with the call, whatever the case is about.
    pub(super) faults: Vec<String>,
}

impl Call {
    /// Reads a call for `sequence`. The replica and the connection are filled in by the stage.
    pub(super) fn read(head: &str, body: &[u8], sequence: &str) -> Self {
        let line = head.split("\r\n").next().unwrap_or_default();
        let mut words = line.split(' ');
        let (method, target) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let mut call = Self {
            replica: 0,
            connection: 0,
            arrived: Instant::now(),
            since_answer: None,
            kind: CallKind::One,
            size: 1,
            ids: true,
            head: head.to_owned(),
            body: body.to_vec(),
            faults: Vec::new(),
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.replace("%3A", ":").replace("%3a", ":");
        let of_sequence = format!("/v1/sequences/{sequence}");
        let rest = path.strip_prefix(&of_sequence);
        match (method, rest) {
            ("GET", Some("")) => call.kind = CallKind::Definition,
            ("POST", Some("/next")) => call.read_next(query),
            ("POST", Some("/blocks")) => call.read_blocks(query),
            _ => call.faults.push(format!("no call of the contract: {line}")),
        }
        call.look_for_faults();
        call
    }

    fn read_next(&mut self, query: &str) {
        for (name, value) in parameters(query) {
            match name {
                "count" => {
                    self.kind = CallKind::Batch;
                    self.size = value.parse().unwrap_or(0);
                }
                "ids" => self.ids = value != "false",
                "contiguous" if ["true", "false"].contains(&value) => {}
                _ => self.faults.push(format!("`{name}` of `next`: {value}")),
            }
        }
        if !(1..=10_000).contains(&self.size) {
            self.faults.push("`count` is 1 to 10,000".to_owned());
        }
    }

    fn read_blocks(&mut self, query: &str) {
        self.kind = CallKind::Block;
        self.size = 0;
        for (name, value) in parameters(query) {
            match name {
                "size" => self.size = value.parse().unwrap_or(0),
                _ => self.faults.push(format!("`{name}` of `blocks`: {value}")),
            }
        }
        if self.size == 0 {
            self.faults.push("`size` is at least 1".to_owned());
        }
    }

    fn look_for_faults(&mut self) {
        if self.header("idempotency-key").is_some() {
            self.faults
                .push("`Idempotency-Key` is never sent".to_owned());
        }
        if !self.body.is_empty() && self.body != b"{}" {
            let body = String::from_utf8_lossy(&self.body).into_owned();
            self.faults
                .push(format!("a body that nobody asked for: {body}"));
        }
    }

    /// Returns the value of the first header with this name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        raw::header(&self.head, name)
    }

    pub(super) fn is_for_numbers(&self) -> bool {
        self.kind != CallKind::Definition
    }

    /// Returns whether the call fills a buffer.
    pub(super) fn is_refill(&self) -> bool {
        matches!(self.kind, CallKind::Batch | CallKind::Block)
    }

    /// Returns whether the call is the one that a case wants.
    pub(super) fn is(&self, wanted: &WantedCall) -> bool {
        let is_kind = match wanted.call {
            CallKind::Refill => self.is_refill(),
            CallKind::One => {
                self.is_for_numbers() && self.kind != CallKind::Block && self.size == 1
            }
            CallKind::Definition | CallKind::Batch | CallKind::Block => self.kind == wanted.call,
        };
        let waited = self.since_answer.unwrap_or(Duration::MAX);
        is_kind
            && wanted.replica.is_none_or(|replica| replica == self.replica)
            && wanted.size.is_none_or(|size| size == self.size)
            && wanted.ids.is_none_or(|ids| ids == self.ids)
            && wanted
                .after_ms
                .is_none_or(|ms| waited >= Duration::from_millis(ms))
    }

    /// Returns a line about the call for the message of a failure.
    pub(super) fn shown(&self) -> String {
        let line = self.head.split("\r\n").next().unwrap_or_default();
        let since = self.since_answer.map_or_else(String::new, |since| {
            format!(", {} ms after the answer before", since.as_millis())
        });
        format!("replica {}: {line}{since}", self.replica)
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

#[test]
fn a_call_is_read_with_its_faults() {
    let read = |head: &str| Call::read(head, b"", "a:b");
    let batch = read("POST /v1/sequences/a%3Ab/next?count=100&ids=false HTTP/1.1");
    assert_eq!(
        (batch.kind, batch.size, batch.ids),
        (CallKind::Batch, 100, false)
    );
    assert_eq!(batch.faults, Vec::<String>::new());
    let block = read("POST /v1/sequences/a:b/blocks?size=20000 HTTP/1.1");
    assert_eq!((block.kind, block.size), (CallKind::Block, 20_000));
    assert_eq!(
        read("GET /v1/sequences/a:b HTTP/1.1").kind,
        CallKind::Definition
    );
    for bad in [
        "GET /v1/sequences/a:b/next HTTP/1.1",
        "POST /v1/sequences/other/next HTTP/1.1",
        "POST /v1/sequences/a:b/next?count=10001 HTTP/1.1",
        "POST /v1/sequences/a:b/blocks HTTP/1.1",
        "POST /v1/sequences/a:b/next HTTP/1.1\r\nIdempotency-Key: 1",
    ] {
        assert_eq!(read(bad).faults.len(), 1, "{bad}");
    }
}
