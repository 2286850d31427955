//! Measures stores of more than one server: strict order through Redis, and databases that share a
//! sequence.

use std::time::Duration;

use odometer_tests::{Backend, Options, Program, TestDatabase};
use serde_json::json;

use super::single::NEXT;
use crate::{
    cores::Side,
    load::{
        http::Http,
        redis::{self, Step},
        wrk::Wrk,
    },
    pace::Pace,
    row::{Row, Unit},
    stage::{Odometer, Stage},
};

const THROUGH_REDIS: &str = "Odometer, strict order through Redis";
const WITHOUT: &str = "Odometer, strict order without Redis";
const INCR: &str = "Redis INCR";
const STRIPED: &str = "Odometer, three databases";
const ALONE: &str = "Odometer, one database";
/// A call that reserves a range in the database.
const BLOCKS: &str = "/v1/sequences/orders/blocks?size=10";

/// The time in which the servers start.
const STARTS: Duration = Duration::from_secs(12);

/// Measures one number over HTTP from a sequence with strict order. Redis gives the numbers.
pub(crate) async fn redis(stage: &Stage, pace: Pace) -> Vec<Row> {
    let cores = &stage.cores;
    let server = stage.server(Backend::Postgres).await;
    let redis = redis::start(cores).await;
    let counted = TestDatabase::empty_on(&server).await;
    let options = Program::options()
        .env("ODOMETER_STORES__DEFAULT__DATABASE", &counted.url)
        .env(
            "ODOMETER_STORES__DEFAULT__REDIS",
            format!("redis://{}", redis.address()),
        );
    let through = migrated(stage, options, vec![counted]).await;
    let without = stage.odometer_on(&server).await;
    let mut contenders = Vec::new();
    for (name, odometer) in [(THROUGH_REDIS, &through), (WITHOUT, &without)] {
        let program = &odometer.program;
        let definition = json!({"order": "strict"});
        program.client().define("orders", &definition).await;
        let wrk = Wrk::new(program.address(), NEXT);
        let mut http = Http::new(name, cores, program.id(), wrk);
        http.processes.push(server.id());
        http.processes.push(redis.id());
        contenders.push(http);
    }
    let mut incr = redis::contender(INCR, cores, &redis, Step::One, 1);
    let [through, without] = contenders.as_mut_slice() else {
        unreachable!("two were made")
    };
    let series = pace.alternate(&mut [through, without, &mut incr]).await;
    let title = "one number with strict order, 64 connections, Redis before PostgreSQL";
    let row = Row::new("strict-redis", title, Unit::RequestsPerSecond).series(series);
    let row = row.note(
        "Odometer shares the one core with Redis and PostgreSQL, and the processor time is that of \
         all three together. Callers who come while a step is on its way share the next step. So \
         more numbers a second can leave than Redis makes steps. Each step checks the server's \
         identity and the ceiling, and a bare INCR checks neither.",
    );
    let title = format!("processor time of {title}");
    vec![row.cost(&title, 1, &[WITHOUT, INCR]), row]
}

pub(crate) fn redis_estimate(pace: Pace) -> Duration {
    pace.estimate(3) + STARTS
}

/// Measures numbers and reservations of a sequence that three databases share. The reference has
/// one database.
pub(crate) async fn striped(stage: &Stage, pace: Pace) -> Vec<Row> {
    let cores = &stage.cores;
    let server = stage.server(Backend::Postgres).await;
    let mut databases = Vec::new();
    for _ in 0..3 {
        databases.push(TestDatabase::empty_on(&server).await);
    }
    let urls: Vec<&str> = databases.iter().map(|it| it.url.as_str()).collect();
    let options = Program::options().env("ODOMETER_STORES__DEFAULT__DATABASES", urls.join(","));
    let striped = migrated(stage, options, databases).await;
    let alone = stage.odometer_on(&server).await;
    let mut rows = Vec::new();
    for (name, title, path) in [
        (
            "striped",
            "one number, 64 connections, a sequence that three databases share",
            NEXT,
        ),
        (
            "striped-blocks",
            "a range of 10 reserved by each call, a sequence that three databases share",
            BLOCKS,
        ),
    ] {
        let ask = |name: &str, odometer: &Odometer| {
            let program = &odometer.program;
            let wrk = Wrk::new(program.address(), path);
            let mut http = Http::new(name, cores, program.id(), wrk);
            http.processes.push(server.id());
            http
        };
        let (mut striped, mut alone) = (ask(STRIPED, &striped), ask(ALONE, &alone));
        let series = pace.alternate(&mut [&mut striped, &mut alone]).await;
        let row = Row::new(name, title, Unit::RequestsPerSecond).series(series);
        rows.push(row.note(
            "The three databases are on one PostgreSQL server, which shares the one core with \
             Odometer. So the row shows what striping costs, and not what three machines bring.",
        ));
    }
    rows
}

pub(crate) fn striped_estimate(pace: Pace) -> Duration {
    pace.estimate(4) + STARTS
}

/// Starts the program with `options`, after a migration of its databases.
async fn migrated(stage: &Stage, options: Options, databases: Vec<TestDatabase>) -> Odometer {
    let migrated = options.run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
    stage
        .odometer_started(databases, Side::Server, options)
        .await
}
