//! Measures one number a call from memory, with each kind of database.

use odometer_tests::{Backend, Server};

use super::single::NEXT;
use crate::{
    cores::Side,
    load::{http::Http, wrk::Wrk},
    pace::Pace,
    row::{Row, Unit},
    stage::{Odometer, Stage},
};

pub(crate) async fn databases(stage: &Stage, pace: Pace) -> Vec<Row> {
    // The database servers have almost nothing to do, and must not use the measured core.
    let cores = &stage.cores;
    let start = |backend| cores.start(Side::Load, Server::start(backend));
    let (postgres, mariadb) = (
        start(Backend::Postgres).await,
        start(Backend::MariaDb).await,
    );
    let on_sqlite = stage.odometer(Backend::Sqlite).await;
    let on_postgres = stage.odometer_on(&postgres).await;
    let on_mariadb = stage.odometer_on(&mariadb).await;
    let beside_load = [postgres.id(), mariadb.id()];
    let ask = |name: &str, odometer: &Odometer| {
        let program = &odometer.program;
        let wrk = Wrk::new(program.address(), NEXT);
        let mut http = Http::new(name, cores, program.id(), wrk);
        http.beside_load = beside_load.to_vec();
        http
    };
    let mut sqlite = ask("Odometer on SQLite", &on_sqlite);
    let mut postgres = ask("Odometer on PostgreSQL", &on_postgres);
    let mut mariadb = ask("Odometer on MariaDB", &on_mariadb);
    let series = pace
        .alternate(&mut [&mut sqlite, &mut postgres, &mut mariadb])
        .await;
    let title = "one number, 64 connections, each database behind it";
    let row = Row::new("databases", title, Unit::RequestsPerSecond).series(series);
    vec![row.note("The processor time of the database server is not counted.")]
}
