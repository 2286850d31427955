//! Measures what callers of a warm name notice while the database is away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use odometer_tests::{Backend, Client, Program, Scrape, Server, TestDatabase, wait};
use tokio::{sync::oneshot, task::JoinHandle, time::MissedTickBehavior};

use crate::{
    cores::{Cores, Side},
    load::paced::Paced,
    pace::Pace,
    reading::Reading,
    row::{Bound, Moment, Presence, Row, Series, Unit},
    rows::{
        conditions::{CALLS_PER_S, HEALTHY},
        single::NEXT,
    },
    stage::Stage,
    usage::Meter,
};

/// When the database is killed, the numbers in memory last this much longer than the outage.
const MARGIN: Duration = Duration::from_secs(15);
const WARM_LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Measures the latency of warm calls while the database is away.
pub(crate) async fn away(stage: &Stage, pace: Pace) -> Vec<Row> {
    let mut server = stage.server(Backend::Postgres).await;
    let database = TestDatabase::prepared_on(&server).await;
    let options = Program::options()
        .without_speed_limit()
        .database(&database.url);
    let program = stage.cores.start(Side::Server, options.start_ready()).await;
    let warm = Warm {
        cores: stage.cores,
        client: program.client(),
        load: Paced::new(program.address(), NEXT, CALLS_PER_S),
        program: program.id(),
    };
    let outage = outage(pace);
    let needed = outage + MARGIN;
    let started = Instant::now();
    let mut unmeasured = warm.use_until_it_lasts(needed).await;
    let warm_up = started.elapsed();
    let (mut healthy, mut away) = (Vec::new(), Vec::new());
    let watch = Watch::start(program.client());
    // The picture shows the first outage and the time around it.
    let mut shown_s = f64::INFINITY;
    for round in 0..pace.n_rounds() {
        // Of the calls in `unmeasured`, only the failures count.
        healthy.push(
            warm.measure(between(pace), Some(&server))
                .await
                .and_failures_of(&unmeasured),
        );
        if round == 1 {
            shown_s = watch.started.elapsed().as_secs_f64();
        }
        server.kill();
        watch.is_away.store(true, Ordering::Relaxed);
        let reading = warm.measure(outage, None).await;
        let store_up = warm.store_up().await;
        stage.cores.start(Side::Server, server.start_again()).await;
        watch.is_away.store(false, Ordering::Relaxed);
        // The latency of calls during the recovery counts for neither series. Failures during the
        // recovery count for the outage.
        let recovery = warm.use_until_it_lasts(needed).await;
        let reading = reading.figure("store_up_at_its_end", store_up);
        away.push(reading.and_failures_of(&recovery));
        unmeasured = Reading::default();
    }
    let outage_s = outage.as_secs();
    let title = format!(
        "p99 of one number, 5,000 calls/s over 64 connections, PostgreSQL killed for {outage_s} s"
    );
    let note = format!(
        "A call is timed from when it was to be sent. Blocks have their default sizes. A name used \
         for the first time had numbers for {} s in memory after {:.0} s of this load. PostgreSQL \
         shares Odometer's core, also while PostgreSQL recovers. Calls during the recovery count \
         only if they failed. Measured for {outage_s} s away and {} s healthy.",
        needed.as_secs(),
        warm_up.as_secs_f64(),
        between(pace).as_secs()
    );
    let mut row = Row::new("away", &title, Unit::Microseconds)
        .series(vec![
            Series::new("Odometer", away),
            Series::new(HEALTHY, healthy),
        ])
        .target(HEALTHY, Bound::AtMost(1.1))
        .note(note);
    row.timeline = watch.end().await;
    row.timeline.retain(|moment| moment.at_s <= shown_s);
    vec![row]
}

/// Returns about how long `away` takes.
pub(crate) fn estimate(pace: Pace) -> Duration {
    let n_rounds = u32::try_from(pace.n_rounds()).unwrap_or(u32::MAX);
    let around = Duration::from_secs(5);
    3 * around + n_rounds * (between(pace) + outage(pace) + around)
}

fn outage(pace: Pace) -> Duration {
    pace.of(Duration::from_secs(60), Duration::from_secs(3))
}

