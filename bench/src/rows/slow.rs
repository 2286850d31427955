//! Measures what callers of a warm name notice while the database is slow.

use std::time::{Duration, Instant};

use odometer_tests::{Backend, Client, Program, Proxy, Scrape, TestDatabase};
use serde_json::json;

use crate::{
    cores::{Cores, Side},
    load::paced::{Paced, Seen},
    pace::Pace,
    reading::{Reading, Spread},
    row::{Bound, Row, Series, Unit},
    rows::{
        conditions::{CALLS_PER_S, HEALTHY},
        single::NEXT,
    },
    stage::Stage,
    usage::{Meter, Used},
};

/// The numbers of a block, so that the program refills twice a second.
const SLOW_BLOCK: u64 = 2_500;
const DELAYS_MS: [u64; 3] = [1, 10, 100];
/// How long one measurement of a slow or of a healthy database takes. It is long enough for two
/// refills.
const TURN: Duration = Duration::from_secs(1);

/// Measures the latency of warm calls while each reply of the database is late.
pub(crate) async fn slow(stage: &Stage, pace: Pace) -> Vec<Row> {
    let server = stage.server(Backend::Postgres).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared_on(&server).await;
    let options = Program::options()
        .without_speed_limit()
        .database(&database.url_through(&proxy, &server));
    let program = stage.cores.start(Side::Server, options.start_ready()).await;
    let client = program.client();
    let block = json!({"max": SLOW_BLOCK, "hold": "1s", "refill": "1s"});
    client.define("orders", &json!({"block": block})).await;
    let behind = |name: &str, delay_ms| Behind {
        name: name.to_owned(),
        cores: stage.cores,
        proxy: &proxy,
        delay: Duration::from_millis(delay_ms),
        client: client.clone(),
        servers: [program.id(), server.id()],
        load: Paced::new(program.address(), NEXT, CALLS_PER_S),
    };
    let mut rows = Vec::new();
    for delay_ms in DELAYS_MS {
        let (slow, healthy) = (behind("Odometer", delay_ms), behind(HEALTHY, 0));
        let n_turns = n_turns(delay_ms);
        let series = interleaved(pace, n_turns, &slow, &healthy).await;
        let title = format!(
            "p99 of one number, 5,000 calls/s over 64 connections, 2 refills/s, \
             each reply of PostgreSQL {delay_ms} ms late"
        );
        let row = Row::new(&format!("slow-{delay_ms}"), &title, Unit::Microseconds);
        let row = row.series(series).note(format!(
            "A call is timed from when it was to be sent. Both take turns of a second, {n_turns} in \
             a round, and a round counts with the median of its turns' p99. `block.max` is \
             {SLOW_BLOCK}, and `block.hold` and `block.refill` are 1 s, because otherwise nothing \
             would be fetched meanwhile. PostgreSQL shares Odometer's core."
        ));
        rows.push(match delay_ms {
            100 => row.target(HEALTHY, Bound::AtMost(1.1)),
            _ => row,
        });
    }
    rows
}

/// Returns about how long `slow` takes.
pub(crate) fn estimate(pace: Pace) -> Duration {
    let n_turns: u32 = DELAYS_MS.iter().map(|delay_ms| n_turns(*delay_ms)).sum();
    let n_rounds = u32::try_from(pace.n_rounds()).unwrap_or(u32::MAX);
    let turn = TURN + Duration::from_millis(50);
    Duration::from_secs(5) + 2 * n_turns * n_rounds * turn
}

/// Returns how often each side is measured in a round. The row with a target has more measurements.
fn n_turns(delay_ms: u64) -> u32 {
    if delay_ms == 100 { 20 } else { 5 }
}

/// A program behind a proxy that delays the replies of its database.
struct Behind<'a> {
    name: String,
    cores: Cores,
    proxy: &'a Proxy,
    delay: Duration,
    client: Client,
    /// The processes that share the measured core.
    servers: [u32; 2],
    load: Paced,
}

/// The outcome of the measurements of one side.
#[derive(Default)]
struct Turns {
    seen: Seen,
    /// The 99th percentile of each measurement, in microseconds.
    p99s: Vec<f64>,
    n_refills: f64,
    n_cold: f64,
    used: Used,
    took: Duration,
}

impl Behind<'_> {
    /// Makes calls for one measurement, and adds the outcome to `turns`.
    async fn take_turn(&self, turns: &mut Turns) {
        self.proxy.delay_replies(self.delay);
        let before = Scrape::of(&self.client).await;
        let (meter, started) = (Meter::start(&self.servers, &[]), Instant::now());
        let calls = self.load.calls(TURN);
        let seen = self.cores.start(Side::Load, calls).await;
        turns.took += started.elapsed();
        turns.used = turns.used.and(meter.used());
        turns.p99s.push(seen.latency().p99);
        turns.seen.add(seen);
        let after = Scrape::of(&self.client).await;
        let n_refills = |scrape: &Scrape| scrape.n_reservations("reserved");
        let n_cold = |scrape: &Scrape| scrape.sum("odometer_cold_calls_total", &[]);
        turns.n_refills += n_refills(&after) - n_refills(&before);
        turns.n_cold += n_cold(&after) - n_cold(&before);
    }
}

impl Turns {
    fn reading(self, n_turns: u32) -> Reading {
        let Self {
            seen,
            p99s,
            n_refills,
            n_cold,
            used,
            took,
        } = self;
        // At least half of the refills that these calls need must have happened.
        let n_used = CALLS_PER_S * (n_turns * TURN).as_secs_f64();
        let n_expected = n_used / SLOW_BLOCK as f64;
        assert!(
            n_refills >= n_expected / 2.0,
            "vacuous: {n_refills} refills"
        );
        let reading = Reading {
            value: Spread::of(p99s).map_or(f64::NAN, |p99| p99.median),
            busy: Some(used.busy(took, 1.0)),
            ..seen.reading()
        };
        reading
            .figure("refills", n_refills)
            .figure("cold_calls", n_cold)
    }
}

/// Measures both sides alternately, a second each. Something may hold up the whole machine for some
/// milliseconds, about as often as one call in a hundred is due. This spoils the seconds that it
/// falls into, but not the round.
async fn interleaved(
    pace: Pace,
    n_turns: u32,
    slow: &Behind<'_>,
    healthy: &Behind<'_>,
) -> Vec<Series> {
    let sides = [slow, healthy];
    let mut series = sides.map(|side| Series::new(&side.name, Vec::new()));
    for side in sides {
        // This measurement warms up the side and does not count.
        side.take_turn(&mut Turns::default()).await;
    }
    for _ in 0..pace.n_rounds() {
        let mut rounds = [Turns::default(), Turns::default()];
        for _ in 0..n_turns {
            for (side, turns) in sides.iter().zip(&mut rounds) {
                side.take_turn(turns).await;
            }
        }
        for (series, turns) in series.iter_mut().zip(rounds) {
            series.readings.push(turns.reading(n_turns));
        }
    }
    series.into()
}
