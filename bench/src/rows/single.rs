//! One number a call, from memory, beside the same library answering a constant body and beside
//! what else gives numbers.

use odometer_tests::Backend;

use crate::{
    cores::Side,
    load::{
        http::{Figure, Http},
        redis,
        sql::{self, Way},
        wrk::Wrk,
    },
    pace::{Contender, Pace},
    row::{Bound, Row, Series, Unit},
    stage::Stage,
};

pub(crate) const CONSTANT: &str = "actix-web, constant body";
const REDIS: &str = "Redis INCR";
pub(crate) const NEXT: &str = "/v1/sequences/orders/next";

/// What everything that a database has for it is to fall behind by.
const DATABASE_BOUND: Bound = Bound::AtLeast(1.6);

/// How many contenders `single` has.
pub(crate) fn n_contenders(pace: Pace) -> u32 {
    pace.of(8, 3)
}

/// One number over HTTP with 64 connections, as shipped, beside what else gives one number a call.
pub(crate) async fn single(stage: &Stage, pace: Pace) -> Vec<Row> {
    let cores = &stage.cores;
    let odometer = stage.odometer(Backend::Sqlite).await;
    let constant = stage.constant(Side::Server, 1).await;
    let redis = redis::start(cores).await;
    let program = &odometer.program;
    let ask = |name: &str, process: u32, address: &str| -> Box<dyn Contender> {
        let wrk = Wrk::new(address, NEXT);
        Box::new(Http::new(name, cores, process, wrk))
    };
    let mut contenders = vec![
        ask("Odometer", program.id(), program.address()),
        ask(CONSTANT, constant.id(), &constant.address()),
        Box::new(redis::incr(REDIS, cores, &redis)),
    ];
    let title = "one number, 64 connections";
    let mut row = Row::new("single", title, Unit::RequestsPerSecond)
        .target(CONSTANT, Bound::AtLeast(0.95))
        .target(REDIS, Bound::AtLeast(1.05));
    let mut servers = Vec::new();
    // The servers need longer to start than all the rest at the other pace.
    if pace == Pace::Whole {
        for backend in [Backend::Postgres, Backend::MariaDb] {
            let server = stage.server(backend).await;
            sql::prepare(&server).await;
            servers.push(server);
        }
    }
    if let [postgres, mariadb] = servers.as_slice() {
        let of_a_sequence = [
            (postgres, Way::Cache1),
            (postgres, Way::Cache1000),
            (mariadb, Way::Cache1000),
        ];
        for (server, way) in of_a_sequence {
            row = row.target(sql::name(server.backend(), way), DATABASE_BOUND);
            contenders.push(Box::new(sql::contender(cores, server, way)));
        }
        for server in [postgres, mariadb] {
            contenders.push(Box::new(sql::contender(cores, server, Way::Table)));
        }
    }
    let mut contenders: Vec<&mut dyn Contender> = contenders
        .iter_mut()
        .map(|contender| contender.as_mut() as &mut dyn Contender)
        .collect();
    let series = pace.alternate(&mut contenders).await;
    vec![row.series(series).note(
        "Redis has 50 connections, as `redis-benchmark` opens by default, and writes nothing to \
         a disk; PostgreSQL and MariaDB are as durable as they come, their statements are \
         prepared, and 1000 is what MariaDB takes where no cache is named.",
    )]
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
