//! Fills a stock in a thread of the client, until enough numbers are there.

use std::{
    mem,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use ureq::http::Method;

use crate::{
    after::After,
    buffer::{self, Run},
    definition::{Definition, Kind, MAX_COUNT, definition_path},
    error::Error,
    flight::Flight,
    hooks::DropCause,
    log::TARGET,
    numbers_call::{EndedCall, NumbersCall},
    reply::{has_period, runs_of},
    sequence_calls::SequenceCalls,
    service::Answer,
    transport::Call,
};

const SAY_THE_KIND: &str = "Without the right `look`, say the kind: `Kind::Buffered`, or \
                            `Kind::Unbuffered` for strict, period and time-ordered sequences.";
const FORBIDDEN: u16 = 403;
const TOO_MANY_REQUESTS: u16 = 429;
/// With these codes a size is refused, and the refusal may say which one is not.
const SIZE_CODES: [&str; 2] = ["invalid_count", "confirm_needed"];

/// Fills one sequence's stock: one flight. The flight ends when this is dropped, however its thread
/// ends.
pub(crate) struct Refill {
    calls: SequenceCalls,
    flight: Arc<Flight>,
    has_landed: bool,
    /// What the program says of the sequence.
    said: Option<Kind>,
    /// The path of the definition. A template may share another sequence's numbers.
    definition_path: String,
    /// Numbers that came before the definition could be read.
    taken: Vec<Run>,
    /// Calls about which the hooks are to be told.
    ended: Vec<EndedCall>,
}

/// What one call brought.
struct Fetched {
    runs: Vec<Run>,
    /// Whether the numbers are of a period. It proves that they must not be fetched ahead, whatever
    /// the program says.
    has_period: bool,
    endpoint: Arc<str>,
}

/// Why a smaller size may succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SmallerBecause {
    NoRight,
    Limit,
    End,
}

impl Fetched {
    fn of(answer: Answer, with_ids: bool, asked: Instant) -> Result<Self, Error> {
        Ok(Self {
            runs: runs_of(&answer, with_ids, asked)?,
            has_period: has_period(&answer),
            endpoint: answer.endpoint,
        })
    }
}

