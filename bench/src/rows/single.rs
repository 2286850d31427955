//! One number a call, from memory, beside the same library answering a constant body.

use odometer_tests::Backend;

use crate::{
    cores::Side,
    load::{
        http::{Figure, Http},
        wrk::Wrk,
    },
    pace::Pace,
    row::{Bound, Row, Series, Unit},
    stage::Stage,
};

pub(crate) const CONSTANT: &str = "actix-web, constant body";
pub(crate) const NEXT: &str = "/v1/sequences/orders/next";

/// One number over HTTP with 64 connections, as shipped.
pub(crate) async fn single(stage: &Stage, pace: Pace) -> Vec<Row> {
    let series = beside_constant(stage, pace, |_| {}).await;
    let row = Row::new(
        "single",
        "one number, 64 connections",
        Unit::RequestsPerSecond,
    );
    vec![row.series(series).target(CONSTANT, Bound::AtLeast(0.95))]
}

/// The same with other numbers of connections; with one, its time instead of its rate.
pub(crate) async fn connections(stage: &Stage, pace: Pace) -> Vec<Row> {
    let one = beside_constant(stage, pace, |http| {
        http.wrk.n_connections = 1;
        http.figure = Figure::P50;
    });
    let title = "one number, one connection, p50";
    let one = Row::new("connections-1", title, Unit::Microseconds).series(one.await);
    let mut rows = vec![one.target(CONSTANT, Bound::AtMost(1.05))];
    for n_connections in [8, 256] {
        let series = beside_constant(stage, pace, |http| http.wrk.n_connections = n_connections);
        let name = format!("connections-{n_connections}");
        let title = format!("one number, {n_connections} connections");
        rows.push(Row::new(&name, &title, Unit::RequestsPerSecond).series(series.await));
    }
    rows
}

/// The same, each connection sending 16 requests before it reads an answer.
pub(crate) async fn pipelined(stage: &Stage, pace: Pace) -> Vec<Row> {
    let series = beside_constant(stage, pace, |http| http.wrk.depth = 16).await;
    let title = "one number, 64 connections, pipelined 16 deep";
    let row = Row::new("pipelined", title, Unit::RequestsPerSecond);
    vec![row.series(series).target(CONSTANT, Bound::AtLeast(0.90))]
}

/// The shipped program and the constant body, both asked in the way that `vary` makes of the
/// usual one.
async fn beside_constant(stage: &Stage, pace: Pace, vary: impl Fn(&mut Http)) -> Vec<Series> {
    let odometer = stage.odometer(Backend::Sqlite).await;
    let constant = stage.constant(Side::Server, 1).await;
    let wrk = |address: &str| Wrk::new(address, NEXT);
    let (program, cores) = (&odometer.program, &stage.cores);
    let mut odometer = Http::new("Odometer", cores, program.id(), wrk(program.address()));
    let mut constant = Http::new(CONSTANT, cores, constant.id(), wrk(&constant.address()));
    vary(&mut odometer);
    vary(&mut constant);
    pace.alternate(&mut [&mut odometer, &mut constant]).await
}
