//! Measures many replicas that take numbers of one name from one database.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use odometer_tests::{Backend, Client, Program, Scrape, Server, TestDatabase};
use serde_json::json;

use crate::{
    cores::Side,
    load::{
        closed,
        paced::{ConnectionOrder, Paced, PacingMode},
    },
    pace::Pace,
    reading::Reading,
    row::{Bound, Row, Series, Unit},
    stage::Stage,
    usage::Meter,
};

const N_ISSUERS: usize = 32;
const CONNECTIONS_EACH: usize = 2;
/// The numbers a second of all replicas together.
const NUMBERS_PER_S: f64 = 20_000.0;
/// The numbers of a call. Batches need fewer calls, so that 32 programs, their database and the
/// callers fit on two cores.
const COUNT: u32 = 5;
/// The numbers that each issuer uses in a second. If blocks grew larger, they would last for the
/// rest of the run, and there would be no updates to count.
const BLOCK_MAX: u64 = 625;
/// The block size of the closed loop, so that each call takes one block.
const CLOSED_BLOCK: u64 = 100;

/// Measures 32 issuers of one name, at a fixed pace and in a closed loop.
pub(crate) async fn crowd(stage: &Stage, pace: Pace) -> Vec<Row> {
    let start = Server::start(Backend::Postgres);
    let server = stage.cores.start(Side::Anywhere, start).await;
    let crowd = Crowd::start(stage, &server).await;
    let (mut updates, mut fairness, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    let n_rounds = pace.n_rounds();
    for round in 0..n_rounds {
        let name = format!("paced-{round}");
        let (of_updates, of_fairness) = crowd.paced(&name, length(pace)).await;
        updates.push(of_updates);
        fairness.push(of_fairness);
        let name = format!("closed-{round}");
        closed.push(crowd.closed(&name, pace.length()).await);
    }
    let title = |what: &str| {
        format!("{what}, 32 replicas issuing 20,000 numbers/s of one name together, PostgreSQL")
    };
    let series = |readings| vec![Series::new("Odometer", readings)];
    let together = "Replicas, PostgreSQL and callers share all cores.";
    let length_s = length(pace).as_secs();
    let note = format!(
        "{n_rounds} rounds of {length_s} s, without the first second of each. `block.min` is 100 \
         and `block.max` is {BLOCK_MAX}, so each replica refills about once a second. Larger blocks \
         would leave nothing to count. Reads of the counter are not counted. {together}"
    );
    let of_updates = title("conditional updates a success");
    let of_fairness = title("least numbers of a replica, divided by the mean");
    let of_closed =
        "32 replicas, each caller asks for a whole block of 100 again at once, PostgreSQL";
    vec![
        Row::new("crowd-updates", &of_updates, Unit::Count)
            .series(series(updates))
            .limit(Bound::AtMost(1.5))
            .note(note.clone()),
        Row::new("crowd-fairness", &of_fairness, Unit::Count)
            .series(series(fairness))
            .limit(Bound::AtLeast(0.25))
            .note(
                "All replicas are offered the same load. The raw figures show what the least got in \
                 the closed loop.",
            ),
        Row::new("crowd-closed", of_closed, Unit::NumbersPerSecond)
            .series(series(closed))
            .note(format!("{n_rounds} rounds. {together}")),
    ]
}

/// Returns about how long `crowd` takes.
pub(crate) fn estimate(pace: Pace) -> Duration {
    let start = Duration::from_secs(12);
    start + pace.of(5, 1) * (length(pace) + pace.length() + Duration::from_secs(1))
}

fn length(pace: Pace) -> Duration {
    pace.of(Duration::from_secs(10), Duration::from_secs(3))
}

/// 32 programs on one database.
struct Crowd {
    /// One client for each program.
    clients: Vec<Client>,
    /// Several clients for each program, each with a connection of its own.
    connections: Vec<Client>,
    /// The address of each connection.
    addresses: Vec<String>,
    /// The processes of the programs and of their database server.
    servers: Vec<u32>,
    /// The cores that these processes share with the callers.
    n_cores: f64,
    _programs: Vec<Program>,
    _database: TestDatabase,
}

/// The counts of one issuer.
#[derive(Clone, Copy, Debug)]
struct Counted {
    n_reserved: f64,
    n_updates: f64,
    n_issued: f64,
}

impl Crowd {
    async fn start(stage: &Stage, server: &Server) -> Self {
        let database = TestDatabase::prepared_on(server).await;
        let options = Program::options()
            .without_speed_limit()
            .env("ODOMETER_HTTP__WORKERS", 1)
            .database(&database.url);
        let mut programs = Vec::new();
        for _ in 0..N_ISSUERS {
            programs.push(options.start_ready().await);
        }
        let connected =
            || (0..N_ISSUERS * CONNECTIONS_EACH).map(|number| &programs[number % N_ISSUERS]);
        Self {
            addresses: connected()
                .map(|program| program.address().to_owned())
                .collect(),
            connections: connected().map(Program::client).collect(),
            clients: programs.iter().map(Program::client).collect(),
            servers: programs
                .iter()
                .map(Program::id)
                .chain([server.id()])
                .collect(),
            n_cores: stage.cores.n_all(),
            _programs: programs,
            _database: database,
        }
    }

    /// Measures a new name at a steady rate. Returns the conditional updates for each success, and
    /// the smallest share of a replica.
    async fn paced(&self, name: &str, length: Duration) -> (Reading, Reading) {
        let block = json!({"min": 100, "max": BLOCK_MAX});
        self.clients[0].define(name, &json!({"block": block})).await;
        let load = Paced {
            addresses: self.addresses.clone(),
            path: format!("/v1/sequences/{name}/next?count={COUNT}"),
            calls_per_s: NUMBERS_PER_S / f64::from(COUNT),
            waiting: PacingMode::Asleep,
            turn: ConnectionOrder::AtRandom,
        };
        let looks = async {
            let start = self.look(name).await;
            let first_second = Duration::from_secs(1);
            tokio::time::sleep(first_second).await;
            let second = self.look(name).await;
            let looked = Instant::now();
            // The last look is a little before the end, so that no replica catches up with late
            // calls after the load.
            tokio::time::sleep(length - first_second - Duration::from_millis(200)).await;
            let end = self.look(name).await;
            (start, second, end, looked.elapsed())
        };
        let (meter, started) = (Meter::start(&self.servers, &[]), Instant::now());
        let (reading, (start, second, end, took)) = tokio::join!(load.run(length), looks);
        let busy = meter.used().busy(started.elapsed(), self.n_cores);
        let later = since(&second, &end);
        let n_refills: f64 = later.iter().map(|counted| counted.n_reserved).sum();
        let n_issued: f64 = later.iter().map(|counted| counted.n_issued).sum();
        let numbers_per_s = n_issued / took.as_secs_f64();
        let is_meant = n_refills >= least_refills(took) && numbers_per_s >= 0.9 * NUMBERS_PER_S;
        assert!(
            is_meant,
            "vacuous: {n_refills} refills, {numbers_per_s:.0} numbers/s"
        );
        let of_calls = |value| Reading {
            latency: reading.latency,
            n_requests: reading.n_requests,
            n_failed: reading.n_failed,
            busy: Some(busy),
            ..Reading::of(value)
        };
        let updates = of_calls(updates_a_success(&later))
            .figure("refills", n_refills)
            .figure("numbers_per_s", numbers_per_s)
            .figure("first_second", updates_a_success(&since(&start, &second)));
        let mean = n_issued / N_ISSUERS as f64;
        let fairness = of_calls(least_share(&later)).figure("mean_numbers", mean);
        (updates, fairness)
    }

    /// Measures numbers a second if every call takes a whole block and the next call follows at
    /// once.
    async fn closed(&self, name: &str, length: Duration) -> Reading {
        let block = json!({"min": CLOSED_BLOCK, "max": CLOSED_BLOCK});
        self.clients[0].define(name, &json!({"block": block})).await;
        let path = format!("/v1/sequences/{name}/next?count={CLOSED_BLOCK}");
        let start = self.look(name).await;
        let (meter, started) = (Meter::start(&self.servers, &[]), Instant::now());
        let reading = closed::ask(&self.connections, closed::for_a_while(&path, length)).await;
        let busy = meter.used().busy(started.elapsed(), self.n_cores);
        let counted = since(&start, &self.look(name).await);
        let value = reading.value * CLOSED_BLOCK as f64;
        let reading = Reading {
            value,
            busy: Some(busy),
            ..reading
        };
        reading
            .figure("updates_a_success", updates_a_success(&counted))
            .figure("least_share", least_share(&counted))
    }

    /// Returns what each issuer has counted so far.
    async fn look(&self, name: &str) -> Vec<Counted> {
        join_all(self.clients.iter().map(async |client| {
            let scrape = Scrape::of(client).await;
            let n_reserved = scrape.n_reservations("reserved");
            let failed = ["conflict", "not_committed", "uncertain"];
            let n_failed: f64 = failed
                .map(|outcome| scrape.n_reservations(outcome))
                .iter()
                .sum();
            Counted {
                n_reserved,
                n_updates: n_reserved + n_failed,
                n_issued: scrape.sum("odometer_numbers_issued_total", &[("sequence", name)]),
            }
        }))
        .await
    }
}

fn since(before: &[Counted], now: &[Counted]) -> Vec<Counted> {
    let pairs = before.iter().zip(now);
    pairs
        .map(|(before, now)| Counted {
            n_reserved: now.n_reserved - before.n_reserved,
            n_updates: now.n_updates - before.n_updates,
            n_issued: now.n_issued - before.n_issued,
        })
        .collect()
}

/// Returns half of the refills that the replicas need with blocks of the largest size.
fn least_refills(length: Duration) -> f64 {
    length.as_secs_f64() * NUMBERS_PER_S / BLOCK_MAX as f64 / 2.0
}

/// Returns the fewest numbers that an issuer issued, divided by the mean.
fn least_share(counted: &[Counted]) -> f64 {
    let issued = counted.iter().map(|counted| counted.n_issued);
    let mean = issued.clone().sum::<f64>() / counted.len() as f64;
    issued.fold(f64::INFINITY, f64::min) / mean
}

fn updates_a_success(counted: &[Counted]) -> f64 {
    let n_updates: f64 = counted.iter().map(|counted| counted.n_updates).sum();
    n_updates
        / counted
            .iter()
            .map(|counted| counted.n_reserved)
            .sum::<f64>()
}