impl Refill {
    pub(crate) fn new(calls: SequenceCalls, said: Option<Kind>, flight: Arc<Flight>) -> Self {
        Self {
            definition_path: calls.paths.definition().to_owned(),
            calls,
            flight,
            has_landed: false,
            said,
            taken: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Starts the flight in a thread of the client. If there is none, those who wait are told.
    pub(crate) fn start(self) {
        let threads = Arc::clone(&self.calls.engine.threads);
        if let Err(error) = threads.run(Box::new(move || self.fly())) {
            tracing::warn!(target: TARGET, %error, "a refill could not be started");
        }
    }

    fn fly(mut self) {
        self.fill();
        self.has_landed = true;
    }

    fn fill(&mut self) {
        let stock = Arc::clone(&self.calls.stock);
        let pause = stock.first_pause(&self.flight, Instant::now());
        self.flight.pause(pause);
        let mut has_failed = false;
        let mut began = None;
        loop {
            let asked = Instant::now();
            let wanted = stock.wanted(&self.flight, asked);
            // If the flight ends, it has ended by now. So a slow hook holds up no other one.
            self.report();
            let Some(size) = wanted else {
                break;
            };
            let first_asked = *began.get_or_insert(asked);
            let outcome = match stock.definition() {
                None => self.learn(),
                Some(definition) => self
                    .fetch(definition, size, has_failed)
                    .map(|fetched| self.deliver(fetched, first_asked)),
            };
            match outcome {
                Ok(is_delivered) => {
                    began = began.filter(|_| !is_delivered);
                    has_failed = false;
                }
                Err(error) => {
                    let pause = self.fail(&error);
                    self.report();
                    let Some(pause) = pause else {
                        break;
                    };
                    thread::sleep(pause);
                    has_failed = true;
                }
            }
        }
        let n_taken = buffer::count(&self.taken);
        self.calls.report_dropped(n_taken, DropCause::Late);
    }

    /// Gives the stock what came. Returns false if it was learnt that no more may be fetched ahead.
    fn deliver(&self, fetched: Fetched, began: Instant) -> bool {
        let Fetched {
            runs, has_period, ..
        } = fetched;
        let (stock, flight, now) = (&self.calls.stock, &self.flight, Instant::now());
        let after = if has_period {
            stock.learn(flight, Definition::UNBUFFERED, runs, now)
        } else {
            stock.deliver(flight, runs, began, now)
        };
        self.tell(after);
        !has_period
    }

    fn fail(&self, error: &Error) -> Option<Duration> {
        let SequenceCalls { stock, engine, .. } = &self.calls;
        let is_sole = engine.service.endpoints.is_sole();
        let (pause, after) = stock.fail(&self.flight, error, is_sole, Instant::now());
        self.tell(after);
        pause
    }

    /// Finds out what the sequence is. Returns false: the numbers that a caller wants are to come.
    fn learn(&mut self) -> Result<bool, Error> {
        let call = NumbersCall::for_definition();
        let read = self.read_definition();
        let definition = read.inspect_err(|error| self.ended.extend(call.fail(error)))?;
        let runs = mem::take(&mut self.taken);
        let (stock, flight) = (&self.calls.stock, &self.flight);
        let after = stock.learn(flight, definition, runs, Instant::now());
        self.tell(after);
        Ok(false)
    }

    fn read_definition(&mut self) -> Result<Definition, Error> {
        let error = match self.ask_for_definition() {
            Ok(definition) => return Ok(definition),
            Err(error) => error,
        };
        let is_hidden = error.refusal().is_some_and(|it| it.status == FORBIDDEN);
        match self.said {
            Some(kind) if is_hidden => Ok(Definition::said(kind)),
            None if is_hidden => Err(error.with_advice(SAY_THE_KIND)),
            Some(_) | None => Err(error),
        }
    }

    /// Reads the definition. A name that was never seen is created by taking its first number.
    fn ask_for_definition(&mut self) -> Result<Definition, Error> {
        let read = self.get_definition();
        let is_unknown = read
            .as_ref()
            .is_err_and(|error| error.code() == "sequence_not_found");
        if !is_unknown || !self.taken.is_empty() {
            return read;
        }
        self.take_first()?;
        self.get_definition()
    }

    fn get_definition(&self) -> Result<Definition, Error> {
        let SequenceCalls { shared, engine, .. } = &self.calls;
        let timeout = shared.settings.refill_timeout;
        let call = Call::new(Method::GET, &self.definition_path, timeout);
        let service = &engine.service;
        service.ask(&call, |answer| Definition::of(&answer))
    }

    /// Gets the first number of a name that is not known yet.
    fn take_first(&mut self) -> Result<(), Error> {
        let call = self.calls.begin();
        let asked = Instant::now();
        let (first, path) = call.run(|traceparent| {
            self.ask(1, true, traceparent, |answer| {
                let shared = answer.body.get("sequence").and_then(Value::as_str);
                let path = shared.map(definition_path);
                Ok((Fetched::of(answer, true, asked)?, path))
            })
        })?;
        self.ended.push(call.end(&first.endpoint, "ok", 1));
        self.taken = first.runs;
        if let Some(path) = path {
            self.definition_path = path;
        }
        Ok(())
    }

    /// Gets numbers with one call, or with another one if the size was refused.
    ///
    /// If the call before failed, the database may be away, and then `next` still has numbers.
    fn fetch(
        &mut self,
        definition: Definition,
        size: u64,
        has_failed: bool,
    ) -> Result<Fetched, Error> {
        let with_ids = !definition.prints_values;
        let mut size = size;
        if size > MAX_COUNT && (with_ids || has_failed || !self.calls.stock.may_reserve()) {
            size = MAX_COUNT;
        }
        let mut reasons = Vec::new();
        let call = self.calls.begin();
        let asked = Instant::now();
        loop {
            let read = |answer| Fetched::of(answer, with_ids, asked);
            let error = match call.run(|parent| self.ask(size, with_ids, parent, read)) {
                Ok(fetched) => {
                    let outcome = if reasons.is_empty() { "ok" } else { "resized" };
                    let count = buffer::count(&fetched.runs);
                    self.ended.push(call.end(&fetched.endpoint, outcome, count));
                    return Ok(fetched);
                }
                Err(error) => error,
            };
            match self.smaller(&error, size) {
                Some((reason, smaller)) if !reasons.contains(&reason) => {
                    reasons.push(reason);
                    size = smaller;
                }
                Some(_) | None => {
                    self.ended.extend(call.fail(&error));
                    return Err(error);
                }
            }
        }
    }

    /// Makes one call for numbers.
    fn ask<T>(
        &self,
        size: u64,
        with_ids: bool,
        traceparent: &str,
        read_answer: impl FnOnce(Answer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let SequenceCalls { paths, shared, .. } = &self.calls;
        let path = if size > MAX_COUNT {
            paths.block(size)
        } else {
            paths.batch(size, with_ids)
        };
        let timeout = shared.settings.refill_timeout;
        self.calls.ask(&path, timeout, traceparent, read_answer)
    }

    /// Returns why a smaller size may succeed, and which.
    fn smaller(&self, error: &Error, size: u64) -> Option<(SmallerBecause, u64)> {
        let refusal = error.refusal()?;
        let code = refusal.code.as_str();
        if refusal.status == FORBIDDEN && size > MAX_COUNT {
            self.calls.stock.note_no_right_to_reserve();
            return Some((SmallerBecause::NoRight, MAX_COUNT));
        }
        if refusal.status == TOO_MANY_REQUESTS || SIZE_CODES.contains(&code) {
            let limit = refusal.limit.filter(|limit| (1..size).contains(limit))?;
            return Some((SmallerBecause::Limit, limit));
        }
        // The last numbers are issued one at a time.
        (code == "sequence_exhausted" && size > 1).then_some((SmallerBecause::End, 1))
    }

    /// Tells the hooks about the calls that have ended.
    fn report(&mut self) {
        for call in self.ended.drain(..) {
            self.calls.report(&call);
        }
    }

    fn tell(&self, after: After) {
        after.tell(self.calls.name.as_str(), &self.calls.shared.hooks);
    }
}

impl Drop for Refill {
    fn drop(&mut self) {
        let error = (!self.has_landed).then(|| Error::NoThread {
            detail: "a refill ended before its time".into(),
        });
        let after = self.calls.stock.end(&self.flight, error.as_ref());
        self.tell(after);
    }
}
