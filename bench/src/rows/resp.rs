//! Measures numbers for clients of Redis. The reference is Redis, which gets the same bytes.

use odometer_tests::{Backend, Program};

use super::single::REDIS_NOTE;
use crate::{
    cores::Side,
    load::redis::{self, Step},
    pace::Pace,
    row::{Bound, Row, Unit},
    stage::Stage,
};

const REDIS: &str = "Redis";
/// Requests that a connection of a pipelined row sends before it reads the first answer.
const DEPTH: u32 = 16;
/// The most that a number may cost, divided by its cost in Redis.
const BOUND: Bound = Bound::AtMost(1.0);
/// The same for pipelined requests.
const PIPELINED_BOUND: Bound = Bound::AtMost(0.6);

/// What is asked for in a row.
struct RespRow {
    name: &'static str,
    title: &'static str,
    step: Step,
    depth: u32,
    bound: Bound,
}

/// All rows. The quick pace measures the first two.
const ROWS: [RespRow; 4] = [
    RespRow {
        name: "resp",
        title: "one number by `INCR`, 50 connections",
        step: Step::One,
        depth: 1,
        bound: BOUND,
    },
    RespRow {
        name: "resp-pipelined",
        title: "one number by `INCR`, 50 connections, pipelined 16 deep",
        step: Step::One,
        depth: DEPTH,
        bound: PIPELINED_BOUND,
    },
    RespRow {
        name: "resp-range",
        title: "100 numbers by `INCRBY`, 50 connections",
        step: Step::Hundred,
        depth: 1,
        bound: BOUND,
    },
    RespRow {
        name: "resp-range-pipelined",
        title: "100 numbers by `INCRBY`, 50 connections, pipelined 16 deep",
        step: Step::Hundred,
        depth: DEPTH,
        bound: PIPELINED_BOUND,
    },
];

fn rows_of(pace: Pace) -> impl Iterator<Item = RespRow> {
    ROWS.into_iter().take(pace.of(ROWS.len(), 2))
}

/// Returns how many contenders the rows have together.
pub(crate) fn n_contenders(pace: Pace) -> u32 {
    2 * u32::try_from(rows_of(pace).count()).unwrap_or(u32::MAX / 2)
}

/// Measures the cost of a number, and the requests a second, in each row.
pub(crate) async fn resp(stage: &Stage, pace: Pace) -> Vec<Row> {
    let cores = &stage.cores;
    let options = Program::options().with_resp();
    let odometer = stage.odometer_with(Backend::Sqlite, Side::Server, options);
    let odometer = odometer.await;
    let redis = redis::start(cores).await;
    let program = &odometer.program;
    let address = program.resp_address();
    let port = address.rsplit_once(':').map(|(_, port)| port.parse());
    let port: u16 = port.expect("a port").expect("a number");
    let mut rows = Vec::new();
    for row in rows_of(pace) {
        let asked = (row.step, row.depth);
        let mut ours = redis::contender_at("Odometer", cores, (program.id(), port), asked);
        let mut theirs = redis::contender(REDIS, cores, &redis, row.step, row.depth);
        let series = pace.alternate(&mut [&mut ours, &mut theirs]).await;
        let rate = Row::new(row.name, row.title, Unit::RequestsPerSecond)
            .series(series)
            .note(REDIS_NOTE)
            .note("All connections ask for the same key.");
        let title = format!("processor time of a number, {}", row.title);
        let cost = rate.cost(&title, row.step.n_numbers(), &[REDIS]);
        rows.extend([cost.target(REDIS, row.bound), rate]);
    }
    rows
}
