//! Measures strict order, in which every number is a write. The references are the same server's
//! own sequence and table.

use odometer_tests::Backend;
use serde_json::json;

use super::single::NEXT;
use crate::{
    load::{
        http::Http,
        sql::{self, Way},
        wrk::Wrk,
    },
    pace::Pace,
    row::{Row, Unit},
    stage::Stage,
};

/// Measures one number over HTTP with 64 connections, from a sequence with strict order.
pub(crate) async fn strict(stage: &Stage, pace: Pace) -> Vec<Row> {
    let postgres = on(stage, pace, Backend::Postgres, "PostgreSQL").await;
    let mariadb = on(stage, pace, Backend::MariaDb, "MariaDB").await;
    [postgres, mariadb].concat()
}

async fn on(stage: &Stage, pace: Pace, backend: Backend, database: &str) -> [Row; 2] {
    let cores = &stage.cores;
    let server = stage.server(backend).await;
    sql::prepare(&server).await;
    let odometer = stage.odometer_on(&server).await;
    let program = &odometer.program;
    let definition = json!({"order": "strict"});
    program.client().define("orders", &definition).await;
    let wrk = Wrk::new(program.address(), NEXT);
    let mut strict = Http::new("Odometer, strict order", cores, program.id(), wrk);
    strict.processes.push(server.id());
    let mut table = sql::contender(cores, &server, Way::Table);
    let mut nextval = sql::contender(cores, &server, Way::Cache1);
    let series = pace
        .alternate(&mut [&mut strict, &mut table, &mut nextval])
        .await;
    let name = format!("strict-{}", backend.name());
    let title = format!("one number with strict order on {database}, 64 connections");
    let row = Row::new(&name, &title, Unit::RequestsPerSecond).series(series);
    let row = row.note(format!(
        "Odometer shares the one core with {database}, and the processor time is that of both \
         together. A sequence with cache 1 ascends as well, while one server gives all its numbers.{}",
        if backend == Backend::Postgres {
            " PostgreSQL writes only every 32nd of these numbers to its log."
        } else {
            ""
        }
    ));
    let title = format!("processor time of {title}");
    let against = [Way::Table, Way::Cache1].map(|way| sql::name(backend, way));
    [row.cost(&title, 1, &against), row]
}
