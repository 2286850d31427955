//! Takes numbers as a test says, one step a line. It is not published.
//!
//! Start it with one argument, a JSON object of options. It prints `ready`, and one line for each
//! step that it reads. `tests/clients/driver.rs` has the other side.

mod busy;
mod child;
mod given;
mod recorder;

use std::{
    error::Error as StdError,
    io::{self, BufRead, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use odometer_client::{Block, Client, Error, Kind, Layout, Sequence, SequenceOptions, Stamper};
use serde_json::Value;

use given::Given;
use recorder::Recorder;

/// A stamper is waited for at most this long, if the ids of the present moment are used up.
const MAX_STAMP_WAIT: Duration = Duration::from_millis(20);
/// A forked child waits at most this long for a lease of its own.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(20);

/// What the steps work on.
struct Driver {
    options: Value,
    client: Client,
    sequence: Sequence,
    recorder: Recorder,
    stamper: Option<Stamper>,
}

fn main() -> Result<(), Box<dyn StdError>> {
    let argument = std::env::args().nth(1).ok_or("the options are missing")?;
    let mut driver = Driver::new(serde_json::from_str(&argument)?)?;
    say("ready")?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line == "exit" {
            return Ok(say("bye")?);
        }
        say(&driver.answer(&line))?;
    }
    Ok(())
}

fn say(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

impl Driver {
    fn new(options: Value) -> Result<Self, Box<dyn StdError>> {
        take_out_guards(&options)?;
        let millis = |name: &str| options.get(name).and_then(Value::as_u64);
        let duration = |name: &str| millis(name).map(Duration::from_millis);
        let text = |name: &str| options.get(name).and_then(Value::as_str);
        let recorder = Recorder::default();
        let endpoints = options.get("endpoints").and_then(Value::as_array);
        let endpoints = endpoints.into_iter().flatten().filter_map(Value::as_str);
        let mut builder = Client::builder()
            .endpoints(endpoints)
            .deadline(duration("deadline_ms").unwrap_or(Duration::from_secs(2)))
            .refill_timeout(duration("refill_timeout_ms").unwrap_or(Duration::from_secs(7)))
            .initial_size(millis("initial_size").unwrap_or(100))
            .hooks(recorder.clone());
        if let Some(token) = text("token") {
            builder = builder.token(token);
        }
        if let Some(file) = text("ca_file") {
            builder = builder.ca_file(PathBuf::from(file));
        }
        if let Some(max_age) = duration("max_age_ms") {
            builder = builder.max_age(max_age);
        }
        if let Some(ttl) = duration("lease_ttl_ms") {
            builder = builder.lease_ttl(ttl);
        }
        let client = builder.build()?;
        let kind = match text("kind") {
            None => None,
            Some("buffered") => Some(Kind::Buffered),
            Some("unbuffered") => Some(Kind::Unbuffered),
            Some(other) => return Err(format!("{other} is no kind").into()),
        };
        let name = text("sequence").ok_or("the sequence is missing")?;
        let sequence_options = SequenceOptions { kind, period: None };
        Ok(Self {
            sequence: client.sequence_with(name, sequence_options)?,
            client,
            recorder,
            stamper: None,
            options,
        })
    }

    /// Does a step, and returns its answer.
    fn answer(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let sequence = &self.sequence;
        match (word, numbers.as_slice()) {
            ("take", [count]) => Given::by(*count, || sequence.take()).to_string(),
            ("next", [count]) => Given::by(*count, || sequence.next_blocking()).to_string(),
            ("local", [count]) => {
                let mut slice = sequence.local();
                Given::by(*count, || {
                    slice.take().or_else(|_| sequence.next_blocking())
                })
                .to_string()
            }
            ("async", [count]) => at_once(sequence, *count).to_string(),
            ("range", [count]) => unbroken(sequence.range_blocking(*count)),
            ("warm", [count]) => done(sequence.warm_blocking(*count)),
            ("threads", [n_threads, count]) => in_threads(sequence, *n_threads, *count),
            ("fork", [count]) => in_fork(|| Given::by(*count, || sequence.next_blocking())),
            ("busy_forks", [n_forks, count]) => busy::forks(sequence, *n_forks, *count),
            ("ids", [count]) => ids(sequence, *count),
            ("forget", []) => {
                self.client.forget();
                "done".to_owned()
            }
            ("readings", []) => {
                let (left, rate) = (sequence.left(), sequence.rate());
                format!("left {left} rate {rate:.1}")
            }
            ("hooks", []) => self.recorder.report(),
            ("lease", []) => done(self.lease()),
            ("release", []) => {
                self.stamper = None;
                "done".to_owned()
            }
            ("close", []) => {
                if let Some(stamper) = self.stamper.take() {
                    stamper.close_blocking();
                }
                "done".to_owned()
            }
            ("refused", [millis]) => {
                let n_refused = self.refused(Duration::from_millis(*millis));
                format!("refused {n_refused}")
            }
            ("stamp", [count]) => self.stamp(*count, Duration::ZERO).to_string(),
            ("stamp_in_fork", [count]) => in_fork(|| self.stamp(*count, MAX_LEASE_WAIT)),
            _ => "unsupported".to_owned(),
        }
    }

    /// Leases a worker id, as the option `stamper` says.
    fn lease(&mut self) -> Result<(), Error> {
        let said = self.options.get("stamper").cloned().unwrap_or_default();
        let text = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default();
        let layout = said.get("layout").cloned().unwrap_or_default();
        let layout: Layout = serde_json::from_value(layout).unwrap_or_default();
        let stamper = self
            .client
            .stamper_blocking(text("pool"), layout, text("holder"))?;
        self.stamper = Some(stamper);
        Ok(())
    }

    /// Makes ids. Waits if those of the present moment are used up, and for a lease at most this
    /// long.
    fn stamp(&self, count: u64, max_lease_wait: Duration) -> Given {
        let Some(stamper) = &self.stamper else {
            return Given::failed("no stamper");
        };
        let began = Instant::now();
        Given::by(count, || {
            loop {
                match stamper.take() {
                    Err(Error::ClockBehind { wait }) if wait <= MAX_STAMP_WAIT => {
                        thread::sleep(wait);
                    }
                    Err(Error::NoLease { .. }) if began.elapsed() < max_lease_wait => {
                        thread::sleep(MAX_STAMP_WAIT);
                    }
                    taken => return taken,
                }
            }
        })
    }

    /// Asks for ids for so long. Returns how many were refused.
    fn refused(&self, length: Duration) -> u64 {
        let began = Instant::now();
        let mut n_refused = 0;
        while began.elapsed() < length {
            let is_refused = self.stamper.as_ref().is_some_and(|it| it.take().is_err());
            n_refused += u64::from(is_refused);
        }
        n_refused
    }
}

/// The options that take guards out.
const GUARDS: [&str; 3] = [
    "without_fork_hook",
    "without_lease_end",
    "without_reserved_time",
];

/// Takes out the guards that the options name.
fn take_out_guards(options: &Value) -> Result<(), Box<dyn StdError>> {
    let is_asked = |name: &&str| options.get(*name).and_then(Value::as_bool) == Some(true);
    GUARDS.into_iter().filter(is_asked).try_for_each(take_out)
}

#[cfg(feature = "sabotage")]
fn take_out(guard: &str) -> Result<(), Box<dyn StdError>> {
    use odometer_client::sabotage;

    match guard {
        "without_fork_hook" => sabotage::take_out_fork_hook(),
        "without_lease_end" => sabotage::take_out_lease_end(),
        "without_reserved_time" => sabotage::take_out_reserved_time(),
        _ => return Err(format!("{guard} is no guard").into()),
    }
    Ok(())
}

/// Refuses to take a guard out, because this build cannot.
#[cfg(not(feature = "sabotage"))]
fn take_out(guard: &str) -> Result<(), Box<dyn StdError>> {
    Err(format!("{guard}: build the driver with the feature `sabotage`").into())
}

fn at_once(sequence: &Sequence, count: u64) -> Given {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else {
        return Given::failed("no runtime");
    };
    let results = runtime.block_on(join_all((0..count).map(|_| sequence.next())));
    let mut given = Given::default();
    for result in results {
        given.add(result);
    }
    given
}

fn in_threads(sequence: &Sequence, n_threads: u64, count: u64) -> String {
    let take = || Given::by(count, || sequence.next_blocking());
    let mut whole = Given::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(take)).collect();
        for thread in threads {
            let part = thread.join();
            whole.join(part.unwrap_or_else(|_| Given::failed("panic")));
        }
    });
    whole.to_string()
}

fn in_fork(take: impl Fn() -> Given) -> String {
    let given = child::in_both(take).map(|given| given.to_string());
    given.unwrap_or_else(|error| format!("error {error}"))
}

fn unbroken(range: Result<Block, Error>) -> String {
    match range {
        Ok(range) => format!("given {}-{}", range.first(), range.last()),
        Err(error) => format!("given  error {}", error.code()),
    }
}

fn ids(sequence: &Sequence, count: u64) -> String {
    let mut answer = "ids".to_owned();
    for _ in 0..count {
        let (id, has_failed) = match sequence.next_id_blocking() {
            Ok(id) => (id, false),
            Err(error) => (format!("error {}", error.code()), true),
        };
        answer.push(' ');
        answer.push_str(&id);
        if has_failed {
            break;
        }
    }
    answer
}

fn done(outcome: Result<(), Error>) -> String {
    outcome.map_or_else(
        |error| format!("error {}", error.code()),
        |()| "done".to_owned(),
    )
}
