//! Measures one number a call in other forms: as text, printed and counted by days, time-ordered,
//! and with two workers.

use odometer_tests::{Backend, Program};
use serde_json::json;

use super::single::{CONSTANT, NEXT};
use crate::{
    cores::Side,
    load::{http::Http, wrk::Wrk},
    pace::Pace,
    row::{Row, Unit},
    stage::Stage,
};

/// Measures a number as a line of text, next to a number as JSON.
pub(crate) async fn text(stage: &Stage, pace: Pace) -> Vec<Row> {
    let odometer = stage.odometer(Backend::Sqlite).await;
    let (program, cores) = (&odometer.program, &stage.cores);
    let wrk = Wrk::new(program.address(), NEXT);
    let mut json = Http::new("Odometer, JSON", cores, program.id(), wrk.clone());
    let mut text = Http::new("Odometer, text", cores, program.id(), wrk);
    text.wrk.headers = vec!["Accept: text/plain".to_owned()];
    let series = pace.alternate(&mut [&mut text, &mut json]).await;
    let title = "one number as `text/plain`";
    vec![Row::new("text", title, Unit::RequestsPerSecond).series(series)]
}

/// Measures numbers that begin again on each day of a time zone and print the day, next to bare
/// numbers.
pub(crate) async fn calendar(stage: &Stage, pace: Pace) -> Vec<Row> {
    let odometer = stage.odometer(Backend::Sqlite).await;
    let (program, cores) = (&odometer.program, &stage.cores);
    let definition = json!({
        "period": "day",
        "time_zone": "Europe/Berlin",
        "format": "ORD-{period}-{value:06}-{check:luhn}",
        "overflow": "widen",
    });
    program.client().define("daily", &definition).await;
    let of_the_day = Wrk::new(program.address(), "/v1/sequences/daily/next");
    let bare = Wrk::new(program.address(), NEXT);
    let mut calendar = Http::new("Odometer, printed", cores, program.id(), of_the_day);
    let mut bare = Http::new("Odometer, bare numbers", cores, program.id(), bare);
    let series = pace.alternate(&mut [&mut calendar, &mut bare]).await;
    let title = "one number counted by days and printed as `ORD-{period}-{value:06}-{check:luhn}`";
    vec![Row::new("calendar", title, Unit::RequestsPerSecond).series(series)]
}

/// Measures time-ordered ids of both layouts, next to bare numbers.
pub(crate) async fn time_ordered(stage: &Stage, pace: Pace) -> Vec<Row> {
    let odometer = stage.odometer(Backend::Sqlite).await;
    let (program, cores) = (&odometer.program, &stage.cores);
    for high in ["time", "worker"] {
        let definition = json!({"kind": "snowflake", "layout": {"high": high}});
        program.client().define(high, &definition).await;
    }
    let ask = |name: &str, path: &str| {
        let wrk = Wrk::new(program.address(), path);
        Http::new(name, cores, program.id(), wrk)
    };
    let mut time = ask("Odometer, `high: time`", "/v1/sequences/time/next");
    let mut worker = ask("Odometer, `high: worker`", "/v1/sequences/worker/next");
    let mut bare = ask("Odometer, bare numbers", NEXT);
    let series = pace
        .alternate(&mut [&mut time, &mut worker, &mut bare])
        .await;
    let title = "one time-ordered id, 64 connections, both layouts";
    vec![Row::new("time-ordered", title, Unit::RequestsPerSecond).series(series)]
}

/// Measures a program with two workers, next to the constant body with two workers. All programs
/// and the load may use any core.
pub(crate) async fn workers(stage: &Stage, pace: Pace) -> Vec<Row> {
    let start = |n_workers: usize| {
        let options = Program::options().env("ODOMETER_HTTP__WORKERS", n_workers);
        stage.odometer_with(Backend::Sqlite, Side::Anywhere, options)
    };
    let (two, one) = (start(2).await, start(1).await);
    let constant = stage.constant(Side::Anywhere, 2).await;
    let wrk = |address: &str| Wrk {
        side: Side::Anywhere,
        ..Wrk::new(address, NEXT)
    };
    let (cores, two, one) = (&stage.cores, &two.program, &one.program);
    let mut two = Http::new("Odometer, two workers", cores, two.id(), wrk(two.address()));
    let mut one = Http::new("Odometer, one worker", cores, one.id(), wrk(one.address()));
    let address = constant.address();
    let mut constant = Http::new(CONSTANT, cores, constant.id(), wrk(&address));
    (two.n_cores, constant.n_cores) = (2.0, 2.0);
    let series = pace
        .alternate(&mut [&mut two, &mut constant, &mut one])
        .await;
    let title = "one number, 64 connections, two workers";
    let row = Row::new("workers", title, Unit::RequestsPerSecond).series(series);
    vec![row.note("Server and load share all cores here, and both bodies have two workers.")]
}
