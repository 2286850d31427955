//! Measures one number a call, from memory. The references are the same HTTP library with a
//! constant body, and other systems that give numbers.

use odometer_tests::{Backend, Server};

use crate::{
    cores::{Cores, Side},
    load::{
        http::{Figure, Http},
        redis::{self, Step},
        sql::{self, Way},
        wrk::Wrk,
    },
    pace::{Contender, Pace},
    process::Process,
    row::{Bound, Row, Series, Unit},
    stage::{Odometer, Stage},
};

/// A server that answers before the routes, as Odometer's warm path does.
pub(crate) const CONSTANT: &str = "actix-web, constant body";
const REDIS: &str = "Redis INCR";
const REDIS_PIPELINED: &str = "Redis INCR, pipelined 16 deep";
pub(crate) const NEXT: &str = "/v1/sequences/orders/next";

/// The most that a number may cost, divided by its cost in Redis.
const REDIS_BOUND: Bound = Bound::AtMost(0.95);
/// The most that a number may cost, divided by its cost in a database's own sequence.
const DATABASE_BOUND: Bound = Bound::AtMost(0.5);
/// Requests that a connection of a pipelined row sends before it reads the first answer.
const DEPTH: u32 = 16;

pub(crate) const REDIS_NOTE: &str = "Redis has 50 connections, as `redis-benchmark` opens by default, and writes nothing to a disk.";

/// Returns how many contenders `single` has.
pub(crate) fn n_contenders(pace: Pace) -> u32 {
    pace.of(8, 3)
}

/// Measures one number over HTTP with 64 connections, with the shipped program, next to other
/// systems that give one number a call. The rows are the cost of a number, and the numbers a
/// second.
pub(crate) async fn single(stage: &Stage, pace: Pace) -> Vec<Row> {
    let cores = &stage.cores;
    let odometer = stage.odometer(Backend::Sqlite).await;
    let constant = stage.constant(Side::Server, 1).await;
    let redis = redis::start(cores).await;
    let mut servers = Vec::new();
    // At the quick pace, starting the servers would take longer than everything else.
    if pace == Pace::Whole {
        for backend in [Backend::Postgres, Backend::MariaDb] {
            let server = stage.server(backend).await;
            sql::prepare(&server).await;
            servers.push(server);
        }
    }
    let program = &odometer.program;
    let ask = |name: &str, process: u32, address: &str| -> Box<dyn Contender> {
        let wrk = Wrk::new(address, NEXT);
        Box::new(Http::new(name, cores, process, wrk))
    };
    let incr = redis::contender(REDIS, cores, &redis, Step::One, 1);
    let mut contenders = vec![
        ask("Odometer", program.id(), program.address()),
        ask(CONSTANT, constant.id(), &constant.address()),
        Box::new(incr),
    ];
    let sequences = sequences(&servers);
    contenders.extend(asked(cores, &sequences));
    let tables: Vec<_> = servers.iter().map(|server| (server, Way::Table)).collect();
    contenders.extend(asked(cores, &tables));
    let mut contenders: Vec<&mut dyn Contender> = contenders
        .iter_mut()
        .map(|contender| contender.as_mut() as &mut dyn Contender)
        .collect();
    let series = pace.alternate(&mut contenders).await;
    let rate = Row::new(
        "single",
        "one number, 64 connections",
        Unit::RequestsPerSecond,
    )
    .series(series)
    .target(CONSTANT, Bound::AtLeast(0.97))
    .note(REDIS_NOTE)
    .note(
        "PostgreSQL and MariaDB have their default durability. Their statements are prepared. \
         MariaDB has a cache of 1000 if none is named.",
    );
    let of_databases = sequences
        .iter()
        .map(|(server, way)| sql::name(server.backend(), *way));
    let of_databases: Vec<&str> = of_databases.collect();
    let against = [&[CONSTANT, REDIS], of_databases.as_slice()].concat();
    let title = "processor time of one number, 64 connections";
    let mut cost = rate.cost(title, 1, &against).target(REDIS, REDIS_BOUND);
    for name in of_databases {
        cost = cost.target(name, DATABASE_BOUND);
    }
    vec![cost, rate]
}

/// Returns the sequences of the two database servers, if the servers were started.
fn sequences(servers: &[Server]) -> Vec<(&Server, Way)> {
    match servers {
        [postgres, mariadb] => vec![
            (postgres, Way::Cache1),
            (postgres, Way::Cache1000),
            (mariadb, Way::Cache1000),
        ],
        _ => Vec::new(),
    }
}

fn asked(cores: &Cores, ways: &[(&Server, Way)]) -> Vec<Box<dyn Contender>> {
    let contenders = ways.iter().map(|(server, way)| -> Box<dyn Contender> {
        Box::new(sql::contender(cores, server, *way))
    });
    contenders.collect()
}

/// Measures the same with other numbers of connections. With one connection, the value is the
/// latency instead of the rate.
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

/// Measures the same if each connection sends 16 requests before it reads an answer. Redis gets its
/// requests in the same way.
pub(crate) async fn pipelined(stage: &Stage, pace: Pace) -> Vec<Row> {
    let cores = &stage.cores;
    let mut both = Both::start(stage, |http| http.wrk.depth = DEPTH).await;
    let redis = redis::start(cores).await;
    let mut incr = redis::contender(REDIS_PIPELINED, cores, &redis, Step::One, DEPTH);
    let [odometer, constant] = &mut both.asked;
    let series = pace.alternate(&mut [odometer, constant, &mut incr]).await;
    let title = "one number, 64 connections, pipelined 16 deep";
    let rate = Row::new("pipelined", title, Unit::RequestsPerSecond)
        .series(series)
        .target(CONSTANT, Bound::AtLeast(0.95))
        .note(REDIS_NOTE);
    let title = "processor time of one number, 64 connections, pipelined 16 deep";
    vec![rate.cost(title, 1, &[CONSTANT, REDIS_PIPELINED]), rate]
}

/// Measures the shipped program and the constant body. `vary` changes how both are asked.
async fn beside_constant(stage: &Stage, pace: Pace, vary: impl Fn(&mut Http)) -> Vec<Series> {
    let mut both = Both::start(stage, vary).await;
    let [odometer, constant] = &mut both.asked;
    pace.alternate(&mut [odometer, constant]).await
}

/// The shipped program and the constant body, with the load for each.
struct Both {
    asked: [Http; 2],
    _odometer: Odometer,
    _constant: Process,
}

impl Both {
    async fn start(stage: &Stage, vary: impl Fn(&mut Http)) -> Self {
        let odometer = stage.odometer(Backend::Sqlite).await;
        let constant = stage.constant(Side::Server, 1).await;
        let program = &odometer.program;
        let mut asked = [
            ("Odometer", program.id(), program.address().to_owned()),
            (CONSTANT, constant.id(), constant.address()),
        ]
        .map(|(name, id, address)| Http::new(name, &stage.cores, id, Wrk::new(&address, NEXT)));
        asked.iter_mut().for_each(vary);
        Self {
            asked,
            _odometer: odometer,
            _constant: constant,
        }
    }
}