/// Returns how long the database is there between two outages, at least.
fn between(pace: Pace) -> Duration {
    pace.of(Duration::from_secs(15), Duration::from_secs(1))
}

/// A program, and the callers of its only name.
struct Warm {
    cores: Cores,
    client: Client,
    load: Paced,
    /// The process of the program.
    program: u32,
}

impl Warm {
    /// Measures for `length`. If the database server runs, it shares the measured core.
    async fn measure(&self, length: Duration, server: Option<&Server>) -> Reading {
        let servers: Vec<u32> = server
            .map(Server::id)
            .into_iter()
            .chain([self.program])
            .collect();
        let (meter, started) = (Meter::start(&servers, &[]), Instant::now());
        let reading = self.cores.start(Side::Load, self.load.run(length)).await;
        Reading {
            busy: Some(meter.used().busy(started.elapsed(), 1.0)),
            ..reading
        }
    }

    /// Returns 1 if the program reports that its database can be reached, and else 0.
    async fn store_up(&self) -> f64 {
        Scrape::of(&self.client).await.sum("odometer_store_up", &[])
    }

    /// Calls until the database answers and the program reports that memory lasts for `needed`.
    /// Returns the calls, with how many of them failed.
    async fn use_until_it_lasts(&self, needed: Duration) -> Reading {
        let mut all = Reading::default();
        wait::until("memory holds enough", WARM_LIMIT, async || {
            let second = self.measure(Duration::from_secs(1), None).await;
            all = std::mem::take(&mut all).and_failures_of(&second);
            let scrape = Scrape::of(&self.client).await;
            let reserve = scrape.sum("odometer_reserve_seconds", &[("sequence", "orders")]);
            let is_up = scrape.sum("odometer_store_up", &[]) == 1.0;
            (is_up && reserve >= needed.as_secs_f64()).then_some(())
        })
        .await;
        all
    }
}

/// Looks at a program each second until the watch ends.
struct Watch {
    started: Instant,
    is_away: Arc<AtomicBool>,
    end: oneshot::Sender<()>,
    looking: JoinHandle<Vec<Moment>>,
}

impl Watch {
    fn start(client: Client) -> Self {
        let (end, ended) = oneshot::channel();
        let is_away = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let looking = look(client, started, Arc::clone(&is_away), ended);
        Self {
            started,
            is_away,
            end,
            looking: tokio::spawn(looking),
        }
    }

    async fn end(self) -> Vec<Moment> {
        // The task receives this message as long as it looks.
        let _listens = self.end.send(());
        self.looking.await.expect("no panic")
    }
}

async fn look(
    client: Client,
    started: Instant,
    is_away: Arc<AtomicBool>,
    mut ended: oneshot::Receiver<()>,
) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut ticks = tokio::time::interval(BETWEEN_LOOKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before_s, mut n_before) = (0.0, n_issued(&client).await);
    let mut remaining = in_memory(&client).await;
    // The first tick comes at once.
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut ended => return moments,
        }
        let n_issued = n_issued(&client).await;
        let at_s = started.elapsed().as_secs_f64();
        // While the program does not know yet that the database is away, this call also asks the
        // database. In this time memory gets no new numbers, so the numbers that were issued are
        // subtracted.
        let state = tokio::time::timeout(BETWEEN_LOOKS / 4, in_memory(&client)).await;
        let is_computed = state.is_err();
        remaining = state.unwrap_or(remaining - (n_issued - n_before));
        moments.push(Moment {
            at_s,
            remaining,
            is_computed,
            issued_per_s: (n_issued - n_before) / (at_s - before_s),
            database: match is_away.load(Ordering::Relaxed) {
                true => Presence::Away,
                false => Presence::Up,
            },
        });
        (before_s, n_before) = (at_s, n_issued);
    }
}

async fn n_issued(client: &Client) -> f64 {
    let scrape = Scrape::of(client).await;
    scrape.sum("odometer_numbers_issued_total", &[("sequence", "orders")])
}

/// Returns how many numbers the program holds in memory.
async fn in_memory(client: &Client) -> f64 {
    let state = client.describe("orders").await["state"].take();
    let held = |block: &str| state[block]["remaining"].as_f64().unwrap_or(0.0);
    held("block") + held("next_block")
}
