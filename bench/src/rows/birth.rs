//! Measures many names: their first use, and calls for them in turn.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use odometer_tests::{Backend, Client, Program, Scrape, Server, wait};

use crate::{
    cores::{Cores, Side},
    load::{N_CONNECTIONS, closed, http::Http, wrk::Wrk},
    pace::{Contender, Pace},
    reading::Reading,
    row::{Row, Unit},
    rows::{conditions::STARTS, single::NEXT},
    stage::{Odometer, Stage},
    usage::{self, Meter},
};

const N_NAMES: u32 = 100_000;
/// The numbers of a name's first block if all names must be warm. With the default of 1, each name
/// would reserve two more blocks at once, which takes long for 100,000 names.
const FIRST_BLOCK: u64 = 1_000;
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// Measures the first number of names that were never used before, on each database.
pub(crate) async fn birth(stage: &Stage, pace: Pace) -> Vec<Row> {
    let n_names = n_names(pace) * pace.n_rounds();
    let backends = [
        (Backend::Sqlite, "SQLite"),
        (Backend::Postgres, "PostgreSQL"),
        (Backend::MariaDb, "MariaDB"),
    ];
    // At the quick pace, starting the servers would take longer than everything else.
    let backends = &backends[..pace.of(3, 1)];
    let mut births = Vec::new();
    for &(backend, _) in backends {
        births.push(NameCreation::start(stage, pace, backend).await);
    }
    let mut contenders: Vec<&mut dyn Contender> = births
        .iter_mut()
        .map(|births| births as &mut dyn Contender)
        .collect();
    let all = pace.alternate(&mut contenders).await;
    let row = |(&(backend, database), series): (&(Backend, &str), _)| {
        let title = format!("first use of {n_names} names, each once, 64 connections, {database}");
        let name = format!("birth-{}", backend.name());
        let row = Row::new(&name, &title, Unit::NamesPerSecond).series(vec![series]);
        match backend {
            Backend::Sqlite => row,
            Backend::Postgres | Backend::MariaDb => {
                row.note("Odometer shares its one core with the database.")
            }
        }
    };
    backends.iter().zip(all).map(row).collect()
}

/// Returns about how long `birth` takes.
pub(crate) fn estimate(pace: Pace) -> Duration {
    let turns = u32::try_from(pace.n_rounds() + 1).unwrap_or(u32::MAX);
    // This includes the wait until everything is written.
    let turn = pace.of(Duration::from_millis(3_000), Duration::from_millis(700));
    pace.of(3 * turns * turn + STARTS, turns * turn)
}

/// Returns about how long `names` takes.
pub(crate) fn estimate_of_names(pace: Pace) -> Duration {
    pace.estimate(2) + pace.of(Duration::from_secs(60), Duration::from_secs(1))
}

/// Returns how many names one measurement uses.
fn n_names(pace: Pace) -> usize {
    pace.of(2_000, 500)
}

/// A program that is asked for names that it does not know.
struct NameCreation {
    odometer: Odometer,
    /// The server of the program's database, if it has one.
    server: Option<Server>,
    cores: Cores,
    clients: Vec<Client>,
    n_names: usize,
    n_created: usize,
}

impl NameCreation {
    async fn start(stage: &Stage, pace: Pace, backend: Backend) -> Self {
        if backend == Backend::Sqlite {
            return Self::of(stage, pace, stage.odometer(backend).await, None);
        }
        let server = stage.server(backend).await;
        let odometer = stage.odometer_on(&server).await;
        Self::of(stage, pace, odometer, Some(server))
    }

    fn of(stage: &Stage, pace: Pace, odometer: Odometer, server: Option<Server>) -> Self {
        Self {
            server,
            clients: closed::connections(&odometer.program.url(), N_CONNECTIONS),
            odometer,
            cores: stage.cores,
            n_names: n_names(pace),
            n_created: 0,
        }
    }

    /// Uses the next `n_names` names for the first time. Waits for the work that these calls start.
    /// The processor time of this work counts, but its duration does not.
    async fn create(&mut self, n_names: usize) -> Reading {
        let mut names = self.n_created..self.n_created + n_names;
        self.n_created = names.end;
        let process = self.odometer.program.id();
        let before = usage::processor_time(process);
        let servers: Vec<u32> = self
            .server
            .iter()
            .map(Server::id)
            .chain([process])
            .collect();
        let (meter, started) = (Meter::start(&servers, &[]), Instant::now());
        let path = || Some(format!("/v1/sequences/n{}/next", names.next()?));
        let asked = closed::ask(&self.clients, path);
        let reading = self.cores.start(Side::Load, asked).await;
        let busy = meter.used().busy(started.elapsed(), 1.0);
        self.settle().await;
        let used = usage::processor_time(process).saturating_sub(before);
        Reading {
            cpu_us: Some(used.as_secs_f64() * 1e6 / n_names as f64),
            busy: Some(busy),
            ..reading
        }
    }

    /// Waits until everything that the calls started is written.
    async fn settle(&self) {
        let client = &self.clients[0];
        wait::until("all is written", SETTLE_LIMIT, async || {
            let scrape = Scrape::of(client).await;
            let under_way = ["odometer_reservations_in_flight", "odometer_journal_queue"];
            let n_under_way: f64 = under_way.map(|name| scrape.sum(name, &[])).iter().sum();
            (n_under_way == 0.0).then_some(())
        })
        .await;
    }
}

#[async_trait(?Send)]
impl Contender for NameCreation {
    fn name(&self) -> &str {
        "Odometer"
    }

    async fn measure(&mut self, _length: Duration) -> Reading {
        self.create(self.n_names).await
    }
}

/// Measures 100,000 names that are asked in turn, next to one name that is asked all the time.
pub(crate) async fn names(stage: &Stage, pace: Pace) -> Vec<Row> {
    let n_names = pace.of(N_NAMES, 1_000);
    let options = Program::options().env("ODOMETER_DEFAULT__BLOCK__MIN", FIRST_BLOCK);
    let odometer = stage.odometer_with(Backend::Sqlite, Side::Server, options);
    let mut births = NameCreation::of(stage, pace, odometer.await, None);
    let born = births.create(n_names as usize).await;
    assert_eq!(born.n_failed, 0, "a name was not born");
    let program = &births.odometer.program;
    let asked = |name: &str, path: &str| {
        let wrk = Wrk::new(program.address(), path);
        Http::new(name, &stage.cores, program.id(), wrk)
    };
    let mut many = asked("Odometer", "/v1/sequences/NAME/next");
    many.wrk.n_names = n_names;
    let mut one = asked("the same, one name", NEXT);
    let series = pace.alternate(&mut [&mut many, &mut one]).await;
    let title = format!("one number, {n_names} names in turn, 64 connections");
    let note = format!(
        "All names were used once before, with `default.block.min` {FIRST_BLOCK}, so each has \
         numbers in memory. Their first use ran at {:.0} names/s.",
        born.value
    );
    let row = Row::new("names", &title, Unit::RequestsPerSecond).series(series);
    vec![row.note(note)]
}
