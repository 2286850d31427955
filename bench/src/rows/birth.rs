//! Many names: used for the first time, and used in turn.

use std::time::Duration;

use async_trait::async_trait;
use odometer_tests::{Backend, Client};

use crate::{
    cores::{Cores, Side},
    load::{closed, http::Http, wrk::Wrk},
    pace::{Contender, Pace},
    reading::Reading,
    row::{Row, Unit},
    rows::single::NEXT,
    stage::{Odometer, Stage},
    usage,
};

const N_CONNECTIONS: usize = 64;
const N_NAMES: u32 = 100_000;

/// The first number of names that nobody has used before, on each database.
pub(crate) async fn birth(stage: &Stage, pace: Pace) -> Vec<Row> {
    let mut sqlite = Births::start(stage, pace, Backend::Sqlite).await;
    let mut postgres = Births::start(stage, pace, Backend::Postgres).await;
    let mut mariadb = Births::start(stage, pace, Backend::MariaDb).await;
    let contenders: &mut [&mut dyn Contender] = &mut [&mut sqlite, &mut postgres, &mut mariadb];
    let n_names = n_names(pace) * pace.n_rounds();
    let all = pace.alternate(contenders).await;
    let backends = [
        (Backend::Sqlite, "SQLite"),
        (Backend::Postgres, "PostgreSQL"),
        (Backend::MariaDb, "MariaDB"),
    ];
    let row = |((backend, database), series): ((Backend, &str), _)| {
        let title = format!("first use of {n_names} names, each once, 64 connections, {database}");
        let name = format!("birth-{}", backend.name());
        Row::new(&name, &title, Unit::NamesPerSecond).series(vec![series])
    };
    backends.into_iter().zip(all).map(row).collect()
}

/// How long `birth` takes, about.
pub(crate) fn estimate(pace: Pace) -> Duration {
    let turns = u32::try_from(pace.n_rounds() + 1).unwrap_or(u32::MAX);
    3 * turns * pace.of(Duration::from_millis(2_000), Duration::from_millis(500))
}

/// How long `names` takes, about.
pub(crate) fn estimate_of_names(pace: Pace) -> Duration {
    pace.estimate(2) + pace.of(Duration::from_secs(60), Duration::from_secs(1))
}

/// Names of one measurement.
fn n_names(pace: Pace) -> usize {
    pace.of(2_000, 500)
}

/// A program that is asked for names it has never heard of.
struct Births {
    odometer: Odometer,
    cores: Cores,
    clients: Vec<Client>,
    n_names: usize,
    n_born: usize,
}

impl Births {
    async fn start(stage: &Stage, pace: Pace, backend: Backend) -> Self {
        let odometer = stage.odometer(backend).await;
        Self {
            clients: closed::connections(&odometer.program.url(), N_CONNECTIONS),
            odometer,
            cores: stage.cores,
            n_names: n_names(pace),
            n_born: 0,
        }
    }

    /// Uses the next `n_names` for the first time.
    async fn bear(&mut self, n_names: usize) -> Reading {
        let mut names = self.n_born..self.n_born + n_names;
        self.n_born = names.end;
        let process = self.odometer.program.id();
        let before = usage::processor_time(process);
        let path = || Some(format!("/v1/sequences/n{}/next", names.next()?));
        let asked = closed::ask(&self.clients, path);
        let reading = self.cores.start(Side::Load, asked).await;
        let used = usage::processor_time(process).saturating_sub(before);
        Reading {
            cpu_us: Some(used.as_secs_f64() * 1e6 / n_names as f64),
            ..reading
        }
    }
}

#[async_trait(?Send)]
impl Contender for Births {
    fn name(&self) -> &str {
        "Odometer"
    }

    async fn measure(&mut self, _length: Duration) -> Reading {
        self.bear(self.n_names).await
    }
}

/// 100,000 names asked in turn beside one that is asked all the time.
pub(crate) async fn names(stage: &Stage, pace: Pace) -> Vec<Row> {
    let n_names = pace.of(N_NAMES, 1_000);
    let mut births = Births::start(stage, pace, Backend::Sqlite).await;
    let born = births.bear(n_names as usize).await;
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
    let row = Row::new("names", &title, Unit::RequestsPerSecond).series(series);
    vec![row]
}
