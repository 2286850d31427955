//! Measures what other callers notice of connections that never end a request or read no reply.

use std::time::{Duration, Instant};

use odometer_tests::{Backend, Options, Program, Scrape, wait};
use serde_json::json;

use super::{conditions::CALLS_PER_S, single::NEXT};
use crate::{
    cores::{Cores, Side},
    load::{
        hostile::{Endings, HostileConnections, HostileKind, N_EACH, SEQUENCE},
        paced::Paced,
    },
    pace::Pace,
    reading::{Busy, Reading},
    row::{Bound, Row, Series, Unit},
    stage::Stage,
    usage::Meter,
};

const ALONE: &str = "the same without hostile connections";
/// The size of the blocks of the hostile callers' sequence. No reply to them waits for the
/// database.
const BLOCK: u32 = 10_000_000;
/// How long the calls that do not count take.
const WARM: Duration = Duration::from_secs(1);
/// How long a round may go on until a connection of each kind has ended, if the machine is busy.
const GRACE: Duration = Duration::from_secs(30);
/// How long the program may take to notice that the hostile connections are gone. It does not read
/// on connections whose head is too large, so it notices their end at `http.head`.
const GONE_LIMIT: Duration = Duration::from_secs(30);

/// Measures the latency of warm calls while ten connections of each hostile kind are held.
pub(crate) async fn hostile(stage: &Stage, pace: Pace) -> Vec<Row> {
    let options = options(pace);
    let odometer = stage
        .odometer_with(Backend::Sqlite, Side::Server, options)
        .await;
    let program = &odometer.program;
    let block = json!({"min": BLOCK, "max": BLOCK});
    program
        .client()
        .define(SEQUENCE, &json!({"block": block}))
        .await;
    program.client().next(SEQUENCE).await;
    let attacked = Attacked {
        cores: stage.cores,
        program,
        load: Paced::new(program.address(), NEXT, CALLS_PER_S),
        hostile: HostileConnections {
            address: program.address().to_owned(),
        },
    };
    let length = length(pace);
    let without_calls = attacked.busy_without_calls(length).await;
    // This measurement warms up and does not count.
    attacked.alone(WARM).await;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut all = Endings::default();
    for _ in 0..pace.n_rounds() {
        attacked.until_gone().await;
        without.push(attacked.alone(length).await);
        let (reading, endings) = attacked.with_hostile(length).await;
        all.add(&endings);
        with.push(
            reading
                .figure("cut_off", endings.n_cut_off() as f64)
                .figure("refused", endings.n_refused() as f64),
        );
    }
    all.check();
    let n_hostile = HostileKind::ALL.len() * N_EACH;
    let title = format!(
        "p99 of one number, 5,000 calls/s over 64 connections, next to {n_hostile} hostile \
         connections"
    );
    let row = Row::new("hostile", &title, Unit::Microseconds)
        .series(vec![
            Series::new("Odometer", with),
            Series::new(ALONE, without),
        ])
        .target(ALONE, Bound::AtMost(2.0))
        .note(note(pace, &all, without_calls));
    vec![row]
}

/// Returns about how long `hostile` takes.
pub(crate) fn estimate(pace: Pace) -> Duration {
    let n_rounds = u32::try_from(pace.n_rounds()).unwrap_or(u32::MAX);
    // The program notices the end of all connections, and at the quick pace a round waits until it
    // has ended one of each kind.
    let around = pace.of(Duration::from_secs(6), Duration::from_secs(4));
    length(pace) + WARM + n_rounds * (2 * length(pace) + around)
}

/// Returns how long one measurement takes. At the whole pace, this is longer than the program leaves
/// a hostile connection open.
fn length(pace: Pace) -> Duration {
    pace.of(Duration::from_secs(15), Duration::from_secs(2))
}

/// Returns the options of the program. At the quick pace, it ends hostile connections earlier.
fn options(pace: Pace) -> Options {
    match pace {
        Pace::Whole => Program::options(),
        Pace::Quick => Program::options()
            .env("ODOMETER_HTTP__HEAD", "2s")
            .env("ODOMETER_HTTP__BODY", "500ms")
            .env("ODOMETER_HTTP__WRITE", "1s"),
    }
}

fn note(pace: Pace, endings: &Endings, without_calls: Busy) -> String {
    let percent = |share: f64| share * 100.0;
    format!(
        "A call is timed from when it was to be sent. Both take turns of {} s. Hostile connections \
         make one call each, and then misbehave until the program ends them. {N_EACH} send one byte \
         of a request, {N_EACH} a head byte by byte, and {N_EACH} a chunked body without end. \
         {N_EACH} send a head of 120 KB at once, and {N_EACH} in parts. {N_EACH} ask 100 times for \
         10,000 numbers, and read no reply. When one ends, a new one takes its place. In all rounds \
         {} were cut off without a reply, and {} got 400 for their body. Without other calls, the \
         hostile connections kept the program's core {:.1} % busy, and the client's {:.1} %. Their \
         sequence has a `block.min` of {BLOCK}.{}",
        length(pace).as_secs(),
        endings.n_cut_off(),
        endings.n_refused(),
        percent(without_calls.server),
        percent(without_calls.client.unwrap_or(f64::NAN)),
        pace.of(
            "",
            " `http.head` is 2 s, `http.body` 500 ms, and `http.write` 1 s."
        )
    )
}

/// A program that gets calls at fixed times, with or without hostile connections.
struct Attacked<'a> {
    cores: Cores,
    program: &'a Program,
    load: Paced,
    hostile: HostileConnections,
}

impl Attacked<'_> {
    /// Measures calls without hostile connections.
    async fn alone(&self, length: Duration) -> Reading {
        self.cores.start(Side::Load, self.calls(length)).await
    }

    /// Measures calls with hostile connections, which run in this thread as the calls do.
    async fn with_hostile(&self, length: Duration) -> (Reading, Endings) {
        let both = async { tokio::join!(self.calls(length), self.hostile.run(length, GRACE)) };
        self.cores.start(Side::Load, both).await
    }

    async fn calls(&self, length: Duration) -> Reading {
        let servers = [self.program.id()];
        let (meter, started) = (Meter::start(&servers, &[]), Instant::now());
        let reading = self.load.run(length).await;
        Reading {
            busy: Some(meter.used().busy(started.elapsed(), 1.0)),
            ..reading
        }
    }

    /// Holds the hostile connections without other calls. Returns how busy both cores were.
    async fn busy_without_calls(&self, length: Duration) -> Busy {
        let servers = [self.program.id()];
        let (meter, started) = (Meter::start(&servers, &[]), Instant::now());
        let held = self.hostile.run(length, Duration::ZERO);
        self.cores.start(Side::Load, held).await;
        meter.used().busy(started.elapsed(), 1.0)
    }

    /// Waits until the program has no connection but the one that asks for this.
    async fn until_gone(&self) {
        let what = "the program has noticed that the hostile connections are gone";
        wait::until(what, GONE_LIMIT, async || {
            // A client that asks again before its connection is free opens a second connection, and
            // keeps both. So each look has a client of its own.
            let scrape = Scrape::of(&self.program.client()).await;
            (scrape.sum("odometer_http_connections", &[]) <= 1.0).then_some(())
        })
        .await;
    }
}
